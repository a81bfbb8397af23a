"""Theorems 1 to 3 of Zhu et al. 2022 (arXiv:2209.07238): λ_min of kernels, and what follows for test errors.

Theorem 1, of the infinitely wide kernel, with the constants of table 1:

    λ_min ≥ 2 μ₁(σ_1)² Θ(N/d) Π_{p=3}^{L} (β₃(σ_{p−1}) + α_{p−2})
    λ_min ≤ (N/d) Σ_{l=1}^{L} β₁(σ_{l−1}) Π_{p=2}^{l−1} (β₁(σ_{p−1}) + α_{p−2})
                                          Π_{p=l+1}^{L} (β₂(σ_{p−1}) + α_{p−2})

for N inputs of norm 1 in d dimensions. The constant that Θ hides is unknown: `lower` is what stands beside
it. The theorem asks for N ≥ Ω(d⁴), again without the constant, and says nothing certain of fewer inputs. What
the paper leaves open at the first layer is taken as β₁(σ_0) = 1, because G⁽¹⁾ has ones on its diagonal, and
α_0 = 0.

Theorem 2, of J Jᵀ at finite width, with a constant on the left and one for each term on the right:

    λ_min(J Jᵀ) ≳ (N/d) Π_{i=2}^{L−1} (β₃(σ_i) + α_{i−1})
    λ_min(J Jᵀ) ≲ (N/d) Σ_{k=0}^{L−1} Π_{i=k+2}^{L−1} (β₂(σ_i) + α_{i−1})

Theorem 3, for the descent of algorithm 1 with γ = κ C₁ √(yᵀ K⁻¹ y) / (m √N), up to constants and logarithms:

    E[0-1 error] ≲ C₂ √(yᵀy / (λ_min(K) N)) + √(ln(1/δ) / N)
    C₁ = √L (3 Lip + 1)^{1−L},   C₂ = √L (3 Lip + 1)^{L−1}
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, prod, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from nas_lightning.metrics.infinite.gaussian import expectation, moments, slope
from nas_lightning.spaces.activations.layers import ACTIVATIONS, SLOPE

_LEAKY = 1 + SLOPE**2
_BETA1 = {"relu": 1.0, "leaky_relu": _LEAKY, "sigmoid": 1 / 8, "tanh": 2.0, "swish": 1.0}
_BETA2 = {"relu": 1.0, "leaky_relu": _LEAKY, "sigmoid": 1 / 8, "tanh": 2.0, "swish": 1.22}
_LIPSCHITZ = {"relu": 1.0, "leaky_relu": 1.0, "sigmoid": 1 / 4, "tanh": 1.0, "swish": 1.0998393194}
_BETA3 = {"relu": 1.0, "leaky_relu": _LEAKY, "swish": 1 / 2}


class Bounds(NamedTuple):
    """Of λ_min."""

    lower: float
    """Without the unknown constant of Θ."""
    upper: float  # at most so much


def bounds(activations: Sequence[str], skips: Sequence[bool], inputs: int, dimension: int) -> Bounds:
    """Theorem 1 for σ_1, …, σ_{L−1} and α_1, …, α_{L−2}.

    >>> bounds(["relu", "relu"], [True], inputs=64, dimension=64)  # 2 · ¼ · 2;  1·(1+0)(1+1) + 1·2 + 1·(1+0)
    Bounds(lower=1.0, upper=5.0)
    """
    L = len(activations) + 1
    sigma, alpha = dict(enumerate(activations, 1)), {0: False, **dict(enumerate(skips, 1))}

    def grown(l: int) -> float:  # noqa: E741, as in the paper
        first = _BETA1[sigma[l - 1]] if l > 1 else 1.0
        below = prod(_BETA1[sigma[p - 1]] + alpha[p - 2] for p in range(2, l))
        return first * below * prod(_BETA2[sigma[p - 1]] + alpha[p - 2] for p in range(l + 1, L + 1))

    lower = 2 * first_coefficient(sigma[1]) ** 2
    lower *= prod(beta3(sigma[p - 1], L) + alpha[p - 2] for p in range(3, L + 1))
    ratio = inputs / dimension
    return Bounds(lower * ratio, ratio * sum(grown(l) for l in range(1, L + 1)))  # noqa: E741


def finite_bounds(activations: Sequence[str], skips: Sequence[bool], inputs: int, dimension: int) -> Bounds:
    """Theorem 2, both sides without their constants.

    >>> finite_bounds(["relu", "relu"], [True], inputs=64, dimension=64)  # 2;  2 (k = 0) + 1 + 1
    Bounds(lower=2.0, upper=4.0)
    """
    L = len(activations) + 1
    pairs = list(zip(activations[1:], skips, strict=True))  # of the layers i = 2, …, L − 1
    ratio = inputs / dimension
    upper = sum(prod(_BETA2[name] + skip for name, skip in pairs[k:]) for k in range(L))
    return Bounds(ratio * prod(beta3(name, L) + skip for name, skip in pairs), ratio * upper)


def depth_factor(activations: Sequence[str]) -> tuple[float, float]:
    """C₁ and C₂ of theorem 3.

    >>> depth_factor(["relu", "tanh"])  # √3 / 16 and 16 √3
    (0.10825317547305482, 27.712812921102035)
    """
    L = len(activations) + 1
    growth = (3 * max(_LIPSCHITZ[name] for name in activations) + 1) ** (L - 1)
    return sqrt(L) / growth, sqrt(L) * growth


def error_bound(activations: Sequence[str], lambda_min: float, y: Tensor, delta: float) -> float:
    """The right side of theorem 3 for labels y, (N,), its constants and logarithms taken as 1."""
    N = len(y)
    first = depth_factor(activations)[1] * sqrt(float(y @ y) / (lambda_min * N))
    return first + sqrt(log(1 / delta) / N)


def step_size(activations: Sequence[str], kernel: Tensor, y: Tensor, width: int) -> float:
    """γ of theorem 3 with κ = 1."""
    energy = float(y @ torch.linalg.solve(kernel, y))
    return depth_factor(activations)[0] * sqrt(energy) / (width * sqrt(len(y)))


def beta3(name: str, L: int) -> float:
    """β₃; of Sigmoid and Tanh f(t) = 2 E σ′(√t z)² at t = 3 (1 + η²)(2 + η²)^{L−3}.

    >>> round(beta3("sigmoid", 3), 7), round(beta3("tanh", 3), 7)
    (0.0645886, 0.5840078)
    """
    if name in _BETA3:
        return _BETA3[name]
    t = 3 * _LEAKY * (1 + _LEAKY) ** (L - 3)
    return 2 * float(moments(name, torch.tensor([[t]], dtype=torch.float64)).slopes)


def first_coefficient(name: str) -> float:
    """μ₁ = E[σ(z) z], the first Hermite coefficient, which is E σ′(z)."""
    if name in ("relu", "leaky_relu"):
        return (1 + (SLOPE if name == "leaky_relu" else 0.0)) / 2
    sigma = ACTIVATIONS[name]
    return float(expectation(lambda x: slope(sigma, x), torch.ones(1, 1, dtype=torch.float64))[1])
