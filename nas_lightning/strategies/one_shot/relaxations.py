"""Maps from architecture parameters to weights: pure functions of one group's matrix (edges, ops).

Random numbers are an argument (`noise`, uniform on (0, 1), of the shape of the matrix), so that the same
numbers give the same weights on every process and in every test.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

STRETCHED = (-0.1, 1.1)
"""(a, b), the interval of stretched hard-concrete gates (PR-DARTS, arXiv:2006.16537, section 4.1)."""


def uniform_noise(like: Tensor, generator: torch.Generator) -> Tensor:
    """Draw u ~ U(0, 1), strictly inside, on the CPU, so that every device gets the same numbers."""
    noise = torch.rand(like.shape, generator=generator, dtype=torch.float64).to(like)
    return noise.clamp(torch.finfo(noise.dtype).tiny, 1 - torch.finfo(noise.dtype).eps)


def gumbel(noise: Tensor) -> Tensor:
    """Return G = −ln(−ln u), a standard Gumbel variable."""
    return -torch.log(-torch.log(noise))


def straight_through_gumbel(beta: Tensor, noise: Tensor, tau: float, draw: int = 1) -> Tensor:
    """Return the one-hot arg max of softmax((β + G)/τ) with the gradient of that softmax: (edges, ops).

    The `draw` largest of a row are a sample without replacement (Kool et al. 2019, arXiv:1903.06059, section
    2.3).
    """
    soft = torch.softmax((beta + gumbel(noise)) / tau, dim=-1)
    return one_hot(soft, draw) + soft - soft.detach()


def one_hot(scores: Tensor, count: int = 1) -> Tensor:
    """Return 1 at the `count` largest scores of each row (ties: the first), 0 elsewhere: (edges, ops)."""
    order = scores.argsort(dim=-1, descending=True, stable=True)
    return torch.zeros_like(scores).scatter(-1, order[..., :count], 1.0)


def hard_concrete(
    beta: Tensor, noise: Tensor, tau: float, stretched: tuple[float, float] = STRETCHED
) -> Tensor:
    """Sample stretched and clipped binary concrete gates, independent per operation (PR-DARTS, section 4.1).

    ḡ = Θ((ln u − ln(1 − u) + β)/τ),   g = min(1, max(0, a + (b − a) ḡ))
    """
    concrete = torch.sigmoid((torch.logit(noise) + beta) / tau)
    a, b = stretched
    return (a + (b - a) * concrete).clamp(0.0, 1.0)


def gate_probability(beta: Tensor, tau: float, stretched: tuple[float, float] = STRETCHED) -> Tensor:
    """Return P(g ≠ 0) = Θ(β − τ ln(−a/b)) (PR-DARTS, theorem 3)."""
    a, b = stretched
    return torch.sigmoid(beta - tau * math.log(-a / b))


def largest(values: Tensor, count: int, noise: Tensor) -> Tensor:
    """Return a mask of the `count` largest values of each row, ties broken by the noise: (edges, ops)."""
    by_noise = noise.argsort(dim=-1)
    order = values.gather(-1, by_noise).argsort(dim=-1, descending=True, stable=True)
    chosen = by_noise.gather(-1, order)[..., :count]
    return torch.zeros_like(values, dtype=torch.bool).scatter(-1, chosen, True)


def entropy(weights: Tensor) -> Tensor:
    """Return −Σ_o p_o ln p_o / ln(ops) of each row's shares p: (edges, ops) → (edges,)."""
    total = weights.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    return torch.special.entr(weights / total).sum(dim=-1) / math.log(weights.shape[-1])


def saturated_share(beta: Tensor, tau: float, stretched: tuple[float, float] = STRETCHED) -> Tensor:
    """Return the mean of P(g = 0) + P(g = 1), the share of gates that pass no gradient to their β.

    P(g = 1) = P(ḡ ≥ (1 − a)/(b − a)) = Θ(β − τ ln((1 − a)/(b − 1))).
    """
    a, b = stretched
    at_one = torch.sigmoid(beta - tau * math.log((1 - a) / (b - 1)))
    return (1 - gate_probability(beta, tau, stretched) + at_one).mean()


def linear(start: float, end: float, epoch: int, epochs: int) -> float:
    """Interpolate linearly from `start` in the first epoch to `end` in the last."""
    return start if epochs == 1 else start + (end - start) * epoch / (epochs - 1)
