"""Points on two axes as the page draws them, with the line of those that no other is better than in both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nas_lightning.report.charts import fit_limits, tick_texts, ticks

SIZE, LEFT, BOTTOM, EDGE = 300, 54, 38, 6


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
    left: int = LEFT
    bottom: int = BOTTOM


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
        return LEFT + (SIZE - LEFT - EDGE) * (value - left) / (right - left)

    def y(value: float) -> float:
        return SIZE - BOTTOM - (SIZE - BOTTOM - EDGE) * (value - low) / (high - low)

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
