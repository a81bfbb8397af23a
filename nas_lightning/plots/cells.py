"""Pictures of cells: nodes from left to right, operations as labels on the edges, colored by kind."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, pairwise

from nas_lightning.genotype import Cell, Edge, Genotype
from nas_lightning.plots.picture import (
    Box,
    Group,
    LegendEntry,
    Line,
    Mark,
    Picture,
    Point,
    Text,
    draw_legend,
    in_grid,
    text_width,
)
from nas_lightning.plots.style import Kind, kind, node_label, op_label
from nas_lightning.spaces.operations import NONE

INPUT_BOX = (56.0, 37.0)
INNER_BOX = (37.0, 37.0)
OUTPUT_BOX = (67.0, 50.0)
BORDER = 11.0
_TITLES = {"cell": "Cell", "reduce": "Reduction cell"}


def draw_cell(
    cell: Cell,
    title: str = "",
    rows: Mapping[tuple[int, int], str] | None = None,
    marked: Collection[Edge] = (),
    labeled: bool = True,
) -> Picture:
    """Draw a cell as a graph from left to right.

    Inputs are labeled as outputs of earlier cells, inner nodes are numbered from 0. Edges with the operation
    `none` are dotted and have no label.

    Args:
        cell: to draw.
        title: of the picture, part of its description.
        rows: {(source, target): row}, names of the rows of edges in the charts of a page.
        marked: edges to emphasize.
        labeled: whether edges show their operations.
    """
    layout = lay_out(cell, labeled)
    marks: list[Mark] = []
    for edge, route in zip(cell.edges, layout.routes, strict=False):
        name = {"data-edge": f"{edge.source} {edge.target} {edge.op}"}
        row = (rows or {}).get((edge.source, edge.target), "")
        classes = {"class": "edge marked" if edge in marked else "edge", **name, "data-row": row}
        drawn = _edge(route, edge.op, bold=edge in marked)
        marks.append(Group(drawn, edge_text(edge, cell.inputs), attributes=classes))
    for route in layout.routes[len(cell.edges) :]:
        marks.append(Group(_edge(route, None), "to the output"))
    marks += [mark for node, center in layout.nodes.items() for mark in _node(cell, node, center)]
    inner = Group(marks, offset=(BORDER, BORDER))
    label = f"{title}: {cell_text(cell)}".removeprefix(": ")
    width, height = layout.width + 2 * BORDER, layout.height + 2 * BORDER
    return Picture(width, height, [inner], label, "cell", {"role": "group"})


def draw_genotype(genotype: Genotype) -> Picture:
    """Draw all cells of a genotype, one below the other, with one legend."""
    titles = {name: cell_title(name) for name, _ in genotype}
    cells = [_titled(titles[name], draw_cell(cell, titles[name])) for name, cell in genotype]
    width = max(cell.width for cell in cells)
    parts = [*cells, draw_legend(legend_entries(kinds_in([genotype])), width)]
    return in_grid({(row, 0): part for row, part in enumerate(parts)})


def draw_topologies(cells: Mapping[str, Cell]) -> Picture:
    """Draw the connections of several cells without operations, two in a row; names are titles."""
    drawn = [_titled(name, draw_cell(cell, name, labeled=False)) for name, cell in cells.items()]
    grid = {divmod(number, 2): picture for number, picture in enumerate(drawn)}
    ops = dict.fromkeys(op for cell in cells.values() for op in sorted({edge.op for edge in cell.edges}))
    kinds = list(dict.fromkeys(map(kind, ops)))
    legend = draw_legend(legend_entries(kinds), max(picture.width for picture in drawn))
    return in_grid({**grid, (len(drawn), 0): legend})


def _titled(title: str, picture: Picture) -> Picture:
    height = 22.0
    heading = Text((0, height / 2), title, 14, align="start", bold=True)
    width = max(picture.width, text_width(title, 14) * 1.1)
    marks: list[Mark] = [heading, Group(picture.marks, offset=(0, height))]
    return Picture(width, picture.height + height, marks, picture.label)


def legend_entries(kinds: Sequence[Kind]) -> list[LegendEntry]:
    """Return the meaning of the colors of operations.

    >>> legend_entries([kind("skip_connect")])
    [('skip connection', 'kind-skip', ())]
    """
    return [(family.name, f"kind-{family.key}", (2, 4) if family.key == NONE else ()) for family in kinds]


def cell_title(name: str) -> str:
    """Return the title of a cell by its name.

    >>> cell_title("normal"), cell_title("reduce")
    ('Normal cell', 'Reduction cell')
    """
    return _TITLES.get(name, f"{name.capitalize()} cell")


def edge_text(edge: Edge, inputs: int) -> str:
    """Describe an edge.

    >>> edge_text(Edge("sep_conv_3x3", 0, 2), 2)
    'sep conv 3×3 from c k−2 to 0'
    """
    return f"{op_label(edge.op)} from {node_label(edge.source, inputs)} to {node_label(edge.target, inputs)}"


def cell_text(cell: Cell) -> str:
    """Describe a cell: the inputs of each node, and the output.

    >>> cell_text(Cell([("skip_connect", 0, 2), ("max_pool_3x3", 1, 2)], 2, [2]))
    'the output takes skip of c k−2 and max pool 3×3 of c k−1.'
    """
    parts = []
    for node in sorted({edge.target for edge in cell.edges}):
        taken = " and ".join(
            f"{op_label(e.op)} of {node_label(e.source, cell.inputs)}" for e in cell.into(node)
        )
        name = "the output" if cell.output == (node,) else f"node {node_label(node, cell.inputs)}"
        parts.append(f"{name} takes {taken}")
    if len(cell.output) > 1:
        gathered = ", ".join(node_label(node, cell.inputs) for node in cell.output)
        parts.append(f"the output concatenates {gathered}")
    return "; ".join(parts) + "."


def kinds_in(genotypes: Sequence[Genotype]) -> list[Kind]:
    """Return the families of operations in genotypes, for a legend."""
    return list(dict.fromkeys(kind(op) for genotype in genotypes for op in sorted(genotype.ops)))


def _edge(route: Route, op: str | None, bold: bool = False) -> list[Mark]:
    """Draw an edge; without an operation it leads to the output."""
    color = "soft" if op is None else f"kind-{kind(op).key}"
    if op == NONE:
        return [Line(route.points, color, 1.6, (1.6, 3.6), curved=True)]
    x, y = route.points[-1]
    marks: list[Mark] = [
        Line(route.points, color, 1.4 if op is None else 4.2 if bold else 2.2, curved=True),
        Line([(x, y), (x - 7, y - 3.5), (x - 7, y + 3.5)], color, filled=True),
    ]
    if route.label is not None and op is not None:
        marks.append(Box(route.label, (label_width(op), LABEL_HEIGHT), 6, "card", color))
        marks.append(Text(route.label, op_label(op)))
    return marks


def _node(cell: Cell, node: int, center: Point) -> list[Mark]:
    x, y = center
    if node == exit_node(cell):
        box = Box(center, OUTPUT_BOX, 8, "node", "ink")
        if len(cell.output) == 1:
            return [box, Text(center, "c", 14, index="k")]
        return [box, Text((x, y - 9), "c", 14, index="k"), Text((x, y + 12), "concat", 11)]
    if node < cell.inputs:
        name, _, index = node_label(node, cell.inputs).partition(" ")
        return [Box(center, INPUT_BOX, 8, "node", "ink"), Text(center, name, 14, index=index)]
    disc = Box(center, INNER_BOX, INNER_BOX[0] / 2, "card", "ink")
    return [disc, Text(center, node_label(node, cell.inputs), bold=True)]


# Layout of a cell


@lru_cache(maxsize=256)
def lay_out(cell: Cell, labeled: bool = True) -> Layout:
    """Lay out the edges of a cell with room for their labels, then those from its output nodes.

    The cache makes the pages of a running search cheap: each page lays out the cells of new epochs only, some
    40 ms each in `darts`.
    """
    boxes: dict[int, Point] = dict.fromkeys(range(cell.inputs), INPUT_BOX)
    boxes.update({edge.target: INNER_BOX for edge in cell.edges})
    wires = [Wire(e.source, e.target, label_width(e.op) if labeled else 0.0) for e in cell.edges]
    boxes[exit_node(cell)] = OUTPUT_BOX
    wires += [Wire(node, exit_node(cell), 0.0) for node in cell.output if node != exit_node(cell)]
    return arrange(boxes, wires)


def exit_node(cell: Cell) -> int:
    """Return the node of the output: the only output node, or a further one that concatenates several."""
    return cell.output[0] if len(cell.output) == 1 else cell.nodes


def label_width(op: str) -> float:
    """Return the width of the label of an operation in pixels."""
    return 0.0 if op == NONE else text_width(op_label(op)) + 17


# The order of nodes and edges within the columns of a layered drawing, with few crossings.
#
# Barycenters in sweeps (Sugiyama et al. 1981), and swaps of neighbors where that removes crossings.

SWEEPS = 24


@dataclass
class Item:
    """A slot of a column: a node, or a wire that passes.

    Args:
        height: of the node or the wire with its label.
        node: its number; None: a wire.
        wire: its index; None: a node.
        labeled: whether the label of the wire is here.
        before: the connected slots in the column to the left.
        after: the connected slots in the column to the right.
        rank: its position in the column.
        y: from above.
    """

    height: float
    node: int | None = None
    wire: int | None = None
    labeled: bool = False
    before: list[Item] = field(default_factory=list)
    after: list[Item] = field(default_factory=list)
    rank: int = 0
    y: float = 0.0


@dataclass
class Column:
    """Slots above each other.

    Args:
        items: from above.
        width: of the widest.
        x: of the center, from the left.
    """

    items: list[Item]
    width: float
    x: float = 0.0


def reduce_crossings(columns: Sequence[Column]) -> None:
    """Order every column: by barycenters of the neighbors, then by swaps while they remove crossings."""
    for column in columns:
        _rank(column)
    best = (_all_crossings(columns), [list(column.items) for column in columns])
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else columns[::-1]:
            column.items.sort(key=lambda item: _barycenter(item, forward))
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


def _barycenter(item: Item, forward: bool) -> float:
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
    """Count the crossings between the edges of two neighbors in this order."""
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


# Layout: layers from left to right, in pixels.
#
# The layer of a node is the longest path to it. Between two layers is a column of labels. An edge has a slot
# in every column that it crosses, and its label is in one of them; slots of a column never overlap, so labels
# do not either, and no edge passes through a node or the label of another edge. After the order within
# columns is fixed, isotonic regression under that order makes edges straight.

LABEL_HEIGHT = 23.0
WIRE_HEIGHT = 6.0
MARGIN = 10.0
RELAXATIONS = 80


@dataclass(frozen=True)
class Wire:
    """An edge to route.

    Args:
        source: its first node.
        target: its last node.
        label_width: of the box on the edge; 0: no label.
    """

    source: int
    target: int
    label_width: float


@dataclass(frozen=True)
class Route:
    """The route of an edge.

    Args:
        points: on the edge, which is level at each of them.
        label: the center of its label, if any.
    """

    points: tuple[Point, ...]
    label: Point | None


@dataclass(frozen=True)
class Layout:
    """Positions of all nodes and edges.

    Args:
        width: of the picture.
        height: of the picture.
        nodes: their centers.
        routes: of the wires, in the given order.

    >>> layout = arrange({0: (50, 30), 1: (50, 30)}, [Wire(0, 1, 40)])
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
    for item in everything:
        item.y -= low
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
    """Put the nodes of layer l into column 2l and labels into columns 2l + 1; omit columns without labels."""
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
                labeled = label_at.get(index) == key
                chain.append(Item(LABEL_HEIGHT if labeled else WIRE_HEIGHT, wire=index, labeled=labeled))
                columns[key].items.append(chain[-1])
        chain.append(items[wire.target])
        for left, right in pairwise(chain):
            left.after.append(right)
            right.before.append(left)
        chains.append(chain)
    return [columns[key] for key in sorted(columns)], chains


def _label_columns(wires: Sequence[Wire], layers: Mapping[int, int]) -> dict[int, int]:
    """Choose the column of each label: the one with the fewest, short edges first as they have no choice."""
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
    """Return the weight of a straight piece of an edge: long edges more (Gansner et al. 1993, section 4)."""
    return (1.0, 2.0, 6.0)[(a.node is None) + (b.node is None)]


def _offsets(items: Sequence[Item]) -> list[float]:
    offsets = [0.0]
    for above, below in pairwise(items):
        apart = 2 * MARGIN if above.wire is None and below.wire is None else MARGIN
        offsets.append(offsets[-1] + (above.height + below.height) / 2 + apart)
    return offsets


def isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the non-decreasing sequence nearest to `values` in weighted least squares, by pooling violators.

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
    """Set the centers of the columns; the gap between two grows with the steepest edge that crosses it."""
    x = 0.0
    for index, column in enumerate(columns):
        if index:
            steps = [abs(a.y - b.y) for a in columns[index - 1].items for b in a.after]
            x += min(28 + 0.16 * max(steps), 65)
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
        if slot.labeled:
            label = (column.x, slot.y)
    points.append(_port(target, chain[-2], target.before, at, boxes, -1))
    return Route(tuple(points), label)


def _port(
    node: Item,
    toward: Item,
    neighbors: Sequence[Item],
    at: Mapping[int, Column],
    boxes: Mapping[int, Point],
    side: int,
) -> Point:
    """Return where an edge meets a node: the edges of a side share three fifths of its height, in order."""
    assert node.node is not None
    width, height = boxes[node.node]
    by_height = sorted(neighbors, key=lambda item: item.y)
    place = next(i for i, item in enumerate(by_height) if item is toward)
    step = min(0.6 * height / max(len(by_height) - 1, 1), 11)
    rise = step * (place - (len(by_height) - 1) / 2)
    reach = width / 2 if width > height else math.sqrt(width**2 / 4 - rise**2)  # a box or a disc
    return at[id(node)].x + side * reach, node.y + rise
