"""The pool of a search that scores architectures untrained: two scores against each other, and a table."""

from __future__ import annotations

import csv
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nas_lightning.errors import InputError
from nas_lightning.files import read_text
from nas_lightning.report.scatter import Point, draw_scatter
from nas_lightning.text import format_number

POOL_FILE = "pool.csv"
MOST_ROWS = 200  # of the table; all are in the file


def read_pool(path: Path, chosen: Sequence[str]) -> Mapping[str, Any]:
    """What the page shows of a pool.

    Args:
        path: the CSV file: `arch`, then the metrics.
        chosen: the notations of what the search ended in.
    """
    names, scores = _read(path)
    metrics = list(scores)
    scatter = None
    if len(metrics) > 1:
        x, y = (places(scores[metric]) for metric in metrics[:2])
        points = [
            Point(name, 100 * a, 100 * b, name in chosen) for name, a, b in zip(names, x, y, strict=True)
        ]
        note = f"{len(names)} architectures by their places; 100 is the largest score"
        scatter = draw_scatter(
            f"{metrics[1]} against {metrics[0]}", metrics[0], points, note=note, limits=(0, 100)
        )
    order = sorted(range(len(names)), key=lambda index: names[index] not in chosen)
    rows = [[names[i], *(format_number(scores[m][i]) for m in metrics)] for i in order[:MOST_ROWS]]
    return {
        "metrics": metrics,
        "scatter": scatter,
        "rows": rows,
        "chosen": list(chosen),
        "count": len(names),
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


def _read(path: Path) -> tuple[list[str], dict[str, list[float]]]:
    try:
        text = read_text(path)
        header, *rows = csv.reader(text[: text.rfind("\n") + 1].splitlines())
        names = [row[0] for row in rows]
        scores = {metric: [float(row[i]) for row in rows] for i, metric in enumerate(header[1:], 1)}
    except (ValueError, IndexError, csv.Error) as error:
        raise InputError(f"expected a table of scores: {error}", where=path.name) from None
    if not names or not scores:
        raise InputError("expected at least one scored architecture", where=path.name)
    return names, scores
