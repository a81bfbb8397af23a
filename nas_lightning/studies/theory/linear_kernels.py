"""Kernels of wide and deep linear networks (Y. Shu's thesis, 2022, equation 7.5 and theorem 7.4).

f(x) = 1ᵀ Σ_i W⁽ⁱ⁾ x,    f′(x) = 1ᵀ W⁽ᴸ⁾ ⋯ W⁽¹⁾ x,    W⁽ⁱ⁾ of (n, n), entries N(0, 1),    Xᵀ X = I

Θ = L n I,    E Θ′ = L nᴸ I
"""

from __future__ import annotations

import torch
from torch import Tensor


def wide_kernel(W: Tensor, x: Tensor) -> Tensor:
    """Θ = Σ_i J⁽ⁱ⁾ J⁽ⁱ⁾ᵀ with ∂f/∂W⁽ⁱ⁾ = 1 xᵀ, whatever W (L, n, n) is: x (m, n) → (m, m)."""
    layers, n = W.shape[:2]
    return layers * n * x @ x.T


def deep_kernel(W: Tensor, x: Tensor) -> Tensor:
    """Θ′ = Σ_i ‖1ᵀ W⁽ᴸ⁾ ⋯ W⁽ⁱ⁺¹⁾‖² (W⁽ⁱ⁻¹⁾ ⋯ W⁽¹⁾ x)ᵀ (W⁽ⁱ⁻¹⁾ ⋯ W⁽¹⁾ x′) (D.47): (m, m).

    >>> deep_kernel(2 * torch.eye(2)[None].repeat(2, 1, 1), torch.eye(2))  # both layers: ‖1ᵀ 2 I‖² + n · 2²
    tensor([[16.,  0.],
            [ 0., 16.]])
    """
    layers, n = W.shape[:2]
    before, inputs = x, []
    for matrix in W:
        inputs.append(before)
        before = before @ matrix.T
    after, total = torch.ones(n, dtype=x.dtype), torch.zeros(len(x), len(x), dtype=x.dtype)
    for layer in reversed(range(layers)):
        total = total + after.square().sum() * inputs[layer] @ inputs[layer].T
        after = after @ W[layer]
    return total


def orthonormal(samples: int, n: int, generator: torch.Generator) -> Tensor:
    """Inputs with Xᵀ X = I: (samples, n), samples ≤ n."""
    x = torch.randn(n, samples, dtype=torch.float64, generator=generator)
    return torch.linalg.qr(x).Q.T
