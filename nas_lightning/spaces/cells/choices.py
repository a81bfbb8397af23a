"""Choices in a supernet's nodes: what a node reads and what it computes, weighted by a mixture."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nas_lightning.spaces.cells.graph import Mixture


def weigh_candidates(mixture: Mixture, row: int, candidate: Callable[[int], Tensor]) -> dict[int, Tensor]:
    """w[row, c] · candidate(c) by column c, for the active candidates; nothing is computed of the others."""
    active = [column for column, chosen in enumerate(mixture.active[row]) if chosen]
    if mixture.weights is None:
        return {column: candidate(column) for column in active}
    return {column: mixture.weights[row][column] * candidate(column) for column in active}


def weighted_sum(mixture: Mixture, row: int, candidate: Callable[[int], Tensor], like: Tensor) -> Tensor:
    """Σ_c w[row, c] · candidate(c); without an active candidate zero, in the shape of `like`.

    >>> mixture = Mixture([[torch.tensor(0.5), torch.tensor(0.3)]], [[True, False]])
    >>> weighted_sum(mixture, 0, lambda column: torch.ones(1) + column, torch.ones(1))
    tensor([0.5000])
    """
    first, *others = weigh_candidates(mixture, row, candidate).values() or [torch.zeros_like(like)]
    for term in others:
        first = first + term
    return first
