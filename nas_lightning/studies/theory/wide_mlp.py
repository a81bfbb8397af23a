"""Perceptrons in the parametrisation of the neural tangent kernel (Jacot et al. 2018), and their training.

    h⁽¹⁾ = W⁽¹⁾ x / √n₀,    h⁽ˡ⁾ = W⁽ˡ⁾ σ(h⁽ˡ⁻¹⁾) / √k,    f(x) = h⁽ᴸ⁾,    W ~ N(0, 1)

With f₀ subtracted, gradient descent on ½‖f − y‖² moves the linearised network by its kernel Θ₀ alone:

    f_t = (1 − (1 − ηΘ₀)ᵗ) y
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Sigma = Callable[[Tensor], Tensor]


class WideMlp:
    """A perceptron of one output, whose weights are one vector.

    Args:
        inputs: n₀.
        width: k.
        depth: L, the last layer included.
        sigma: the activation.
        generator: of the weights.

    >>> mlp = WideMlp(3, width=8, depth=2, sigma=torch.tanh, generator=torch.Generator().manual_seed(0))
    >>> mlp.outputs(mlp.weights, torch.ones(5, 3, dtype=torch.float64)).shape
    torch.Size([5])
    """

    def __init__(
        self, inputs: int, *, width: int, depth: int, sigma: Sigma, generator: torch.Generator
    ) -> None:
        self.sizes, self.sigma = [inputs, *[width] * (depth - 1), 1], sigma
        count = sum(a * b for a, b in zip(self.sizes, self.sizes[1:], strict=False))
        self.weights = torch.randn(count, dtype=torch.float64, generator=generator)  # (d,)

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """f with these weights (d,): (m, n₀) → (m,)."""
        h, first = x, 0
        for layer, (fan_in, fan_out) in enumerate(zip(self.sizes, self.sizes[1:], strict=False)):
            W = weights[first : first + fan_in * fan_out].view(fan_out, fan_in)
            h = (self.sigma(h) if layer else h) @ W.T / fan_in**0.5
            first += fan_in * fan_out
        return h[:, 0]

    def jacobian(self, x: Tensor) -> Tensor:
        """∇_θ f(x_i): (m, n₀) → (m, d)."""
        weights = self.weights.clone().requires_grad_()
        f = self.outputs(weights, x)
        return torch.stack([torch.autograd.grad(one, weights, retain_graph=True)[0] for one in f])


class Trained(NamedTuple):
    """Gradient descent, and that of the linearised network.

    Args:
        kernel: Θ₀, (m, m).
        outputs: f_t − f₀ before each step and after the last, (steps + 1, m).
        linear: the same of the linearised network.
    """

    kernel: Tensor
    outputs: Tensor
    linear: Tensor


def train(mlp: WideMlp, x: Tensor, y: Tensor, *, share: float, steps: int) -> Trained:
    """Gradient descent with η = share / λ_max(Θ₀), from f₀ = 0."""
    jacobian = mlp.jacobian(x)
    kernel = jacobian @ jacobian.T
    eta = share / float(torch.linalg.eigvalsh(kernel)[-1])
    start, weights, found = mlp.outputs(mlp.weights, x), mlp.weights.clone().requires_grad_(), []
    for _ in range(steps + 1):
        f = mlp.outputs(weights, x) - start
        found.append(f.detach())
        (slope,) = torch.autograd.grad(0.5 * (f - y).square().sum(), weights)
        weights = (weights - eta * slope).detach().requires_grad_()
    return Trained(kernel, torch.stack(found), linear_outputs(kernel, y, eta, steps))


def linear_outputs(kernel: Tensor, y: Tensor, eta: float, steps: int) -> Tensor:
    """f_t = Σ_i (1 − (1 − ηλ_i)ᵗ) (u_iᵀ y) u_i for t = 0 … steps: (steps + 1, m)."""
    eigenvalues, u = torch.linalg.eigh(kernel)
    t = torch.arange(steps + 1, dtype=kernel.dtype)
    left = (1 - eta * eigenvalues) ** t[:, None]  # (steps + 1, m)
    return (1 - left) * (u.T @ y) @ u.T
