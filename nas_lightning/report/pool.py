"""The pool of a search that scores architectures untrained: two scores against each other, and a table."""

from __future__ import annotations

import csv
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nas_lightning.errors import InputError
from nas_lightning.text import format_number

POOL_FILE = "pool.csv"
MOST_ROWS = 200  # of the table; all are in the file
SIZE, LEFT, BOTTOM = 300, 40, 34


class Dot(NamedTuple):
    """An architecture in the picture.

    Args:
        x: pixels from the left.
        y: pixels from above.
        name: its notation.
        chosen: whether the search ended in it.
    """

    x: float
    y: float
    name: str
    chosen: bool


def read_pool(path: Path, chosen: Sequence[str]) -> Mapping[str, Any]:
    """What the page shows of a pool.

    Args:
        path: the CSV file: `arch`, then the metrics.
        chosen: the notations of what the search ended in.
    """
    names, scores = _read(path)
    metrics = list(scores)
    dots, front = [], ""
    if len(metrics) > 1:
        x, y = (places(scores[metric]) for metric in metrics[:2])
        inside = SIZE - LEFT - BOTTOM
        dots = [
            Dot(LEFT + inside * a, SIZE - BOTTOM - inside * b, name, name in chosen)
            for a, b, name in zip(x, y, names, strict=True)
        ]
        corners = [dots[index] for index in pareto_front(list(zip(x, y, strict=True)))]
        front = " ".join(f"{dot.x:.1f},{dot.y:.1f}" for dot in corners)
    order = sorted(range(len(names)), key=lambda index: names[index] not in chosen)
    rows = [[names[i], *(format_number(scores[m][i]) for m in metrics)] for i in order[:MOST_ROWS]]
    return {
        "metrics": metrics,
        "dots": sorted(dots, key=lambda dot: dot.chosen),  # the chosen one on top
        "front": front,
        "rows": rows,
        "chosen": list(chosen),
        "count": len(names),
        "size": SIZE,
        "left": LEFT,
        "bottom": BOTTOM,
    }


def places(values: Sequence[float]) -> list[float]:
    """The share of the others that a value is above, from 0 to 1; equal values share their mean place.

    >>> places([10.0, 5.0, 1e30, 5.0])
    [0.6666666666666666, 0.16666666666666666, 1.0, 0.16666666666666666]
    """
    order = sorted(-math.inf if math.isnan(value) else value for value in values)
    last = max(len(order) - 1, 1)
    sound = [-math.inf if math.isnan(value) else value for value in values]
    return [(bisect_left(order, value) + bisect_right(order, value) - 1) / 2 / last for value in sound]


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


def _read(path: Path) -> tuple[list[str], dict[str, list[float]]]:
    try:
        text = path.read_text(encoding="utf-8")
        header, *rows = csv.reader(text[: text.rfind("\n") + 1].splitlines())
        names = [row[0] for row in rows]
        scores = {metric: [float(row[i]) for row in rows] for i, metric in enumerate(header[1:], 1)}
    except (ValueError, IndexError, csv.Error) as error:
        raise InputError(f"expected a table of scores: {error}", where=path.name) from None
    if not names or not scores:
        raise InputError("expected at least one scored architecture", where=path.name)
    return names, scores
