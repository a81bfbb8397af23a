"""Bounds of λ_min of the infinitely wide kernel (Zhu et al. 2022, arXiv:2209.07238, theorem 1 and table 1).

    λ_min ≥ 2 μ₁(σ_1)² Θ(N/d) Π_{p=3}^{L} (β₃(σ_{p−1}) + α_{p−2})
    λ_min ≤ (N/d) Σ_{l=1}^{L} β₁(σ_{l−1}) Π_{p=2}^{l−1} (β₁(σ_{p−1}) + α_{p−2})
                                          Π_{p=l+1}^{L} (β₂(σ_{p−1}) + α_{p−2})

for N inputs of norm 1 in d dimensions. The constant that Θ hides is unknown: `lower` is what stands beside
it. The theorem asks for N ≥ Ω(d⁴), again without the constant, and says nothing certain of fewer inputs. What
the paper leaves open at the first layer is taken as β₁(σ_0) = 1, because G⁽¹⁾ has ones on its diagonal, and
α_0 = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch

from nas_lightning.metrics.infinite.gaussian import expectation, moments, slope
from nas_lightning.spaces.activations.layers import ACTIVATIONS, SLOPE

_LEAKY = 1 + SLOPE**2
_BETA1 = {"relu": 1.0, "leaky_relu": _LEAKY, "sigmoid": 1 / 8, "tanh": 2.0, "swish": 1.0}
_BETA2 = {"relu": 1.0, "leaky_relu": _LEAKY, "sigmoid": 1 / 8, "tanh": 2.0, "swish": 1.22}
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


def beta3(name: str, L: int) -> float:
    """β₃; of Sigmoid and Tanh f(t) = 2 E σ′(√t z)² at t = 3 (1 + η²)(2 + η²)^{L−3}."""
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
