"""Charts of a run: losses and accuracies, architecture weights, and fronts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from nas_lightning.errors import InputError
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
    side_by_side,
    text_width,
)
from nas_lightning.plots.style import SERIES, dash_patterns, kind, node_label, op_label
from nas_lightning.spaces.operations import NONE
from nas_lightning.utils.tables import thin
from nas_lightning.utils.text import split_score

LEFT, RIGHT, HEADING, TICKS = 54, 10, 22, 24  # pixels around the lines of a chart
MOST_POINTS = 120
"""Points of a line, so that a chart of a thousand epochs is as fast and small as one of a hundred."""


class Series(NamedTuple):
    """A named line.

    Args:
        name: in the legend.
        points: (x, y); those that are not finite are omitted.
        color: a name in `PALETTE`.
        dashes: in pixels.
        bold: whether the line is bold.
    """

    name: str
    points: Sequence[Point]
    color: str
    dashes: Sequence[float] = ()
    bold: bool = False


class Dot(NamedTuple):
    """A point of a scatter plot.

    Args:
        name: shown while the pointer is on it.
        x: its position from the left.
        y: its position from below.
        link: the address that it leads to, if any.
    """

    name: str
    x: float
    y: float
    link: str = ""


class Dots(NamedTuple):
    """Points of one kind.

    Args:
        name: in the legend.
        dots: the points.
        color: a name in `PALETTE`.
        radius: in pixels.
    """

    name: str
    dots: Sequence[Dot]
    color: str
    radius: float = 2.5


@dataclass(frozen=True)
class Frame:
    """Axes: a rectangle in pixels, and the values at its sides.

    Args:
        left: of the rectangle.
        top: of the rectangle.
        right: of the rectangle.
        bottom: of the rectangle.
        x: the values at its left and right.
        y: the values at its bottom and top.
    """

    left: float
    top: float
    right: float
    bottom: float
    x: Point
    y: Point

    def at(self, x: float, y: float) -> Point:
        """Return the pixel of a point."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return self.left + across * (self.right - self.left), self.bottom - up * (self.bottom - self.top)

    def grid(self, x_ticks: Sequence[float], x_texts: Sequence[str]) -> list[Mark]:
        """Draw horizontal lines at round values, and the numbers of both axes."""
        levels = y_ticks(self.y, self.bottom - self.top)
        marks: list[Mark] = []
        for level, text in zip(levels, short_texts(levels), strict=True):
            y = self.at(self.x[0], level)[1]
            marks.append(Line([(self.left, y), (self.right, y)], "line", 1))
            marks.append(Text((self.left - 5, y), text, 11, "soft", "end"))
        for tick, text in zip(x_ticks, x_texts, strict=True):
            marks.append(Text((self.at(tick, self.y[0])[0], self.bottom + 11), text, 11, "soft"))
        return marks


def y_ticks(limits: Point, height: float) -> list[float]:
    """Return the round values of a vertical axis of so many pixels."""
    return ticks(*limits, max(3, round(height / 45)))


def _margins(limits: Point, height: float, x_texts: Sequence[str]) -> Point:
    """Return the pixels on the left and right in which the numbers of both axes fit."""
    widest = max((text_width(text, 11) for text in short_texts(y_ticks(limits, height))), default=0.0)
    return max(LEFT, widest + 8), max(RIGHT, text_width(x_texts[-1], 11) / 2 + 2 if x_texts else 0.0)


def line_chart(
    title: str,
    lines: Sequence[Series],
    *,
    width: float = 300,
    height: float = 210,
    limits: Point | None = None,
    note: str = "",
    row: str = "",
    named: bool = True,
) -> Picture:
    """Draw lines over epochs, which start at 1.

    Args:
        title: above the lines.
        lines: with their names.
        width: of the picture in pixels.
        height: of the picture without its legend.
        limits: of the values; None: those of the lines.
        note: after the title.
        row: name of the row of weights that the chart shows, for scripts of a page.
        named: whether there is a legend.
    """
    epochs = sorted({x for line in lines for x, _ in line.points}) or [1.0]
    ends = (epochs[0], epochs[-1]) if len(epochs) > 1 else (epochs[0] - 0.5, epochs[0] + 0.5)
    limits = limits or fit_limits([y for line in lines for _, y in line.points])
    steps = [tick for tick in ticks(epochs[0], epochs[-1], max(3, round(width / 60))) if tick == int(tick)]
    steps = steps or epochs[:1]
    numbers = [str(int(step)) for step in steps]
    left, right = _margins(limits, height - TICKS - HEADING, numbers)
    frame = Frame(left, HEADING, width - right, height - TICKS, ends, limits)
    marks = [*_heading(title, note), *frame.grid(steps, numbers)]
    for line in lines:
        points = [frame.at(x, y) for x, y in thin(line.points, MOST_POINTS) if math.isfinite(y)]
        if len(points) == 1:
            marks.append(Group([_dot(points[0], 3, line.color)], line.name))
        elif points:
            stroke = Line(points, line.color, 3 if line.bold else 1.5, line.dashes)
            marks.append(Group([stroke], line.name))
    if named:
        entries = [(line.name, line.color, line.dashes) for line in lines]
        marks, height = _with_legend(marks, entries, width, height)
    names = ", ".join(line.name for line in lines)
    area = f"{frame.left} {frame.right} {frame.top} {frame.bottom}"
    attributes = {"data-area": area, "data-row": row}
    return Picture(width, height, marks, f"{title} over epochs: {names}", "chart", attributes)


def scatter(
    title: str,
    x_title: str,
    groups: Sequence[Dots],
    *,
    line: tuple[str, Sequence[Point]] | None = None,
    note: str = "",
    limits: Point | None = None,
    size: float = 340,
    named: bool = False,
) -> Picture:
    """Draw points.

    Args:
        title: above the points.
        x_title: below the horizontal axis.
        groups: points of different kinds, the last ones on top; those that are not finite are omitted.
        line: its name and points.
        note: after the title, on a line of its own.
        limits: of both axes; None: those of the points.
        size: width and height of the picture in pixels, without its legend.
        named: write the names of at most `MOST_NAMES` points beside them.
    """
    sound = [
        group._replace(dots=[d for d in group.dots if math.isfinite(d.x) and math.isfinite(d.y)])
        for group in groups
    ]
    dots = [dot for group in sound for dot in group.dots]
    x, y = (limits or fit_limits(values) for values in ([d.x for d in dots], [d.y for d in dots]))
    top = HEADING + 18 * bool(note)
    across = ticks(*x, 3)
    left, right = _margins(y, size - TICKS - 18 - top, short_texts(across))
    frame = Frame(left, top, size - right, size - TICKS - 18, x, y)
    marks = [*_heading(title), *frame.grid(across, short_texts(across))]
    if note:
        marks.append(Text((0, HEADING + 4), note, 11, "soft", "start"))
    marks.append(Text(((frame.left + frame.right) / 2, size - 8), x_title, 11, "soft"))
    entries: list[LegendEntry] = [(group.name, group.color, ()) for group in sound]
    if line is not None:
        name, points = line
        entries.append((name, "series-2", ()))
        if len(points) > 1:
            marks.append(Line([frame.at(*point) for point in sorted(points)], "series-2"))
    for group in sound:
        for dot in group.dots:
            place = frame.at(dot.x, dot.y)
            marks.append(Group([_dot(place, group.radius, group.color)], dot.name, dot.link))
    if named:
        marks += _names_of_dots({dot.name: frame.at(dot.x, dot.y) for dot in dots}, frame)
    marks, height = _with_legend(marks, entries, size, size)
    return Picture(size, height, marks, title, "chart dots", {"role": "group"})


MOST_NAMES, MOST_LETTERS = 12, 30


def _names_of_dots(places: Mapping[str, Point], frame: Frame) -> list[Mark]:
    """Write names beside points, where they hide no other point or name; none for many points."""
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in places.values()]
    marks: list[Mark] = []
    for name, (x, y) in places.items() if len(places) <= MOST_NAMES else ():
        text = name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"
        width = text_width(text, 11)
        spots = [(x + 8 + width * side, y + down) for down in (0, -12, 12, -24, 24) for side in (0, -1)]
        spots = [(left - 16 * (left < x), middle) for left, middle in spots]
        boxes = [(left, middle - 6, left + width, middle + 6) for left, middle in spots]
        inside = [box for box in boxes if frame.left <= box[0] and box[2] <= frame.right + RIGHT]
        free = [box for box in inside if not any(_overlap(box, other) for other in taken)]
        box = next(iter([*free, *inside, *boxes]))
        taken.append(box)
        marks.append(Text((box[0], (box[1] + box[3]) / 2), text, 11, "soft", "start"))
    return marks


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _heading(title: str, note: str = "") -> list[Mark]:
    marks: list[Mark] = [Text((0, 8), title, 12.5, align="start", bold=True)]
    if note:
        marks.append(Text((1.1 * text_width(title, 12.5) + 10, 8), note, 11.5, "soft", "start"))
    return marks


def _dot(place: Point, radius: float, color: str) -> Box:
    return Box(place, (2 * radius, 2 * radius), radius, color)


def _with_legend(
    marks: Sequence[Mark], entries: Sequence[LegendEntry], width: float, height: float
) -> tuple[list[Mark], float]:
    below = draw_legend(entries, width)
    return [*marks, Group(below.marks, offset=(0, height))], height + below.height + 6


def fit_limits(values: Sequence[float]) -> Point:
    """Return the smallest and the largest value with a margin; never an empty range.

    >>> fit_limits([0.0, 1.0, float("nan")]), fit_limits([2.0])
    ((-0.04, 1.04), (1.0, 3.0))
    """
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    margin = 0.04 * (high - low) or abs(low) / 2 or 0.5
    return low - margin, high + margin


def ticks(low: float, high: float, count: int) -> list[float]:
    """Return about so many round numbers in a range, at least two unless the range is empty.

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


def short_texts(levels: Sequence[float]) -> list[str]:
    """Format numbers with as few digits as distinguish them; large ones with k, M, or G.

    >>> short_texts([0.9998, 0.9999, 1.0]), short_texts([0.2])
    (['0.9998', '0.9999', '1.0000'], ['0.2'])
    >>> short_texts([0.5, 1.0]), short_texts([50_000, 100_000]), short_texts([1e6, 1.5e6])
    (['0.5', '1.0'], ['50k', '100k'], ['1.0M', '1.5M'])
    """
    most = max(map(abs, levels))
    letters = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
    unit, letter = next(((unit, letter) for least, unit, letter in letters if most >= least), (1.0, ""))
    if most >= 1e13:
        return [f"{level:.2g}" for level in levels]
    levels = [level / unit for level in levels]
    if len(levels) < 2:
        return [f"{level:.4g}{letter}" for level in levels]
    step = min(b - a for a, b in pairwise(levels))
    return [f"{level:.{max(0, -math.floor(math.log10(step) + 1e-9))}f}{letter}" for level in levels]


# Losses, accuracies, and entropies over the epochs of a run

_PANELS = {
    **{"loss": r"(.+)_loss", "accuracy": r"(.+)_accuracy"},
    **{"entropy": r"entropy/(.+)", "depth": r"depth/(.+)"},
}
_COLORS = {"train": 0, "valid": 1, "val": 1, "normal": 0, "reduce": 1}


def draw_curves(rows: Iterable[Mapping[str, float]]) -> Picture:
    """Draw `*_loss`, `*_accuracy`, `entropy/*`, `depth/*`, and the task's scores over epochs, without tests.

    Args:
        rows: metrics, such as {"epoch": 3, "train_loss": 1.2}.
    """
    charts = curve_charts(rows)
    return side_by_side(charts, len(charts))


def curve_charts(rows: Iterable[Mapping[str, float]], chance: float | None = None) -> list[Picture]:
    """Draw one chart each of losses, accuracies, and so on.

    Args:
        rows: metrics, such as {"epoch": 3, "train_loss": 1.2}.
        chance: the accuracy of guesses, if it is known.
    """
    charts = []
    for title, named in by_panel(rows).items():
        other = iter(range(2, 2 + len(named)))
        lines = [
            Series(name, _points(values), f"series-{_COLORS.get(name, next(other)) % len(SERIES)}")
            for name, values in named.items()
        ]
        if title == "accuracy" and chance is not None:
            epochs = sorted({x for line in lines for x, _ in line.points})
            points = [(epochs[0], chance), (epochs[-1], chance)]
            lines.append(Series("chance", points, "soft", (2, 4)))
        charts.append(line_chart(title.capitalize(), lines, limits=(0, 1.05) if title == "entropy" else None))
    return charts


def _points(values: Mapping[int, float]) -> list[Point]:
    return [(epoch + 1.0, value) for epoch, value in values.items()]


def by_panel(rows: Iterable[Mapping[str, float]]) -> dict[str, dict[str, dict[int, float]]]:
    """Return {panel: {line: {epoch: value}}}.

    Raises:
        InputError: if there is no line.

    >>> by_panel([{"epoch": 0, "train_loss": 2.0, "valid_loss": 3.0, "lr": 0.1}])
    {'loss': {'train': {0: 2.0}, 'valid': {0: 3.0}}}
    >>> by_panel([{"epoch": 0, "train_r2": 0.2, "test_r2": 0.1}])
    {'r2': {'train': {0: 0.2}}}
    """
    series = by_epoch(rows)
    panels: dict[str, dict[str, dict[int, float]]] = {}
    for title, pattern in _PANELS.items():
        for name, values in series.items():
            match = re.fullmatch(pattern, name)
            if match and match[1] != "test":
                panels.setdefault(title, {})[match[1]] = values
    for name, values in series.items():
        score = split_score(name)
        if score and score[0] != "test":
            panels.setdefault(score[1], {})[score[0]] = values
    if not panels:
        raise InputError(
            "There must be losses or accuracies of at least one epoch", got=", ".join(series) or "none"
        )
    return panels


def by_epoch(rows: Iterable[Mapping[str, float]]) -> dict[str, dict[int, float]]:
    """Return the last value of every metric in every epoch: {name: {epoch: value}}.

    >>> by_epoch([{"epoch": 0, "train_loss": 2.0}, {"epoch": 0, "train_loss": 1.5}])
    {'train_loss': {0: 1.5}}
    """
    series: dict[str, dict[int, float]] = {}
    for row in rows:
        for name, value in row.items():
            if "epoch" in row and name not in ("step", "epoch"):
                series.setdefault(name, {})[int(row["epoch"])] = value
    return series


# Architecture weights during a search: a small chart for each edge


@dataclass(frozen=True)
class WeightCharts:
    """The charts of a group of decisions.

    Args:
        charts: one for each row of its weights, with equal axes.
        places: row and column of each chart in one picture of all.
        legend: (name, color, dashes) of each line.
        note: what the charts omit.
    """

    charts: Sequence[Picture]
    places: Sequence[tuple[int, int]]
    legend: Sequence[LegendEntry]
    note: str


def draw_weights(history: Sequence[Mapping[str, Any]], group: str) -> Picture:
    """Draw the score of every operation on every edge of a group over epochs.

    The operation with the highest last score is bold. If decisions belong to nodes, each chart is one node.
    Charts are in a table by target (rows) and source (columns) if the cell fills it, else in reading order.

    Args:
        history: entries {"epoch", "groups": {name: {"edges", "ops", "scores"}}}, with scores of shape
            (edges, ops).
        group: its name.
    """
    drawn = weight_charts(history, group)
    grid = in_grid(dict(zip(drawn.places, drawn.charts, strict=True)))
    title = Text((0, 10), f"Weights of the {group} group", 15, align="start", bold=True)
    heading = Picture(grid.width, 24, [title], title.text)
    return in_grid({(0, 0): heading, (1, 0): grid, (2, 0): draw_legend(drawn.legend, grid.width)})


def weight_charts(history: Sequence[Mapping[str, Any]], group: str) -> WeightCharts:
    """Draw the charts of a group, see `draw_weights`; their axes fit the operations other than `none`."""
    entries = thin([entry for entry in history if group in entry["groups"]], MOST_POINTS)
    if not entries:
        raise InputError(
            f"The history must have scores of the group {group!r}", got=f"{len(history)} entries"
        )
    last = entries[-1]["groups"][group]
    edges, ops = [tuple(edge) for edge in last["edges"]], list(last["ops"])
    scores = [entry["groups"][group]["scores"] for entry in entries]  # (epochs, edges, ops)
    columns = {op: [row[column] for epoch in scores for row in epoch] for column, op in enumerate(ops)}
    limits = fit_limits([value for op, values in columns.items() if op != NONE for value in values])
    low, high = limits
    shown = [
        column
        for column, op in enumerate(ops)
        if op != NONE or all(low <= value <= high for value in columns[op])
    ]
    colors, dashes, inputs = line_colors(ops), dash_patterns(ops), min(edge[-1] for edge in edges)
    charts = []
    for row, edge in enumerate(edges):
        leader = max(range(len(ops)), key=lambda column: scores[-1][row][column])
        lines = [
            Series(
                op_label(ops[column]),
                [(e["epoch"] + 1.0, s[row][column]) for e, s in zip(entries, scores, strict=True)],
                colors[column],
                dashes[column],
                column == leader,
            )
            for column in shown
        ]
        title = " → ".join(node_label(n, inputs) for n in edge) if len(edge) == 2 else f"node {edge[0]}"
        note, name = op_label(ops[leader]), f"{group}/{row}"
        chart = line_chart(
            title, lines, width=236, height=154, limits=limits, note=note, row=name, named=False
        )
        charts.append(chart)
    legend = [(op_label(ops[column]), colors[column], dashes[column]) for column in shown]
    note = "" if len(shown) == len(ops) else "The weights of none are outside the axes."
    return WeightCharts(charts, _grid(edges), legend, note)


def line_colors(ops: Sequence[str]) -> list[str]:
    """Return the colors of operations: those of their kinds, and different ones if they have none.

    >>> line_colors(["relu", "skip_connect", "tanh"])
    ['series-0', 'kind-skip', 'series-1']
    """
    others = [op for op in ops if kind(op).key == "other"]
    return [
        f"series-{others.index(op) % len(SERIES)}" if op in others else f"kind-{kind(op).key}" for op in ops
    ]


def _grid(edges: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Return the row and the column of every edge."""
    targets = sorted({edge[-1] for edge in edges})
    sources = sorted({edge[0] for edge in edges})
    pairs = all(len(edge) == 2 for edge in edges)
    if pairs and len(set(edges)) == len(edges) and 2 * len(edges) >= len(targets) * len(sources):
        return [(targets.index(edge[1]), sources.index(edge[0])) for edge in edges]
    columns = math.ceil(math.sqrt(len(edges)))
    return [divmod(number, columns) for number in range(len(edges))]


# A front of several objectives: the first against each of the others


def draw_front(
    candidates: Mapping[str, Sequence[float]], front: Mapping[str, Sequence[float]], knee: int
) -> Picture:
    """Draw a chart for each objective but the first, which is the vertical axis.

    Args:
        candidates: {objective: values} of all candidates.
        front: {objective: values} of the front.
        knee: index of the knee in the front.
    """
    charts = front_charts(candidates, front, knee)
    return side_by_side(charts, len(charts))


def front_charts(
    candidates: Mapping[str, Sequence[float]], front: Mapping[str, Sequence[float]], knee: int
) -> list[Picture]:
    """Draw the charts of `draw_front`."""
    first, *others = front
    charts = []
    for name in others:
        found, best = (
            [Dot("", x, y) for x, y in zip(values[name], values[first], strict=True)]
            for values in (candidates, front)
        )
        groups = [
            Dots("candidates", thin(found, 2000), "soft"),
            Dots("front", best, "series-0", 4),
            Dots("knee", best[knee : knee + 1], "series-1", 6),
        ]
        up, across = (text.replace("_", " ") for text in (first, name))
        charts.append(scatter(f"{up} against {across}", across, groups))
    return charts


def pareto_front(points: Sequence[Point]) -> list[int]:
    """Return the indices of points that no other exceeds in both values, from left to right.

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
