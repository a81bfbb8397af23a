"""A run's `metrics.csv`, which a resumed run continues.

Lightning's CSVLogger deletes the file when a run is resumed; `MetricsCSV` appends, and `rewind` drops the
rows that the resumed run computes again.
"""

from __future__ import annotations

import csv
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.errors import InputError
from nas_lightning.utils.files import read_text, replacing
from nas_lightning.utils.tables import escape_formula

METRICS_FILE = "metrics.csv"


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Return the rows of a metrics file, without empty cells."""
    try:
        return [{name: float(value) for name, value in row.items() if value} for row in _read(path)[1]]
    except ValueError as error:
        raise InputError(f"Cannot read the table of numbers: {error}", where=path) from None


class MetricsCSV(Logger):
    """Logs to `metrics.csv`: the columns step and epoch, then the metrics by name; one row per call.

    A new metric adds a column and rewrites the file. A row is on disk when the call returns.

    Args:
        folder: where the file is.

    >>> import tempfile
    >>> logger = MetricsCSV(tempfile.mkdtemp())
    >>> logger.log_metrics({"train_loss": 0.5, "epoch": 0}, step=9)
    >>> logger.finalize("success")
    >>> print(logger.path.read_text(), end="")
    step,epoch,train_loss
    9,0,0.5
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.path = Path(folder) / METRICS_FILE
        self._columns: list[str] = []
        self._known: frozenset[str] = frozenset()
        self._file: IO[str] | None = None

    @property
    def name(self) -> None:
        return None

    @property
    def version(self) -> None:
        return None

    @property
    def save_dir(self) -> str:
        return str(self.path.parent)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        row = _as_text(metrics, step or 0)
        file = self._file or self._open()
        if not row.keys() <= self._known:
            file = self._widen(row)
        file.write(",".join([row.get(name, "") for name in self._columns]) + "\n")

    @rank_zero_only
    def rewind(self, step: int, last: Mapping[str, float] | None = None) -> None:
        """Drop the rows from `step` on; log `last` for the step before unless a row contains it."""
        self.finalize("rewind")
        kept: list[dict[str, str]] = []
        if self.path.is_file():
            columns, rows = _read(self.path)
            kept = [row for row in rows if int(row["step"]) < step]
            _write(self.path, columns, kept)
        if last and not any(_as_text(last, step - 1).items() <= row.items() for row in kept):
            self.log_metrics(last, step - 1)
            self.finalize("rewind")

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Close the file; the next row opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> IO[str]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._columns = _read(self.path)[0] if self.path.is_file() else []
        self._known = frozenset(self._columns)
        self._file = self.path.open("a", encoding="utf-8", buffering=1)  # every row is written at once
        return self._file

    def _widen(self, row: Mapping[str, str]) -> IO[str]:
        self.finalize("new columns")
        rows = _read(self.path)[1]
        names = {*self._columns, *row} - {"step", "epoch"}
        _write(self.path, ["step", "epoch", *sorted(names)], rows)
        return self._open()


def _as_text(metrics: Mapping[str, float], step: int) -> dict[str, str]:
    row = {name: repr(float(value)) for name, value in metrics.items()} | {"step": str(step)}
    return row | {"epoch": str(int(metrics["epoch"]))} if "epoch" in row else row


def _read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return columns and rows; an incomplete last line is ignored."""
    try:
        text = read_text(path)
        reader = csv.DictReader(text[: text.rfind("\n") + 1].splitlines(), restval="")
        columns, rows = list(reader.fieldnames or []), list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"Cannot read the table of metrics: {error}", where=path) from None
    if formulas := [name for name in columns if escape_formula(name) != name]:
        raise InputError("Names of metrics must not be formulas", got=formulas[0], where=path)
    for number, row in enumerate(rows, 1):  # None: cells beyond the columns
        if not row.get("step", "").isdecimal() or None in row or not all(map(_is_number, row.values())):
            expected = "`step` must be an integer, and each row must have a number per column at most"
            raise InputError(expected, got=list(row.values()), where=f"{path}, row {number}")
    return columns, rows


def _is_number(text: str) -> bool:
    try:
        float(text or 0)
    except ValueError:
        return False
    return True


def _write(path: Path, columns: list[str], rows: Iterable[Mapping[str, str]]) -> None:
    """All or nothing, whenever the process is killed."""
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
