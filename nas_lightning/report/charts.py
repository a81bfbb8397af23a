"""Charts of pages: cells, curves, and scatter plots as SVG geometry."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Edge, Genotype
from nas_lightning.plots.cells import (
    INNER_BOX,
    INPUT_BOX,
    LABEL_HEIGHT,
    OUTPUT_BOX,
    Layout,
    Route,
    cell_title,
    exit_node,
    label_width,
    lay_out,
)
from nas_lightning.plots.cells import Point as Point_cells
from nas_lightning.plots.style import SERIES, Kind, dash_patterns, kind, node_label, op_label
from nas_lightning.runs.facts import read_history
from nas_lightning.spaces.operations import NONE

# Lines over epochs as the page draws them: geometry in pixels that a template writes as SVG.

LEFT, RIGHT, TOP, BOTTOM = 54, 10, 8, 24  # pixels around the lines


@dataclass(frozen=True)
class Line:
    """A named line.

    Args:
        name: of the legend.
        points: {epoch: value}, the epochs counted from 1.
        style: CSS class of its color.
        dashes: of the stroke, as SVG has them.
        bold: whether it leads.
    """

    name: str
    points: Mapping[int, float]
    style: str
    dashes: str = ""
    bold: bool = False


@dataclass(frozen=True)
class Chart:
    """Lines with their axes.

    Args:
        title: what stands above.
        lines: each with the coordinates of its points, as SVG has them.
        x_ticks: (pixel, text).
        y_ticks: (pixel, text).
        width: pixels.
        height: pixels.
        note: the title's second part.
        key: by which scripts find it.

    >>> chart = draw_chart("Loss", [Line("train", {1: 2.0, 2: 1.0}, "series-0")])
    >>> [text for _, text in chart.x_ticks], [text for _, text in chart.y_ticks]
    (['1', '2'], ['1.0', '1.5', '2.0'])
    """

    title: str
    lines: Sequence[tuple[Line, str]]
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    width: int
    height: int
    note: str = ""
    key: str = ""


def draw_chart(
    title: str,
    lines: Sequence[Line],
    *,
    width: int = 300,
    height: int = 210,
    limits: tuple[float, float] | None = None,
    note: str = "",
    key: str = "",
) -> Chart:
    """Lines in a frame that fits them, or that shows values between `limits`."""
    epochs = sorted({epoch for line in lines for epoch in line.points}) or [1]
    low, high = limits or fit_limits([value for line in lines for value in line.points.values()])
    span = max(epochs[-1] - epochs[0], 1)

    def x(epoch: float) -> float:
        inside = width - LEFT - RIGHT
        return LEFT + inside * ((epoch - epochs[0]) / span if len(epochs) > 1 else 0.5)

    def y(value: float) -> float:
        return TOP + (height - TOP - BOTTOM) * (high - value) / (high - low)

    drawn = [
        (
            line,
            " ".join(
                f"{x(epoch):.1f},{y(value):.1f}"
                for epoch, value in line.points.items()
                if math.isfinite(value)
            ),
        )
        for line in lines
    ]
    steps = [tick for tick in ticks(epochs[0], epochs[-1], max(3, width // 60)) if tick == int(tick)]
    x_ticks = [(x(tick), str(int(tick))) for tick in steps or [epochs[0]]]
    levels = ticks(low, high, max(3, height // 45))
    y_ticks = [(y(level), text) for level, text in zip(levels, tick_texts(levels), strict=True)]
    return Chart(title, drawn, x_ticks, y_ticks, width, height, note, key)


def fit_limits(values: Sequence[float]) -> tuple[float, float]:
    """From the smallest to the largest, with a little air; never an empty range.

    >>> fit_limits([0.0, 1.0, float("nan")]), fit_limits([2.0])
    ((-0.04, 1.04), (1.0, 3.0))
    """
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    air = 0.04 * (high - low) or abs(low) / 2 or 0.5
    return low - air, high + air


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers in a range, about so many, at least two where the range is not empty.

    >>> ticks(0.0, 1.0, 3), ticks(1, 8, 4), ticks(3, 3, 4), ticks(0.16, 0.24, 2)
    ([0.0, 0.5, 1.0], [2.0, 4.0, 6.0, 8.0], [3.0], [0.16, 0.18, 0.2, 0.22, 0.24])
    """
    if high <= low:
        return [float(low)]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if last <= first:
        return ticks(low, high, 2 * count)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def tick_texts(levels: Sequence[float]) -> list[str]:
    """Numbers with as few digits as tell them apart.

    >>> tick_texts([0.9998, 0.9999, 1.0]), tick_texts([0.0, 0.5]), tick_texts([0.2])
    (['0.9998', '0.9999', '1.0000'], ['0.0', '0.5'], ['0.2'])
    """
    if len(levels) < 2:
        return [f"{level:.4g}" for level in levels]
    step = min(b - a for a, b in pairwise(levels))
    return [f"{level:.{max(0, -math.floor(math.log10(step) + 1e-9))}f}" for level in levels]


# Cells as the page draws them: geometry in pixels, y downwards, that a template writes as SVG.

SCALE = 108.0  # pixels an inch: the labels' 8 points are 12 pixels
BORDER = 0.1


@dataclass(frozen=True)
class Box:
    """A rectangle with text in it, in pixels.

    Args:
        x: of the center.
        y: of the center.
        width: of the rectangle.
        height: of the rectangle.
        text: what stands in it.
    """

    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True)
class NodeShape:
    """A node.

    Args:
        box: where it is, and the letter or number in it.
        index: below the line after the letter.
        inner: whether it is a node between inputs and output, which are round.
        note: a second line.
    """

    box: Box
    index: str
    inner: bool
    note: str = ""


@dataclass(frozen=True)
class EdgeShape:
    """An edge.

    Args:
        kind: of its operation; None: it gathers the outputs.
        path: the data of an SVG path.
        tip: where its arrow ends.
        label: the operation; None where nothing is computed.
        words: what it is, in words.
        row: where its weights stand in the history, `group/row`; empty where they do not.
        marked: whether it stands out.
    """

    kind: Kind | None
    path: str
    tip: Point_cells
    label: Box | None
    words: str
    row: str = ""
    marked: bool = False


@dataclass(frozen=True)
class CellShape:
    """A whole cell.

    Args:
        title: which cell it is.
        words: the cell in words.
        width: in pixels.
        height: in pixels.
        edges: below the nodes.
        nodes: above the edges.
    """

    title: str
    words: str
    width: float
    height: float
    edges: Sequence[EdgeShape]
    nodes: Sequence[NodeShape]


def shape_genotype(
    genotype: Genotype,
    rows: Mapping[str, Mapping[tuple[int, int], int]] | None = None,
    plain: Mapping[str, Collection[Edge]] | None = None,
) -> list[CellShape]:
    """All cells of a genotype.

    Args:
        genotype: whose cells they are.
        rows: {cell: {(source, target): row}}, where the edges' weights stand in the history.
        plain: the edges of each cell that are not marked; None: none is.
    """
    rows = rows or {}
    plain = {name: cell.edges for name, cell in genotype} if plain is None else plain
    return [shape_cell(name, cell, rows.get(name, {}), plain.get(name, ())) for name, cell in genotype]


def common_edges(genotypes: Sequence[Genotype]) -> dict[str, set[Edge]]:
    """The edges that all genotypes with such a cell have, by the name of the cell."""
    edges_of: dict[str, list[set[Edge]]] = {}
    for name, cell in (named for genotype in genotypes for named in genotype):
        edges_of.setdefault(name, []).append(set(cell.edges))
    return {name: set.intersection(*edges) for name, edges in edges_of.items()}


def shape_cell(
    name: str, cell: Cell, rows: Mapping[tuple[int, int], int], plain: Collection[Edge]
) -> CellShape:
    """One cell; its edges first, then those that gather its outputs."""
    layout = lay_out(cell)
    edges = []
    for edge, route in zip(cell.edges, layout.routes, strict=False):
        row = rows.get((edge.source, edge.target))
        edges.append(
            EdgeShape(
                kind(edge.op),
                _path(route, layout),
                _place(route.points[-1], layout),
                _label(edge.op, route, layout),
                edge_words(edge, cell.inputs),
                "" if row is None else f"{name}/{row}",
                edge not in plain,
            )
        )
    for route in layout.routes[len(cell.edges) :]:
        tip = _place(route.points[-1], layout)
        edges.append(EdgeShape(None, _path(route, layout), tip, None, "gathered by the output"))
    nodes = [_node(cell, node, layout) for node in layout.nodes]
    width, height = ((extent + 2 * BORDER) * SCALE for extent in (layout.width, layout.height))
    return CellShape(cell_title(name), cell_words(cell), width, height, edges, nodes)


def edge_words(edge: Edge, inputs: int) -> str:
    """An edge in words.

    >>> edge_words(Edge("sep_conv_3x3", 0, 2), 2)
    'sep conv 3×3 from c k−2 to 0'
    """
    return f"{op_label(edge.op)} from {node_label(edge.source, inputs)} to {node_label(edge.target, inputs)}"


def cell_words(cell: Cell) -> str:
    """A cell in words: what each node takes from which, and what comes out.

    >>> cell_words(Cell([("skip_connect", 0, 2), ("max_pool_3x3", 1, 2)], 2, [2]))
    'the output takes skip of c k−2 and max pool 3×3 of c k−1.'
    """
    nodes = sorted({edge.target for edge in cell.edges})
    parts = []
    for node in nodes:
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
    """The families of operations in them, for a legend."""
    return list(dict.fromkeys(kind(op) for genotype in genotypes for op in sorted(genotype.ops)))


def _place(point: Point_cells, layout: Layout) -> Point_cells:
    return (point[0] + BORDER) * SCALE, (layout.height - point[1] + BORDER) * SCALE


def _path(route: Route, layout: Layout) -> str:
    """Through the route's points, level at each of them."""
    points = [_place(point, layout) for point in route.points]
    data = "M{:.1f} {:.1f}".format(*points[0])
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (x0 + x1) / 2
        data += f"C{middle:.1f} {y0:.1f} {middle:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
    return data


def _label(op: str, route: Route, layout: Layout) -> Box | None:
    if route.label is None:
        return None
    return Box(*_place(route.label, layout), label_width(op) * SCALE, LABEL_HEIGHT * SCALE, op_label(op))


def _node(cell: Cell, node: int, layout: Layout) -> NodeShape:
    x, y = _place(layout.nodes[node], layout)
    if node == exit_node(cell):
        box = Box(x, y, OUTPUT_BOX[0] * SCALE, OUTPUT_BOX[1] * SCALE, "c")
        return NodeShape(box, "k", False, "concat" if len(cell.output) > 1 else "")
    inner = node >= cell.inputs
    width, height = INNER_BOX if inner else INPUT_BOX
    text, _, index = node_label(node, cell.inputs).partition(" ")
    return NodeShape(Box(x, y, width * SCALE, height * SCALE, text), index, inner)


# Points on two axes as the page draws them, with the line of those that no other is better than in both.

SIZE, LEFT_SCATTER, BOTTOM_SCATTER, EDGE = 300, 54, 38, 6


class Point(NamedTuple):
    """What is drawn as a dot.

    Args:
        name: that it shows.
        x: its place from the left.
        y: its place from below; more is better.
        chosen: whether it is marked.
        link: where it leads; empty: nowhere.
    """

    name: str
    x: float
    y: float
    chosen: bool = False
    link: str = ""


@dataclass(frozen=True)
class Scatter:
    """Dots with their axes.

    Args:
        title: what stands above.
        note: the title's second part.
        x_title: below the axis.
        dots: points in pixels from the left and from above, those that are chosen last.
        front: the line, as SVG has its points.
        x_ticks: (pixel, text).
        y_ticks: (pixel, text).
        size: width and height, in pixels.
        left: where the axis from left to right begins.
        bottom: pixels below it.

    >>> points = [Point("a", 1.0, 0.5), Point("b", 2.0, 0.7), Point("c", 3.0, 0.6)]
    >>> scatter = draw_scatter("Accuracy against cost", "parameters", points, least_x=True)
    >>> [dot.name for dot in scatter.dots], scatter.front.count(",")
    (['a', 'b', 'c'], 2)
    """

    title: str
    note: str
    x_title: str
    dots: Sequence[Point]
    front: str
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    size: int = SIZE
    left: int = LEFT_SCATTER
    bottom: int = BOTTOM_SCATTER


def draw_scatter(
    title: str,
    x_title: str,
    points: Sequence[Point],
    *,
    note: str = "",
    limits: tuple[float, float] | None = None,
    least_x: bool = False,
) -> Scatter:
    """Points in a frame that fits them, or whose axes both go from and to `limits`.

    Args:
        title: what stands above.
        x_title: below the axis.
        points: at finite places.
        note: the title's second part.
        limits: of both axes; None: those of the points.
        least_x: whether less is better on the axis below.
    """
    (left, right), (low, high) = (
        limits or fit_limits(values) for values in ([p.x for p in points], [p.y for p in points])
    )

    def x(value: float) -> float:
        return LEFT_SCATTER + (SIZE - LEFT_SCATTER - EDGE) * (value - left) / (right - left)

    def y(value: float) -> float:
        return SIZE - BOTTOM_SCATTER - (SIZE - BOTTOM_SCATTER - EDGE) * (value - low) / (high - low)

    dots = [point._replace(x=x(point.x), y=y(point.y)) for point in points]
    sign = -1 if least_x else 1
    best = pareto_front([(sign * point.x, point.y) for point in points])
    front = " ".join(
        f"{dots[index].x:.1f},{dots[index].y:.1f}" for index in sorted(best, key=lambda i: dots[i].x)
    )
    across, up = ticks(left, right, 3), ticks(low, high, 4)
    return Scatter(
        title,
        note,
        x_title,
        sorted(dots, key=lambda dot: dot.chosen),
        front,
        [(x(value), text) for value, text in zip(across, short_texts(across), strict=True)],
        [(y(value), text) for value, text in zip(up, short_texts(up), strict=True)],
    )


def short_texts(levels: Sequence[float]) -> list[str]:
    """Numbers with as few digits as tell them apart; thousands and millions by their letters.

    >>> short_texts([0.5, 1.0]), short_texts([50_000, 100_000]), short_texts([1e6, 1.5e6])
    (['0.5', '1.0'], ['50k', '100k'], ['1.0M', '1.5M'])
    """
    most = max(map(abs, levels))
    unit, letter = next(((u, t) for u, t in ((1e9, "G"), (1e6, "M"), (1e4, "k")) if most >= u), (1.0, ""))
    unit = 1e3 if letter == "k" else unit
    return [f"{text}{letter}" for text in tick_texts([level / unit for level in levels])]


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Which points no other is above in both, from left to right; larger is better.

    >>> pareto_front([(0.0, 1.0), (0.5, 0.2), (0.6, 0.6), (1.0, 0.0)])
    [0, 2, 3]
    """
    front: list[int] = []
    best = -math.inf
    for index in sorted(range(len(points)), key=lambda i: points[i], reverse=True):
        if points[index][1] > best:
            front.append(index)
            best = points[index][1]
    return front[::-1]


# A search's history for its page: the cell of every epoch, and how the weights of its edges moved.


@dataclass(frozen=True)
class Frame:
    """The cells after an epoch, or after several that changed nothing.

    Args:
        cells: with the edges marked that the epoch before did not have.
        changes: how many these are.
    """

    cells: Sequence[CellShape]
    changes: int


@dataclass(frozen=True)
class Timeline:
    """The entries of a history, one an epoch.

    Args:
        entries: {"epoch", "genotypes", "groups": {name: {"edges", "ops", "scores"}}}.

    >>> weights = {"edges": [[0, 1]], "ops": ["none", "skip_connect"], "scores": [[0.4, 0.6]]}
    >>> timeline = Timeline([{"epoch": 0, "genotypes": [], "groups": {"cell": weights}}])
    >>> timeline.epochs, timeline.rows
    ([1], {'cell': {(0, 1): 0}})
    """

    entries: Sequence[Mapping[str, Any]]

    @property
    def epochs(self) -> list[int]:
        """Counted from 1."""
        return [entry["epoch"] + 1 for entry in self.entries]

    @property
    def groups(self) -> Mapping[str, Any]:
        """The groups that have scores at the end, by name."""
        return self.entries[-1]["groups"]

    @property
    def rows(self) -> dict[str, dict[tuple[int, int], int]]:
        """{group: {(source, target): row}} of the groups whose decisions are operations on edges."""
        return {
            name: {(edge[0], edge[1]): row for row, edge in enumerate(group["edges"])}
            for name, group in self.groups.items()
            if all(len(edge) == 2 for edge in group["edges"])
        }

    def scores(self, group: str) -> list[list[list[float]]]:
        """(epochs, rows, candidates); epochs without this group are left out."""
        return [entry["groups"][group]["scores"] for entry in self.entries if group in entry["groups"]]

    @cached_property
    def genotypes(self) -> list[Genotype]:
        """Of every epoch; none where an epoch has several."""
        if not all(len(entry.get("genotypes", ())) == 1 for entry in self.entries):
            return []
        return [Genotype.from_dict(entry["genotypes"][0]) for entry in self.entries]

    def frames(self, result: Genotype) -> tuple[list[Frame], list[int]]:
        """The pictures of all epochs and of the result, and which of them each of these shows."""
        frames: dict[tuple[Genotype, Genotype], Frame] = {}
        order = []
        before = [*self.genotypes[:1], *self.genotypes]
        for earlier, genotype in zip(before, [*self.genotypes, result], strict=True):
            key = earlier, genotype
            if key not in frames:
                cells = shape_genotype(genotype, self.rows, {name: cell.edges for name, cell in earlier})
                marked = sum(edge.marked for cell in cells for edge in cell.edges)
                frames[key] = Frame(cells, marked)
            order.append(list(frames).index(key))
        return list(frames.values()), order

    def numbers(self, order: Sequence[int]) -> dict[str, Any]:
        """What the page's script looks up: epochs, their frames, and weights with four digits."""
        groups = {
            name: {
                "ops": [op_label(op) for op in self.groups[name]["ops"]],
                "styles": line_classes(self.groups[name]["ops"]),
                "scores": [[[float(f"{s:.4g}") for s in row] for row in e] for e in self.scores(name)],
            }
            for name in self.rows
            if all(name in entry["groups"] for entry in self.entries)
        }
        return {"epochs": self.epochs, "frames": order, "groups": groups}


def read_timeline(path: Path) -> Timeline:
    """The timeline of a history file, which has at least one epoch."""
    entries = read_history(path)
    if not entries:
        raise InputError("expected at least one epoch", where=path.name)
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry.get("groups"), dict):
            raise InputError("expected the scores of groups", where=f"{path.name}:{number}")
    return Timeline(entries)


@dataclass(frozen=True)
class WeightCharts:
    """The charts of a group.

    Args:
        name: of the group.
        charts: one a decision.
        legend: that they share: (name, CSS class, dashes) of each candidate.
        note: what they do not show.
    """

    name: str
    charts: Sequence[Chart]
    legend: Sequence[tuple[str, str, str]]
    note: str = ""


def line_classes(ops: Sequence[str]) -> list[str]:
    """The CSS classes of the candidates' colors: their kinds', and one of their own for those of no kind.

    >>> line_classes(["relu", "skip_connect", "tanh"])
    ['series-0', 'kind-skip', 'series-1']
    """
    others = [op for op in ops if kind(op).key == "other"]
    return [
        f"series-{others.index(op) % len(SERIES)}" if op in others else f"kind-{kind(op).key}" for op in ops
    ]


def draw_weight_charts(timeline: Timeline, group: str) -> WeightCharts:
    """One chart a row, all with the same axes; these fit the candidates that compute something."""
    last, scores = timeline.groups[group], timeline.scores(group)
    ops, edges = list(last["ops"]), last["edges"]
    computing = [column for column, op in enumerate(ops) if op != NONE]
    limits = fit_limits([row[column] for epoch in scores for row in epoch for column in computing])
    epochs = [
        e for e, entry in zip(timeline.epochs, timeline.entries, strict=True) if group in entry["groups"]
    ]
    dashes = dash_patterns(ops)
    inputs = min(edge[-1] for edge in edges)
    inside = [
        column
        for column in range(len(ops))
        if column in computing
        or all(limits[0] <= row[column] <= limits[1] for epoch in scores for row in epoch)
    ]
    styles = line_classes(ops)
    charts = []
    for row, edge in enumerate(edges):
        leader = max(range(len(ops)), key=lambda column: scores[-1][row][column])
        lines = [
            Line(
                op_label(ops[column]),
                {e: epoch[row][column] for e, epoch in zip(epochs, scores, strict=True)},
                styles[column],
                " ".join(map(str, dashes[column])),
                column == leader,
            )
            for column in inside
        ]
        name = " → ".join(node_label(n, inputs) for n in edge) if len(edge) == 2 else f"node {edge[0]}"
        charts.append(
            draw_chart(
                name,
                lines,
                width=236,
                height=132,
                limits=limits,
                note=op_label(ops[leader]),
                key=f"{group}/{row}",
            )
        )
    legend = [(op_label(ops[c]), styles[c], " ".join(map(str, dashes[c]))) for c in inside]
    note = "" if len(inside) == len(ops) else "The weights of none lie outside the axes."
    return WeightCharts(group, charts, legend, note)
