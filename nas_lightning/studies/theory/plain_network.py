"""Equation 1 of Zhu et al. 2022 (arXiv:2209.07238) at finite width, its kernel, and algorithm 1's descent.

    f_0 = x,   f_1 = σ_1(W_1 f_0),   f_l = σ_l(W_l f_{l−1}) + α_{l−1} f_{l−1},   f = ⟨W_L, f_{L−1}⟩

with W ~ N(0, 1/m). For b_l = ∂f/∂f_l and g_l = b_l ∘ σ_l′(W_l f_{l−1}), b_{L−1} = W_L and
b_{l−1} = W_lᵀ g_l + α_{l−1} b_l; with f_l and g_l of each input as the rows of F_l and G_l,

    J Jᵀ = F_{L−1} F_{L−1}ᵀ + Σ_{l=1}^{L−1} (G_l G_lᵀ) ∘ (F_{l−1} F_{l−1}ᵀ)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from nas_lightning.metrics.infinite.gaussian import slope
from nas_lightning.spaces.activations.layers import ACTIVATIONS


class PlainNetwork:
    """One output, no biases; weights of float64.

    Args:
        inputs: d.
        width: m.
        activations: σ_1, …, σ_{L−1}.
        skips: α_1, …, α_{L−2}.
        generator: of the weights.

    >>> network = PlainNetwork(3, 8, ["relu", "tanh"], [True], torch.Generator().manual_seed(0))
    >>> network.kernel(torch.eye(3, dtype=torch.float64)).shape
    torch.Size([3, 3])
    """

    def __init__(
        self,
        inputs: int,
        width: int,
        activations: Sequence[str],
        skips: Sequence[bool],
        generator: torch.Generator,
    ) -> None:
        self.sigma = [ACTIVATIONS[name] for name in activations]
        self.skips = [False, *skips]  # none goes round the first layer
        shapes = [(width, inputs), *[(width, width)] * (len(activations) - 1), (1, width)]
        self.weights = [
            torch.randn(shape, dtype=torch.float64, generator=generator) / width**0.5 for shape in shapes
        ]

    def outputs(self, x: Tensor) -> Tensor:
        """f: (n, d) → (n,)."""
        return (self.layers(x)[-1] @ self.weights[-1].T)[:, 0]

    def layers(self, x: Tensor) -> list[Tensor]:
        """f_0, …, f_{L−1}."""
        found = [x]
        for W, sigma, skip in zip(self.weights, self.sigma, self.skips, strict=False):
            found.append(sigma(found[-1] @ W.T) + (found[-1] if skip else 0))
        return found

    @torch.no_grad()
    def kernel(self, x: Tensor) -> Tensor:
        """J Jᵀ: (n, d) → (n, n)."""
        f = self.layers(x)
        found, b = f[-1] @ f[-1].T, self.weights[-1].expand(len(x), -1)
        for W, sigma, skip, below in reversed(
            list(zip(self.weights, self.sigma, self.skips, f[:-1], strict=False))
        ):
            g = b * slope(sigma, below @ W.T)
            found = found + (g @ g.T) * (below @ below.T)
            b = g @ W + (b if skip else 0)
        return found


def descend(network: PlainNetwork, x: Tensor, y: Tensor, gamma: float, kept: int) -> None:
    """The second part of algorithm 1: W ← W − γ ∇ ln(1 + e^(−y_i f(x_i))) for i < kept, in place.

    A uniform `kept` of 0 … N − 1 makes the result its random iterate Ŵ.
    """
    for image, label in zip(x[:kept], y[:kept], strict=True):
        for W in network.weights:
            W.requires_grad_()
        loss = F.softplus(-label * network.outputs(image[None])[0])
        slopes = torch.autograd.grad(loss, network.weights)
        network.weights = [(W - gamma * dW).detach() for W, dW in zip(network.weights, slopes, strict=True)]
