"""What the parts of a one-shot search pass to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from nas_lightning.objectives.inherited import Batch
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.supernet import Active, Weights
from nas_lightning.strategies.oneshot.relaxations import linear

Groups = Mapping[str, Group]
Arch = Mapping[str, Tensor]
"""The architecture parameters: (edges, ops) per group, and those of connections by names of their own."""
Noise = Mapping[str, Sequence[Tensor]]
"""What a sampler draws for a step, by group."""
SearchBatch = Mapping[str, Batch]  # "train", "valid"


class RelaxedWeights(NamedTuple):
    """What a step's supernet is called with.

    Args:
        weights: of the operations: (edges, ops) per group.
        active: which of them are computed; None: what follows from the weights.
    """

    weights: Weights
    active: Active | None = None


class Learning(NamedTuple):
    """How far the operations' weights still learn what helps: (ops,) each.

    Args:
        sums: of the cosines since they were last judged.
        counts: of those cosines.
        frozen: which operations learn no more.
    """

    sums: Tensor
    counts: Tensor
    frozen: Tensor


class Epoch(NamedTuple):
    """Where a search stands.

    Args:
        number: of the epoch, from 0.
        of: how many there are.

    >>> Epoch(1, of=3).between(10.0, 0.0)
    5.0
    """

    number: int
    of: int

    def between(self, start: float, end: float) -> float:
        """From `start` in the first epoch to `end` in the last, in equal steps."""
        return linear(start, end, self.number, self.of)
