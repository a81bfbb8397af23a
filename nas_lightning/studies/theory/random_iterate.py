"""Theorem 4.2 of Shu's thesis (2022; Ghadimi & Lan 2013), where its constants are known.

For an L-smooth F ≥ F*, gradients of variance σ² and constant steps η ≤ 1/L, a random one of N iterates has

    E‖∇F(w_R)‖² ≤ 2 (F(w₁) − F*) / (Nη) + L σ² η

F(w) = 1/n Σ_i ½ (s(x_iᵀ w) − y_i)² with the logistic s and y in [0, 1] is not convex, F* ≥ 0, and
|∂²/∂z² ½ (s(z) − y)²| ≤ 1/16 + 1/(6√3), so that L = (1/16 + 1/(6√3)) λ_max(XᵀX/n).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

CURVATURE = 1 / 16 + 1 / (6 * math.sqrt(3))


class Descent(NamedTuple):
    """What many runs of stochastic gradient descent came to.

    Args:
        found: ‖∇F(w_R)‖² in the mean over a run's iterates, (runs,).
        bound: the theorem's.
    """

    found: Tensor
    bound: float


def smoothness(x: Tensor) -> float:
    """L, for inputs of (n, d)."""
    return CURVATURE * float(torch.linalg.eigvalsh(x.T @ x / len(x))[-1])


def gradients(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """∇f_i(w) = (s − y_i) s (1 − s) x_i of every image: (runs, d) → (runs, n, d)."""
    s = torch.sigmoid(w @ x.T)
    return ((s - y) * s * (1 - s))[..., None] * x


def descend(
    x: Tensor, y: Tensor, *, share: float, steps: int, runs: int, generator: torch.Generator
) -> Descent:
    """Steps of η = share / L on one image each, from w = 0, with σ² the largest that was met."""
    smooth = smoothness(x)
    eta, w, norms, variance = share / smooth, torch.zeros(runs, x.shape[1], dtype=x.dtype), [], 0.0
    start = float(0.5 * (0.5 - y).square().mean())
    for _ in range(steps):
        each = gradients(w, x, y)
        mean = each.mean(dim=1)
        norms.append(mean.square().sum(dim=1))
        variance = max(variance, float((each - mean[:, None]).square().sum(dim=2).mean(dim=1).max()))
        drawn = torch.randint(len(x), (runs,), generator=generator)
        w = w - eta * each[torch.arange(runs), drawn]
    return Descent(torch.stack(norms).mean(dim=0), 2 * start / (steps * eta) + smooth * variance * eta)
