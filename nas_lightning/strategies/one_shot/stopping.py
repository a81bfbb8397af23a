"""Rules that stop a search early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.operations import SKIP, has_parameters, is_operation
from nas_lightning.strategies.one_shot.parts import Groups, Parts, Stopping
from nas_lightning.validation import PositiveInt, checked

# DARTS+' early stopping by the number of skips (Liang et al. 2019, arXiv:1909.06035, criterion 1).


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


# DARTS+' early stopping by a stable order (Liang et al. 2019, arXiv:1909.06035, criterion 2).


@checked
@dataclass(frozen=True)
class StableRanking(Stopping):
    """The search ends when the order of each edge's learned operations has long been the same.

    Args:
        epochs: for how many.

    >>> import torch
    >>> group = Group(((0, 1),), ("nor_conv_1x1", "nor_conv_3x3"))
    >>> rule, scores, memory = StableRanking(epochs=2), {"cell": torch.tensor([[0.1, 0.9]])}, {}
    >>> for _ in range(2):
    ...     memory = rule.remember(memory, None, scores, {"cell": group})
    >>> rule.stops(memory)
    True
    """

    epochs: PositiveInt = 10

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if not any(bool((learned(group).sum(dim=1) > 1).any()) for group in space.groups.values()):
            expected = "expected a space with two learned operations on an edge, whose order may change"
            raise InputError(expected, got=space.name, where="space")

    def remember(
        self, memory: Mapping[str, Any], genotype: Genotype, scores: Mapping[str, Tensor], groups: Groups
    ) -> dict[str, Any]:
        order = {name: ranking(matrix, groups[name]) for name, matrix in scores.items()}
        same = memory.get("order") == order
        return {"order": order, "epochs": memory["epochs"] + 1 if same else 1}

    def stops(self, memory: Mapping[str, Any]) -> bool:
        return memory.get("epochs", 0) >= self.epochs


def ranking(scores: Tensor, group: Group) -> list[list[int]]:
    """The learned operations of each row, the largest score first."""
    rows = zip(scores, learned(group).to(scores.device), strict=True)
    return [row[columns].argsort(descending=True, stable=True).tolist() for row, columns in rows]


def learned(group: Group) -> Tensor:
    """Where the operations with weights stand: boolean (edges, ops)."""
    return group.where(lambda op: is_operation(op) and has_parameters(op))
