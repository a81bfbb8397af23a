"""Groups of decisions, for each of which strategies have a matrix of parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nas_lightning.errors import InputError, near_match
from nas_lightning.spaces.operations import NONE


@dataclass(frozen=True)
class Group:
    """Decisions of one kind: one row per decision, one column per candidate.

    Candidates are operations, or the numbers of the nodes that the row's node may read.

    Args:
        rows: edges (source, target) or nodes (node,).
        ops: the candidates of every row.
        draw: how many candidates of a row a sampled path takes.
        own: the candidates of each row, the same number each, if rows have different ones; `ops` is then
            their union.

    >>> Group(((0, 2), (1, 2)), ("skip_connect", "nor_conv_3x3")).shape
    (2, 2)
    >>> Group(((3,),), ("0", "1", "2"), draw=2).on_edges
    False
    >>> ops = ("skip_connect", "nor_conv_1x1", "nor_conv_3x3")
    >>> Group(((0, 1),), ops, own=(("skip_connect", "nor_conv_3x3"),)).where(lambda op: op == "nor_conv_3x3")
    tensor([[False,  True]])
    """

    rows: tuple[tuple[int, ...], ...]
    ops: tuple[str, ...]
    draw: int = 1
    own: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        for ops in {self.ops, *self.own}:
            if len(set(ops)) != len(ops) or not real_ops(ops):
                raise InputError(
                    "Operations must be distinct, with at least one other than none", got=list(ops)
                )
        if self.own and len(self.own) != len(self.rows):
            raise InputError(f"There must be operations for {len(self.rows)} edges", got=len(self.own))
        if len(set(map(len, self.own))) > 1:
            raise InputError("Every edge must have equally many operations", got=list(map(len, self.own)))
        for op in dict.fromkeys(op for ops in self.own for op in ops):
            find_name(op, self.ops)

    @property
    def shape(self) -> tuple[int, int]:
        """(edges, ops)."""
        return len(self.rows), len(self.own[0] if self.own else self.ops)

    @property
    def candidates(self) -> tuple[tuple[str, ...], ...]:
        """The names of each row's candidates, in the order of the columns."""
        return self.own or (self.ops,) * len(self.rows)

    def where(self, holds: Callable[[str], bool]) -> Tensor:
        """Return which candidates fulfill a condition on their name: boolean (edges, ops)."""
        return torch.tensor([[holds(op) for op in names] for names in self.candidates])

    def by_name(self, values: Tensor) -> Tensor:
        """Return values with a column for each of `ops`, 0 if the row has no such candidate."""
        if not self.own:
            return values
        columns = torch.tensor([[self.ops.index(op) for op in names] for names in self.own])
        table = values.new_zeros(len(self.rows), len(self.ops))
        return table.scatter(1, columns.to(values.device), values)

    @property
    def on_edges(self) -> bool:
        """Whether the rows are edges."""
        return all(len(row) == 2 for row in self.rows)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """(source, target) of each row; raises if the rows are nodes."""
        if not self.on_edges:
            raise InputError(
                "This needs a space that chooses operations on edges, such as darts", where="space"
            )
        return tuple((row[0], row[1]) for row in self.rows)

    def column(self, op: str, row: int | None = None) -> int:
        """Return the column of an operation by its name, in one row or in all rows."""
        if row is None and self.own:
            raise InputError("This needs a space whose edges have the same operations", where="space")
        return find_name(op, self.ops if row is None else self.candidates[row])


def find_name(op: str, ops: Sequence[str]) -> int:
    """Return the index of an operation, or raise with the nearest name."""
    if op not in ops:
        raise InputError(f"The operation must be one of the space ({near_match(op, ops)})", got=op)
    return ops.index(op)


def real_ops(ops: Sequence[str]) -> list[str]:
    """Return the operations other than `none`."""
    return [op for op in ops if op != NONE]


def without_none(scores: Tensor, group: Group) -> Tensor:
    """Return scores ≥ 0, (edges, ops), with those of `none` set to 0, so that it is never derived."""
    return scores * group.where(lambda op: op != NONE).to(scores.device)
