"""Rules that stop a search early (DARTS+, Liang et al. 2019, arXiv:1909.06035)."""

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
from nas_lightning.strategies.one_shot.parts import EarlyStop, Groups, Parts
from nas_lightning.validation import PositiveInt, checked

# Criterion 1: the number of skips.


@checked
@dataclass(frozen=True)
class SkipLimit(EarlyStop):
    """End the search when its first cell (the normal cell of two) has too many skips.

    Args:
        limit: number of skips that ends the search; the paper's 2 is for a cell with eight operations.

    >>> SkipLimit(2).stops({"skips": 1}), SkipLimit(2).stops({"skips": 2})
    (False, True)
    """

    limit: PositiveInt = 2

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if not any(SKIP in group.ops for group in space.groups.values()):
            expected = "This early stop needs a space with skip connections, whose number ends the search"
            raise InputError(expected, got=space.name, where="space")

    def update(
        self, state: Mapping[str, Any], genotype: Genotype, scores: Mapping[str, Tensor], groups: Groups
    ) -> dict[str, Any]:
        _, cell = next(iter(genotype))
        return {"skips": sum(edge.op == SKIP for edge in cell.edges)}

    def stops(self, state: Mapping[str, Any]) -> bool:
        return state.get("skips", 0) >= self.limit


# Criterion 2: a stable order of the operations with weights.


@checked
@dataclass(frozen=True)
class StableRanking(EarlyStop):
    """End the search when the order of the operations with weights on each edge has stayed the same.

    Args:
        epochs: number of epochs with the same order that ends the search.

    >>> import torch
    >>> group = Group(((0, 1),), ("nor_conv_1x1", "nor_conv_3x3"))
    >>> rule, scores, state = StableRanking(epochs=2), {"cell": torch.tensor([[0.1, 0.9]])}, {}
    >>> for _ in range(2):
    ...     state = rule.update(state, None, scores, {"cell": group})
    >>> rule.stops(state)
    True
    """

    epochs: PositiveInt = 10

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if not any(bool((learned(group).sum(dim=1) > 1).any()) for group in space.groups.values()):
            expected = "This early stop needs a space with two operations with weights on an edge"
            raise InputError(expected, got=space.name, where="space")

    def update(
        self, state: Mapping[str, Any], genotype: Genotype, scores: Mapping[str, Tensor], groups: Groups
    ) -> dict[str, Any]:
        order = {name: ranking(matrix, groups[name]) for name, matrix in scores.items()}
        same = state.get("order") == order
        return {"order": order, "epochs": state["epochs"] + 1 if same else 1}

    def stops(self, state: Mapping[str, Any]) -> bool:
        return state.get("epochs", 0) >= self.epochs


def ranking(scores: Tensor, group: Group) -> list[list[int]]:
    """Return the columns of the operations with weights in each row, the largest score first."""
    rows = zip(scores, learned(group).to(scores.device), strict=True)
    return [row[columns].argsort(descending=True, stable=True).tolist() for row, columns in rows]


def learned(group: Group) -> Tensor:
    """Return a mask of the operations with weights: boolean (edges, ops)."""
    return group.where(lambda op: is_operation(op) and has_parameters(op))
