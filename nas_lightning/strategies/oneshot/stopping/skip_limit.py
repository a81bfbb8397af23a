"""DARTS+' early stopping by the number of skips (Liang et al. 2019, arXiv:1909.06035, criterion 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.ops import SKIP
from nas_lightning.strategies.oneshot.parts import Parts
from nas_lightning.strategies.oneshot.rules import Stopping
from nas_lightning.strategies.oneshot.values import Groups


@checked
@dataclass(frozen=True)
class SkipLimit(Stopping):
    """The search ends when its first cell, the normal one of two, has too many skips.

    Args:
        limit: skips from which the search ends; the paper's two are of a cell with eight operations.

    >>> SkipLimit(2).stops({"skips": 1}), SkipLimit(2).stops({"skips": 2})
    (False, True)
    """

    limit: PositiveInt = 2

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if not any(SKIP in group.ops for group in space.groups.values()):
            expected = "expected a space that chooses skips, whose number ends the search"
            raise InputError(expected, got=space.name, where="space")

    def remember(
        self, memory: Mapping[str, Any], genotype: Genotype, scores: Mapping[str, Tensor], groups: Groups
    ) -> dict[str, Any]:
        _, cell = next(iter(genotype))
        return {"skips": sum(edge.op == SKIP for edge in cell.edges)}

    def stops(self, memory: Mapping[str, Any]) -> bool:
        return memory.get("skips", 0) >= self.limit
