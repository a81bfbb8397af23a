"""Pictures of cells: layout and drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path
from matplotlib.textpath import TextToPath

from nas_lightning.genotype import Cell, Genotype
from nas_lightning.plots.style import GRAY, INK, Kind, kind, node_name, op_label
from nas_lightning.spaces.operations import NONE

# The order of nodes and edges within the columns of a layered drawing, with few crossings.
#
# Barycenters in sweeps (Sugiyama et al. 1981), and swaps of neighbors where that removes crossings.

SWEEPS = 24


@dataclass
class Item:
    """A place in a column: a node, or where a wire passes.

    Args:
        height: of what stands there.
        node: its number; None: a wire passes.
        wire: its index; None: a node stands there.
        labeled: whether the wire's label is here.
        before: the places in the column to the left that are joined to this one.
        after: those to the right.
        rank: its place in the order of the column.
        y: its height in the picture.
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
    """Places above each other.

    Args:
        items: in their order.
        width: of the widest.
        x: of the center, in the picture.
    """

    items: list[Item]
    width: float
    x: float = 0.0


def reduce_crossings(columns: Sequence[Column]) -> None:
    """Order every column: barycenters of the neighbors, then swaps for as long as they remove crossings."""
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
    """Crossings between the edges of two neighbors, when one is above the other."""
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


# Where the nodes, labels and edges of a cell go: layers from left to right, in inches, y upwards.
#
# A node's layer is the longest path that leads to it. Between two layers stands a column of labels. An edge
# holds a slot in every column it crosses and its label is one of them; slots of a column never overlap, so
# neither do labels, and no edge passes through a node or another edge's label. The order within columns has
# few crossings (`ordering`); heights then make edges straight, by isotonic regression under the order.

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
        label: the center of its label; None: it has none.
    """

    points: tuple[Point, ...]
    label: Point | None


@dataclass(frozen=True)
class Layout:
    """Where all nodes and edges go.

    Args:
        width: of the picture.
        height: of the picture.
        nodes: their centers.
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
                labeled = label_at.get(index) == key
                chain.append(Item(LABEL_HEIGHT if labeled else 0.06, wire=index, labeled=labeled))
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
    """Set the columns' centers; the gap between two grows with the steepest edge that crosses it."""
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
    """Where an edge touches a node: the edges of a side share three fifths of its height, in their order."""
    assert node.node is not None
    width, height = boxes[node.node]
    by_height = sorted(neighbors, key=lambda item: -item.y)
    place = next(i for i, item in enumerate(by_height) if item is toward)
    step = min(0.6 * height / max(len(by_height) - 1, 1), 0.1)
    rise = step * ((len(by_height) - 1) / 2 - place)
    reach = width / 2 if width > height else math.sqrt(width**2 / 4 - rise**2)  # a box or a disc
    return at[id(node)].x + side * reach, node.y + rise


# Where a cell's nodes and edges go in a picture, and how large its boxes are, in inches.

FONT_SIZE = 8.0
INPUT_BOX = (0.52, 0.34)
INNER_BOX = (0.34, 0.34)
OUTPUT_BOX = (0.62, 0.46)
_TITLES = {"cell": "Cell", "reduce": "Reduction cell"}


def cell_title(name: str) -> str:
    """What stands above a cell of that name.

    >>> cell_title("normal"), cell_title("reduce")
    ('Normal cell', 'Reduction cell')
    """
    return _TITLES.get(name, f"{name.capitalize()} cell")


def text_width(text: str) -> float:
    """The width of a text in inches."""
    font = FontProperties(size=FONT_SIZE)
    return TextToPath().get_text_width_height_descent(text, font, ismath=False)[0] / 72


def lay_out(cell: Cell, *, labeled: bool = True) -> Layout:
    """The cell's own edges in their order, with room for their labels, then those that gather its outputs."""
    boxes: dict[int, Point] = dict.fromkeys(range(cell.inputs), INPUT_BOX)
    boxes.update({edge.target: INNER_BOX for edge in cell.edges})
    wires = [Wire(e.source, e.target, label_width(e.op) if labeled else 0.0) for e in cell.edges]
    boxes[exit_node(cell)] = OUTPUT_BOX
    wires += [Wire(node, exit_node(cell), 0.0) for node in cell.output if node != exit_node(cell)]
    return arrange(boxes, wires)


def exit_node(cell: Cell) -> int:
    """The node that stands for the cell's output: its only output node, or one more that concatenates."""
    return cell.output[0] if len(cell.output) == 1 else cell.nodes


def label_width(op: str) -> float:
    return 0.0 if op == NONE else text_width(op_label(op)) + 0.16


# Pictures of cells: nodes from left to right, operations as labels on the edges, colored by kind.

BORDER = 0.18
TITLE = 0.26
LEGEND = 0.36


def draw_cell(cell: Cell, title: str = "") -> Figure:
    """A cell as a graph from left to right.

    Inputs are labeled as outputs of the cells before, inner nodes are numbered from 0. Edges that carry
    `none` are dotted and have no label.
    """
    return _figure([(title, cell)])


def draw_genotype(genotype: Genotype) -> Figure:
    """All cells of a genotype, one below the other, with one legend."""
    return _figure([(cell_title(name), cell) for name, cell in genotype])


def _figure(cells: Sequence[tuple[str, Cell]]) -> Figure:
    kinds = sorted({kind(edge.op) for _, cell in cells for edge in cell.edges})
    layouts = [lay_out(cell) for _, cell in cells]
    legend_width = sum(0.62 + text_width(family.name) for family in kinds)
    titles = [TITLE if title else 0.0 for title, _ in cells]
    width = max(legend_width, *(layout.width for layout in layouts)) + 2 * BORDER
    height = sum(layout.height + 2 * BORDER for layout in layouts) + sum(titles) + LEGEND
    figure = Figure(figsize=(width, height))
    top = height
    for (title, cell), layout, space in zip(cells, layouts, titles, strict=True):
        top -= layout.height + 2 * BORDER + space
        axes = figure.add_axes((0, top / height, 1, (layout.height + 2 * BORDER + space) / height))
        left = (width - layout.width) / 2
        axes.set_xlim(-left, width - left)
        axes.set_ylim(-BORDER, layout.height + BORDER + space)
        axes.set_axis_off()
        draw_layout(axes, cell, layout)
        if title:
            place = (BORDER - left, layout.height + BORDER + space / 2)
            axes.text(*place, title, ha="left", va="center", size=11, weight="bold", color=INK)
    handles = [legend_line(family) for family in kinds]
    figure.legend(
        handles=handles,
        loc="lower center",
        ncols=len(handles),
        frameon=False,
        fontsize=FONT_SIZE,
        labelcolor=INK,
        columnspacing=1.6,
        handlelength=1.8,
    )
    return figure


def legend_line(family: Kind) -> Line2D:
    """What a legend shows of a kind of operations."""
    dotted = family == kind(NONE)
    return Line2D(
        [], [], color=family.color, linewidth=2.2, linestyle=":" if dotted else "-", label=family.name
    )


def draw_layout(axes: Axes, cell: Cell, layout: Layout) -> None:
    """The edges of a cell, then its nodes."""
    gathers = len(layout.routes) - len(cell.edges)
    colors = [kind(edge.op).color for edge in cell.edges] + [GRAY] * gathers
    ops = [edge.op for edge in cell.edges] + [""] * gathers
    for route, color, op in zip(layout.routes, colors, ops, strict=True):
        _draw_edge(axes, route, color, op)
    for node, place in layout.nodes.items():
        _draw_node(axes, cell, node, place)


def _draw_edge(axes: Axes, route: Route, color: str, op: str) -> None:
    width, style = (1.0, (0, (1, 2.2))) if op == NONE else (1.5 if op else 1.0, "-")
    arrow = FancyArrowPatch(
        path=curve(route.points),
        arrowstyle="-|>,head_length=3.4,head_width=1.7" if op != NONE else "-",
        color=color,
        linewidth=width,
        linestyle=style,
        shrinkA=0,
        shrinkB=0,
        capstyle="butt",
        joinstyle="miter",
        zorder=1,
    )
    axes.add_patch(arrow)
    if route.label is not None:
        x, y = route.label
        box = _box(route.label, (label_width(op), LABEL_HEIGHT), 0.06, "white", color, 1.0)
        axes.add_patch(box)
        axes.text(
            x, y - 0.005, op_label(op), ha="center", va="center_baseline", size=FONT_SIZE, color=INK, zorder=4
        )


def curve(points: Sequence[Point]) -> Path:
    """Through the points, level at each of them."""
    vertices, codes = [points[0]], [Path.MOVETO]
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (x0 + x1) / 2
        vertices += [(middle, y0), (middle, y1), (x1, y1)]
        codes += [Path.CURVE4] * 3
    return Path(vertices, codes)


def _draw_node(axes: Axes, cell: Cell, node: int, place: Point) -> None:
    x, y = place
    if node == exit_node(cell):
        axes.add_patch(_box(place, OUTPUT_BOX, 0.08, "#eceff3", INK, 1.1))
        gathered = len(cell.output) > 1
        axes.text(x, y + 0.08 * gathered, "$c_k$", ha="center", va="center", size=10, color=INK, zorder=4)
        if gathered:
            axes.text(x, y - 0.12, "concat", ha="center", va="center", size=7, color=INK, zorder=4)
    elif node < cell.inputs:
        axes.add_patch(_box(place, INPUT_BOX, 0.08, "#eceff3", INK, 1.1))
        name = node_name(node, cell.inputs)
        axes.text(x, y, name, ha="center", va="center", size=10, color=INK, zorder=4)
    else:
        disc = Circle(place, INNER_BOX[0] / 2, facecolor="white", edgecolor=INK, linewidth=1.1, zorder=3)
        axes.add_patch(disc)
        name = node_name(node, cell.inputs)
        axes.text(x, y, name, ha="center", va="center_baseline", size=9, weight="bold", color=INK, zorder=4)


def _box(center: Point, size: Point, rounding: float, face: str, edge: str, line: float) -> FancyBboxPatch:
    corner = (center[0] - size[0] / 2, center[1] - size[1] / 2)
    style = f"round,pad=0,rounding_size={rounding}"
    return FancyBboxPatch(
        corner, *size, boxstyle=style, facecolor=face, edgecolor=edge, linewidth=line, zorder=3
    )


# Pictures of several cells' connections side by side: edges colored by kind, without their operations.

COLUMNS = 2
BORDER_TOPOLOGIES, TITLE_TOPOLOGIES, LEGEND_TOPOLOGIES = 0.14, 0.26, 0.5


def draw_topologies(cells: Mapping[str, Cell]) -> Figure:
    """One panel a cell, two in a row, all at the same scale; its name in the mapping is its title."""
    layouts = {name: lay_out(cell, labeled=False) for name, cell in cells.items()}
    width = max(layout.width for layout in layouts.values()) + 2 * BORDER_TOPOLOGIES
    height = max(layout.height for layout in layouts.values()) + 2 * BORDER_TOPOLOGIES + TITLE_TOPOLOGIES
    columns = min(COLUMNS, len(cells))
    rows = -(-len(cells) // columns)
    figure = Figure(figsize=(columns * width, rows * height + LEGEND_TOPOLOGIES))
    across, down = figure.get_size_inches()
    for number, (name, layout) in enumerate(layouts.items()):
        row, column = divmod(number, columns)
        place = (column * width, down - (row + 1) * height)
        axes = figure.add_axes((place[0] / across, place[1] / down, width / across, height / down))
        spare = (width - layout.width) / 2, (height - TITLE_TOPOLOGIES - layout.height) / 2
        axes.set_xlim(-spare[0], width - spare[0])
        axes.set_ylim(-spare[1], height - spare[1])
        axes.set_axis_off()
        draw_layout(axes, cells[name], layout)
        axes.text(
            BORDER_TOPOLOGIES - spare[0],
            height - spare[1] - TITLE_TOPOLOGIES / 2,
            name,
            ha="left",
            va="center",
            size=FONT_SIZE + 1,
            weight="bold",
            color=INK,
        )
    kinds = sorted({kind(edge.op) for cell in cells.values() for edge in cell.edges})
    figure.legend(
        handles=[legend_line(family) for family in kinds],
        loc="lower center",
        ncols=min(2, len(kinds)),
        frameon=False,
        fontsize=FONT_SIZE,
        labelcolor=INK,
    )
    return figure
