"""The neural tangent kernel of infinitely wide `mlp` networks (Zhu et al. 2022, arXiv:2209.07238, lemma 1).

For f_l = √(2/m) σ_l(W_l f_{l−1}) + α_{l−1} f_{l−1}, W ~ N(0, 1), f_0 = x, α ∈ {0, 1}, the covariances A⁽ˡ⁾
of f_{l−1} and the kernels Θ⁽ˡ⁾ of f_l follow layer by layer; with G and Ġ, twice the moments of σ_l and σ_l′
at A⁽ˡ⁾,

    A⁽¹⁾ = X Xᵀ,   A⁽ˡ⁺¹⁾ = G + α_{l−1} (A⁽ˡ⁾ + a sᵀ + s aᵀ),   Θ⁽ˡ⁾ = Ġ ∘ (A⁽ˡ⁾ + Θ⁽ˡ⁻¹⁾) + α_{l−1} Θ⁽ˡ⁻¹⁾

and K = A⁽ᴸ⁾ + Θ⁽ᴸ⁻¹⁾. Here a = √2 E σ_l, and s = Σ_units f_{l−1}/√m, the sum of a over the layers that skips
join. Lemma 1 differs where there are skips: it has no a sᵀ + s aᵀ, which vanish for activations of mean zero
only (Sigmoid − ½ and Tanh), and G⁽ˡ⁾ for A⁽ˡ⁾ where W_l and W_L see f_{l−1}, skip included. `lemma=True`
gives it to the letter; networks of growing width approach the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from nas_lightning.errors import InputError
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.infinite.gaussian import moments
from nas_lightning.metrics.passes.kernel_matrix import Kernel
from nas_lightning.metrics.passes.shared import Passes
from nas_lightning.spaces.activations.layers import LayeredBackbone
from nas_lightning.spaces.network import Network


def infinite_ntk(
    gram: Tensor,
    activations: Sequence[str],
    skips: Sequence[bool],
    *,
    lemma: bool = False,
    tolerance: float = 1e-9,
) -> Kernel:
    """K of one output, for inputs with these products.

    Args:
        gram: X Xᵀ, (N, N).
        activations: σ_1, …, σ_{L−1}.
        skips: α_1, …, α_{L−2}.
        lemma: as lemma 1 is written.
        tolerance: of each layer's moments, relative.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> infinite_ntk(x @ x.T, ["relu"], []).matrix[0, 0]  # A + Θ = 1 + 1
    tensor(2., dtype=torch.float64)
    """
    if not activations or len(skips) != len(activations) - 1:
        got = f"{len(activations)} activations and {len(skips)} skips"
        raise InputError("expected at least one activation, and one skip less than that", got=got)
    A = gram.double()
    seen = A  # what the weights of the next layer see
    theta, s = torch.zeros_like(A), torch.zeros(len(A), dtype=A.dtype)
    for name, alpha in zip(activations, [False, *skips], strict=True):
        product, slopes, mean = moments(name, A, tolerance)
        G, a = 2 * product, 2**0.5 * mean
        theta = 2 * slopes * (seen + theta) + alpha * theta
        cross = torch.outer(a, s) + torch.outer(s, a)
        A = G + alpha * (A if lemma else A + cross)
        s = a + alpha * s
        seen = G if lemma else A
    return Kernel(seen + theta, precision=tolerance)


@dataclass(frozen=True)
class InfiniteNTKLambdaMin(Metric):
    """λ_min of the infinitely wide network of the same activations and skips; its weights do not matter.

    For networks of `mlp` and `two_layer`, at inputs x/√d. `lemma` is explained above.

    Args:
        lemma: as lemma 1 is written.

    >>> from nas_lightning.spaces import Mlp
    >>> space = Mlp(layers=3)
    >>> sizes = {"in_channels": 1, "num_classes": 2, "width": 4, "side": 2}
    >>> network = space.network(space.parse("relu|tanh"), **sizes)
    >>> batch = torch.randn(4, 1, 2, 2), torch.tensor([0, 1, 0, 1])
    >>> InfiniteNTKLambdaMin()(network, batch).item() > 0
    True
    """

    counts_only: ClassVar[bool] = True
    layered_only: ClassVar[bool] = True

    lemma: bool = False

    def compute(self, passes: Passes) -> float:
        backbone = layered_backbone(passes.network)
        x = backbone.vectors(passes.x.detach()).double()  # (m, d)
        activations, skips = backbone.decisions
        return infinite_ntk(x @ x.T / x.shape[1], activations, skips, lemma=self.lemma).lambda_min


def layered_backbone(network: nn.Module) -> LayeredBackbone:
    """What knows a network's activations and skips."""
    if not isinstance(network, Network) or not isinstance(network.backbone, LayeredBackbone):
        raise InputError(
            "expected a network of the space mlp or two_layer", got=type(network).__name__, where="metric"
        )
    return network.backbone
