"""Choices in a supernet's nodes: what a node reads and what it computes, weighted by a plan."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nas_lightning.spaces.graph import Plan


def weighted_sum(plan: Plan, row: int, candidate: Callable[[int], Tensor], like: Tensor) -> Tensor:
    """Σ_c w[row, c] · candidate(c) over the active candidates, of which alone something is computed.

    Without an active candidate it is zero, in the shape of `like`.

    >>> plan = Plan([[torch.tensor(0.5), torch.tensor(0.3)]], [[True, False]])
    >>> weighted_sum(plan, 0, lambda column: torch.ones(1) + column, torch.ones(1))
    tensor([0.5000])
    """
    total: Tensor | None = None
    for column, active in enumerate(plan.active[row]):
        if active:
            term = (
                candidate(column) if plan.weights is None else plan.weights[row][column] * candidate(column)
            )
            total = term if total is None else total + term
    return torch.zeros_like(like) if total is None else total
