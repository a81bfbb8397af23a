"""Where the nodes, labels and edges of a cell go: layers from left to right, in inches, y upwards.

A node's layer is the longest path that leads to it. Between two layers stands a column of labels. An edge
holds a slot in every column it crosses and its label is one of them; slots of a column never overlap, so
neither do labels, and no edge passes through a node or another edge's label. The order within columns has few
crossings (`ordering`); heights then make edges straight, by isotonic regression under the order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nas_lightning.plots.ordering import Column, Item, reduce_crossings

Point = tuple[float, float]

LABEL_HEIGHT = 0.21
MARGIN = 0.09
RELAXATIONS = 80


@dataclass(frozen=True)
class Wire:
    """An edge to route.

    Args:
        source: the node that it leaves.
        target: the node that it enters.
        label_width: of the box on it; 0: it has no label.
    """

    source: int
    target: int
    label_width: float


@dataclass(frozen=True)
class Route:
    """Where an edge runs.

    Args:
        points: that it passes; it is level at each of them.
        label: the centre of its label; None: it has none.
    """

    points: tuple[Point, ...]
    label: Point | None


@dataclass(frozen=True)
class Layout:
    """Where all nodes and edges go.

    Args:
        width: of the picture.
        height: of the picture.
        nodes: their centres.
        routes: of the wires, in the order in which they were given.

    >>> layout = arrange({0: (0.5, 0.3), 1: (0.5, 0.3)}, [Wire(0, 1, 0.4)])
    >>> layout.nodes[0][0] < layout.routes[0].label[0] < layout.nodes[1][0]
    True
    """

    width: float
    height: float
    nodes: Mapping[int, Point]
    routes: tuple[Route, ...]


def arrange(boxes: Mapping[int, Point], wires: Sequence[Wire]) -> Layout:
    """Place nodes with boxes of (width, height) and route the wires between them."""
    layers = _layers(boxes, wires)
    columns, chains = _columns(boxes, wires, layers)
    reduce_crossings(columns)
    _heights(columns)
    width = _widths(columns)
    everything = [item for column in columns for item in column.items]
    low = min(item.y - item.height / 2 for item in everything)
    high = max(item.y + item.height / 2 for item in everything)
    for item in everything:  # y grew downwards, with the order; now upwards from 0
        item.y = high - item.y
    at = {id(item): column for column in columns for item in column.items}
    nodes = {item.node: (at[id(item)].x, item.y) for item in everything if item.node is not None}
    routes = tuple(_route(chain, at, boxes) for chain in chains)
    return Layout(width, high - low, nodes, routes)


def _layers(boxes: Mapping[int, Point], wires: Sequence[Wire]) -> dict[int, int]:
    layers: dict[int, int] = {}
    for node in sorted(boxes):  # edges lead from lower numbers to higher ones
        layers[node] = max((1 + layers[wire.source] for wire in wires if wire.target == node), default=0)
    return layers


def _columns(
    boxes: Mapping[int, Point], wires: Sequence[Wire], layers: Mapping[int, int]
) -> tuple[list[Column], list[list[Item]]]:
    """Columns 2l hold the nodes of layer l, columns 2l + 1 labels; those without a label are left out."""
    columns = {2 * layer: Column([], 0.0) for layer in layers.values()}
    items = {}
    for node, (width, height) in sorted(boxes.items()):
        items[node] = Item(height, node=node)
        column = columns[2 * layers[node]]
        column.items.append(items[node])
        column.width = max(column.width, width)
    label_at = _label_columns(wires, layers)
    for index, wire in enumerate(wires):
        if wire.label_width:
            column = columns.setdefault(label_at[index], Column([], 0.0))
            column.width = max(column.width, wire.label_width)
    chains = []
    for index, wire in enumerate(wires):
        chain = [items[wire.source]]
        for key in sorted(columns):
            if 2 * layers[wire.source] < key < 2 * layers[wire.target]:
                labelled = label_at.get(index) == key
                chain.append(Item(LABEL_HEIGHT if labelled else 0.06, wire=index, labelled=labelled))
                columns[key].items.append(chain[-1])
        chain.append(items[wire.target])
        for left, right in pairwise(chain):
            left.after.append(right)
            right.before.append(left)
        chains.append(chain)
    return [columns[key] for key in sorted(columns)], chains


def _label_columns(wires: Sequence[Wire], layers: Mapping[int, int]) -> dict[int, int]:
    """The column of each label: where fewest are, short edges first as they have no choice."""
    chosen: dict[int, int] = {}
    span = {i: layers[wire.target] - layers[wire.source] for i, wire in enumerate(wires) if wire.label_width}
    for index in sorted(span, key=lambda i: (span[i], i)):
        first = 2 * layers[wires[index].source] + 1
        taken = list(chosen.values())
        chosen[index] = min(range(first, first + 2 * span[index], 2), key=taken.count)
    return chosen


def _heights(columns: Sequence[Column]) -> None:
    for column in columns:
        offsets = _offsets(column.items)
        for item, offset in zip(column.items, offsets, strict=True):
            item.y = offset - offsets[-1] / 2
    for sweep in range(RELAXATIONS):
        for column in columns if sweep % 2 else columns[::-1]:
            targets, weights = [], []
            for item in column.items:
                pulls = [(_pull(item, other), other.y) for other in (*item.before, *item.after)]
                weights.append(sum(weight for weight, _ in pulls) or 1.0)
                targets.append(sum(w * y for w, y in pulls) / weights[-1] if pulls else item.y)
            offsets = _offsets(column.items)
            free = isotonic([t - o for t, o in zip(targets, offsets, strict=True)], weights)
            for item, level, offset in zip(column.items, free, offsets, strict=True):
                item.y = level + offset


def _pull(a: Item, b: Item) -> float:
    """How much a piece of an edge wants to be level: long edges more (Gansner et al. 1993, section 4)."""
    return (1.0, 2.0, 6.0)[(a.node is None) + (b.node is None)]


def _offsets(items: Sequence[Item]) -> list[float]:
    offsets = [0.0]
    for above, below in pairwise(items):
        apart = 2 * MARGIN if above.wire is None and below.wire is None else MARGIN
        offsets.append(offsets[-1] + (above.height + below.height) / 2 + apart)
    return offsets


def isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to `values` in weighted least squares, by pooling violators.

    >>> isotonic([1.0, 3.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0])
    [1.0, 2.5, 2.5, 4.0]
    """
    pools: list[tuple[float, float, int]] = []  # (mean, weight, members)
    for value, weight in zip(values, weights, strict=True):
        pool = (value, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, mass, members = pools.pop()
            total = mass + pool[1]
            pool = ((mean * mass + pool[0] * pool[1]) / total, total, members + pool[2])
        pools.append(pool)
    return [mean for mean, _, members in pools for _ in range(members)]


def _widths(columns: Sequence[Column]) -> float:
    """Set the columns' centres; the gap between two grows with the steepest edge that crosses it."""
    x = 0.0
    for index, column in enumerate(columns):
        if index:
            steps = [abs(a.y - b.y) for a in columns[index - 1].items for b in a.after]
            x += min(0.26 + 0.16 * max(steps), 0.6)
        column.x = x + column.width / 2
        x += column.width
    return x


def _route(chain: Sequence[Item], at: Mapping[int, Column], boxes: Mapping[int, Point]) -> Route:
    source, *slots, target = chain
    points = [_port(source, chain[1], source.after, at, boxes, +1)]
    label = None
    for slot in slots:
        column = at[id(slot)]
        points += [(column.x - column.width / 2, slot.y), (column.x + column.width / 2, slot.y)]
        if slot.labelled:
            label = (column.x, slot.y)
    points.append(_port(target, chain[-2], target.before, at, boxes, -1))
    return Route(tuple(points), label)


def _port(
    node: Item,
    towards: Item,
    neighbours: Sequence[Item],
    at: Mapping[int, Column],
    boxes: Mapping[int, Point],
    side: int,
) -> Point:
    """Where an edge touches a node: the edges of a side share three fifths of its height, in their order."""
    assert node.node is not None
    width, height = boxes[node.node]
    by_height = sorted(neighbours, key=lambda item: -item.y)
    place = next(i for i, item in enumerate(by_height) if item is towards)
    step = min(0.6 * height / max(len(by_height) - 1, 1), 0.1)
    rise = step * ((len(by_height) - 1) / 2 - place)
    reach = width / 2 if width > height else math.sqrt(width**2 / 4 - rise**2)  # a box or a disc
    return at[id(node)].x + side * reach, node.y + rise
