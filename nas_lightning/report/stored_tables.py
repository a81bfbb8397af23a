"""Tables that a run has left, as its page shows them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nas_lightning.errors import InputError
from nas_lightning.files import read_text
from nas_lightning.predictions.findings import TEST
from nas_lightning.report.pool import MOST_ROWS
from nas_lightning.runs.findings import TABLES
from nas_lightning.text import format_number


def stored_table(path: Path) -> Mapping[str, Any]:
    """A CSV file with the title that stands in the Markdown beside it."""
    columns, *rows = _read(path)
    texts = [[short_number(cell) for cell in row] for row in rows[:MOST_ROWS]]
    note = f"The first {MOST_ROWS} of {len(rows):,} rows." if len(rows) > MOST_ROWS else ""
    title = _stored_title(path.with_suffix(".md")) or path.stem.replace("_", " ")
    return {"title": title, "note": note, "columns": columns, "rows": texts}


def count_classes(run: Path) -> int:
    """How many classes a training's test images have; 0 where that is not known."""
    table = run / TEST / TABLES / "classes.csv"
    try:
        return len(_read(table)) - 2  # its head, and the mean of the classes
    except (InputError, OSError):
        return 0


def _read(path: Path) -> list[list[str]]:
    """The rows with the head, of which there is one at least."""
    try:
        rows = [*csv.reader(read_text(path).splitlines())]
    except (ValueError, csv.Error) as error:
        raise InputError(f"expected a table: {error}", where=path.name) from None
    if not rows:
        raise InputError("expected a table", got="an empty file", where=path.name)
    return rows


def _stored_title(markdown: Path) -> str:
    """What the table's Markdown has in bold above it; empty where it has not."""
    try:
        first = read_text(markdown).partition("\n")[0]
    except (OSError, ValueError):
        return ""
    return first[2:-2] if first.startswith("**") and first.endswith("**") else ""


def short_number(text: str) -> str:
    """A cell of a CSV file as a reader gets it.

    >>> short_number("0.123456"), short_number("1234"), short_number("a")
    ('0.1235', '1,234', 'a')
    """
    try:
        return format_number(int(text) if text.isdecimal() else float(text))
    except ValueError:
        return text
