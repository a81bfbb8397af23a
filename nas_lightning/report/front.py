"""A front on the page of its search."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from nas_lightning.errors import InputError
from nas_lightning.files import read_text
from nas_lightning.report.stored_tables import short_number
from nas_lightning.runs.folder import CANDIDATES, FRONT, RunFolder

_AROUND = ("index", "knee", "genotype")
"""The columns of `front.csv` beside the objectives."""


def read_front(path: Path) -> Mapping[str, Any] | None:
    """What the page shows of a front; None for a search of one objective."""
    run = RunFolder(path)
    if not run.front.is_file():
        return None
    try:
        return _read_sound(run)
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"expected tables of a front: {error}", where=f"{FRONT}, {CANDIDATES}") from None


def _read_sound(run: RunFolder) -> Mapping[str, Any]:
    from nas_lightning.plots.front import draw_front
    from nas_lightning.plots.style import theme_svg

    header, rows = _read(run.front)
    names = [name for name in header if name not in _AROUND]
    front, looked_at = _numbers(header, rows, names), _numbers(*_read(run.candidates), names)
    if not front or not all(math.isfinite(value) for values in front.values() for value in values):
        raise ValueError("a number of each objective is missing")
    knee = [row[header.index("knee")] for row in rows].index("knee")
    svg = Markup(theme_svg(draw_front(looked_at, front, knee), "front"))
    shown = [name for name in header if name != "genotype"]
    texts = [[short_number(row[header.index(name)]) for name in shown] for row in rows]
    note = f"{FRONT} has the genotypes, too."
    table = {"title": "The front", "note": note, "columns": shown, "rows": texts}
    return {"tables": [table], "figures": [{"title": "front", "svg": svg}]}


def _numbers(
    header: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]
) -> dict[str, list[float]]:
    return {name: [float(row[header.index(name)]) for row in rows] for name in names}


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    header, *rows = csv.reader(read_text(path).splitlines())
    if not rows or any(len(row) != len(header) for row in rows):
        raise ValueError(f"{path.name} is no table")
    return header, rows
