"""The widest against the narrowest linear cell (Y. Shu's thesis, 2022, theorems 4.3 and 4.4, appendix A.2).

Of the same matrices W⁽¹⁾ … W⁽ⁿ⁾, the widest cell has the nodes y⁽ⁱ⁾ = W⁽ⁱ⁾ x, the narrowest ŷ⁽ⁱ⁾ = W⁽ⁱ⁾ ⋯
W⁽¹⁾ x. With f = ½ Σ_i ‖y⁽ⁱ⁾ − t⁽ⁱ⁾‖² behind both, averaged over samples, every quantity of the theorems is
known: the block-wise Lipschitz constants of the widest cell are L = ‖E x xᵀ‖ exactly. Matrix norms are
spectral, variances are of entries (Frobenius), λ⁽ⁱ⁾ = ‖W⁽ⁱ⁾‖.

Theorem 4.3 states, for a change of W⁽ⁱ⁾ alone,

    ‖∂f̂/∂W₁⁽ⁱ⁾ − ∂f̂/∂W₂⁽ⁱ⁾‖ ≤ (Π_{j<i} λ⁽ʲ⁾) L⁽ⁱ⁾ ‖W₁⁽ⁱ⁾ − W₂⁽ⁱ⁾‖.

Its proof lets the gradients at the nodes behind i stand still, though those nodes move, and node i move by
(W₁ − W₂) x, though its input is ŷ⁽ⁱ⁻¹⁾. Without these two steps it gives, for objectives that add up over
nodes,

    ‖…‖ ≤ Σ_{k≥i} L⁽ᵏ⁾ (Π_{j≤k, j≠i} λ⁽ʲ⁾)² ‖W₁⁽ⁱ⁾ − W₂⁽ⁱ⁾‖.

Theorem 4.4, E‖∂f̂/∂W⁽ⁱ⁾ − E …‖² ≤ n Σ_{k≥i} (σ⁽ᵏ⁾/λ⁽ⁱ⁾ Π_{j≤k} λ⁽ʲ⁾)², holds with σ⁽ᵏ⁾ for the widest cell
of the same outputs, whose matrices are the products W⁽ᵏ⁾ ⋯ W⁽¹⁾; not for that of the same matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Matrices = Sequence[Tensor]


def products(W: Matrices) -> list[Tensor]:
    """W⁽ⁱ⁾ ⋯ W⁽¹⁾: the widest cell with these has the outputs of the narrowest."""
    found = [W[0]]
    for matrix in W[1:]:
        found.append(matrix @ found[-1])
    return found


def widest_gradients(W: Matrices, x: Tensor, t: Tensor) -> list[Tensor]:
    """∂f/∂W⁽ⁱ⁾ = (W⁽ⁱ⁾ x − t⁽ⁱ⁾) xᵀ of each sample (A.1): x (N, c), t (n, N, c) → n of (N, c, c)."""
    return [torch.einsum("na,nb->nab", x @ matrix.T - goal, x) for matrix, goal in zip(W, t, strict=True)]


def narrowest_gradients(W: Matrices, x: Tensor, t: Tensor) -> list[Tensor]:
    """∂f̂/∂W⁽ⁱ⁾ of each sample, by (A.4) from those of the widest cell with the same outputs."""
    wide = widest_gradients(products(W), x, t)
    eye = torch.eye(x.shape[1], dtype=x.dtype)
    gradients = []
    for i in range(len(W)):
        before = products(W[:i])[-1] if i else eye
        after, total = eye, torch.zeros_like(wide[i])
        for k in range(i, len(W)):
            after = W[k] @ after if k > i else eye
            total = total + after.T @ wide[k] @ before.T
        gradients.append(total)
    return gradients


def lipschitz(x: Tensor) -> float:
    """L of every block of the widest cell: ‖E x xᵀ‖."""
    return float(torch.linalg.matrix_norm(x.T @ x / len(x), ord=2))


def variance(gradients: Tensor) -> float:
    """E‖g − E g‖² over samples, (N, c, c)."""
    return float((gradients - gradients.mean(dim=0)).square().sum(dim=(1, 2)).mean())


def smoothness_bounds(norms: Sequence[float], L: float, i: int) -> tuple[float, float]:
    """Of theorem 4.3 as printed, and as its proof gives it; for block i, counted from 0."""
    printed, proved = L, 0.0
    for norm in norms[:i]:
        printed *= norm
    for k in range(i, len(norms)):
        product = 1.0
        for j in range(k + 1):
            product *= norms[j] if j != i else 1.0
        proved += L * product**2
    return printed, proved


def variance_bound(norms: Sequence[float], variances: Sequence[float], i: int) -> float:
    """Of theorem 4.4 for block i, from the (σ⁽ᵏ⁾)² of a widest cell."""
    total = 0.0
    for k in range(i, len(norms)):
        product = 1.0
        for j in range(k + 1):
            product *= norms[j] if j != i else 1.0
        total += variances[k] * product**2
    return len(norms) * total
