"""The order of nodes and edges within the columns of a layered drawing, with few crossings.

Barycentres in sweeps (Sugiyama et al. 1981), and swaps of neighbours where that removes crossings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

SWEEPS = 24


@dataclass
class Item:
    """A place in a column: a node, or where a wire passes.

    Args:
        height: of what stands there.
        node: its number; None: a wire passes.
        wire: its index; None: a node stands there.
        labelled: whether the wire's label is here.
        before: the places in the column to the left that are joined to this one.
        after: those to the right.
        rank: its place in the order of the column.
        y: its height in the picture.
    """

    height: float
    node: int | None = None
    wire: int | None = None
    labelled: bool = False
    before: list[Item] = field(default_factory=list)
    after: list[Item] = field(default_factory=list)
    rank: int = 0
    y: float = 0.0


@dataclass
class Column:
    """Places above each other.

    Args:
        items: in their order.
        width: of the widest.
        x: of the centre, in the picture.
    """

    items: list[Item]
    width: float
    x: float = 0.0


def reduce_crossings(columns: Sequence[Column]) -> None:
    """Order every column: barycentres of the neighbours, then swaps for as long as they remove crossings."""
    for column in columns:
        _rank(column)
    best = (_all_crossings(columns), [list(column.items) for column in columns])
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else columns[::-1]:
            column.items.sort(key=lambda item: _barycentre(item, forward))
            _rank(column)
        if sweep % 6 == 5:
            _swap(columns)
        crossings = _all_crossings(columns)
        if crossings < best[0]:
            best = (crossings, [list(column.items) for column in columns])
    for column, items in zip(columns, best[1], strict=True):
        column.items = items
        _rank(column)


def _rank(column: Column) -> None:
    for rank, item in enumerate(column.items):
        item.rank = rank


def _barycentre(item: Item, forward: bool) -> float:
    near = item.before if forward else item.after
    return sum(other.rank for other in near) / len(near) if near else item.rank


def _swap(columns: Sequence[Column]) -> None:
    improved = True
    while improved:
        improved = False
        for column in columns:
            for i in range(len(column.items) - 1):
                a, b = column.items[i : i + 2]
                if _crossings_of(b, a) < _crossings_of(a, b):
                    column.items[i : i + 2] = [b, a]
                    a.rank, b.rank = b.rank, a.rank
                    improved = True


def _crossings_of(above: Item, below: Item) -> int:
    """Crossings between the edges of two neighbours, when one is above the other."""
    return sum(
        a.rank > b.rank
        for side_a, side_b in ((above.before, below.before), (above.after, below.after))
        for a in side_a
        for b in side_b
    )


def _all_crossings(columns: Sequence[Column]) -> int:
    total = 0
    for column in columns:
        for above, below in combinations(column.items, 2):
            total += sum(a.rank > b.rank for a in above.after for b in below.after)
    return total
