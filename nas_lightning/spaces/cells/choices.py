"""Choices in a supernet's nodes: what a node reads and what it computes, weighted by a plan."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nas_lightning.spaces.cells.graph import Plan


def weighted(plan: Plan, row: int, candidate: Callable[[int], Tensor]) -> dict[int, Tensor]:
    """w[row, c] · candidate(c) by column c, for the active candidates; nothing is computed of the others."""
    active = [column for column, chosen in enumerate(plan.active[row]) if chosen]
    if plan.weights is None:
        return {column: candidate(column) for column in active}
    return {column: plan.weights[row][column] * candidate(column) for column in active}


def weighted_sum(plan: Plan, row: int, candidate: Callable[[int], Tensor], like: Tensor) -> Tensor:
    """Σ_c w[row, c] · candidate(c); without an active candidate zero, in the shape of `like`.

    >>> plan = Plan([[torch.tensor(0.5), torch.tensor(0.3)]], [[True, False]])
    >>> weighted_sum(plan, 0, lambda column: torch.ones(1) + column, torch.ones(1))
    tensor([0.5000])
    """
    first, *others = weighted(plan, row, candidate).values() or [torch.zeros_like(like)]
    for term in others:
        first = first + term
    return first
