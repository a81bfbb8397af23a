"""HNAS' objective: a training-free metric and the kernel's condition number in one number (thesis, eq. 7.7).

    κ(A)/M(A) + μ F(M²(A) − ν),    F(x) = |x|^power

is minimised over architectures A; M is any metric for which larger is better, and positive. It is the bound
of corollary 7.2 on the generalisation error: the first term falls as M grows, the second punishes what is
away from √ν, where training and generalisation are in balance. The thesis has F(x) = |x|^{2t}, so `power` = 2
for t = 1; the authors' code has |x|.
"""

from __future__ import annotations

import torch
from torch import Tensor

EXPONENTS = (-1.0, 4.0)
"""c of μ = 10^c, in the unit in which both terms have the same median. For the kernel's trace, whose square
is a thousand times κ/M, it is about what the public code (shuyao95/HNAS) has without a unit, c ∈ [−4, 1]."""


def trade_off(
    kappa: Tensor, metric: Tensor, mu: Tensor | float, nu: Tensor | float, power: float = 2.0
) -> Tensor:
    """κ/M + μ |M² − ν|^power, smaller is better; +∞ where M is not a positive number or κ is infinite.

    All arguments broadcast, so a grid of (μ, ν) is one call: κ and M of shape (n,), μ and ν of shape (g, 1).
    With κ = 1 the condition number is left out, with μ = 0 the trade-off.

    >>> kappa, metric = torch.tensor([10.0, 12.0, torch.inf]), torch.tensor([2.0, 4.0, -torch.inf])
    >>> trade_off(kappa, metric, mu=0.5, nu=5.0)
    tensor([ 5.5000, 63.5000,     inf])
    """
    value = kappa / metric + mu * (metric.square() - nu).abs() ** power
    return torch.where((metric > 0) & metric.isfinite() & kappa.isfinite(), value, torch.inf)
