"""Lines over epochs as the page draws them: geometry in pixels that a template writes as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

LEFT, RIGHT, TOP, BOTTOM = 54, 10, 8, 24  # pixels around the lines


@dataclass(frozen=True)
class Line:
    """A named line.

    Args:
        name: of the legend.
        points: {epoch: value}, the epochs counted from 1.
        style: CSS class of its colour.
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
