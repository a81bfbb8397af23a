"""Tables on disk, CSV and Parquet, and the command that turns official files into them."""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

from nas_lightning.errors import InputError
from nas_lightning.files import check_file, replacing
from nas_lightning.flags import FlagParser, command, place_to_write
from nas_lightning.lock import hold_file

Columns = Mapping[str, Sequence[Any]]
SECONDS = "seconds"
"""The column of what an evaluation takes."""


SETTING = "#"
"""What the lines above a CSV file's columns begin with: `# name: value`."""


def read_settings(path: Path) -> dict[str, str]:
    """The settings above a CSV file's columns; none where there are no such lines."""
    check_file(path)
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        lines = [line.lstrip(SETTING) for line in takewhile(lambda line: line.startswith(SETTING), file)]
    settings: dict[str, str] = {}
    for name, _, value in (map(str.strip, line.partition(":")) for line in lines):
        if settings.setdefault(name, value) != value:
            raise InputError(f"expected one {name}", got=f"{settings[name]}, {value}", where=path)
    return settings


def read_csv(path: Path) -> Columns:
    check_file(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets begin it with a mark
            lines = dropwhile(lambda line: line.startswith(SETTING), file)
            header, *rows = [row for row in csv.reader(lines) if row] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"expected a CSV file: {error}", where=path) from None
    if len(header) == 1 and {";", "\t"} & set(header[0]):
        raise InputError("expected commas between the columns", got=header[0], where=path)
    if len(set(header)) != len(header):
        raise InputError("expected distinct columns", got=", ".join(header), where=path)
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise InputError(f"expected {len(header)} values", got=len(row), where=f"{path}, row {number}")
    return {name: [row[index] for row in rows] for index, name in enumerate(header)}


def read_parquet(path: Path) -> Columns:
    check_file(path)
    arrow, parquet = _pyarrow(path)
    try:
        return parquet.read_table(path, memory_map=False).to_pydict()
    except (OSError, arrow.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"expected a Parquet file: {reason[:200]}", where=path) from None


READERS: Mapping[str, Callable[[Path], Columns]] = {".csv": read_csv, ".parquet": read_parquet}


def write_parquet(columns: Columns, path: Path) -> None:
    """The file, complete or not there."""
    arrow, parquet = _pyarrow(path)
    with replacing(path) as partial:
        parquet.write_table(arrow.table(dict(columns)), partial, compression="zstd")


def _pyarrow(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise InputError("expected the package pyarrow (pip install pyarrow)", where=path) from None
    return pyarrow, pyarrow.parquet


def require_columns(columns: Columns, names: Sequence[str], path: Path) -> None:
    """Raise unless all those columns are there."""
    for name in names:
        if name not in columns:
            raise InputError(f"expected a column {name!r}", got=", ".join(map(str, columns)), where=path)


def is_number(entry: Any) -> bool:
    """Whether it reads as a finite number."""
    try:
        return math.isfinite(float(entry))
    except (TypeError, ValueError):
        return False


def parse_numbers(columns: Columns, name: str, path: Path) -> list[float]:
    """A column as numbers; raises for the first entry that is none."""
    require_columns(columns, (name,), path)
    for number, entry in enumerate(columns[name], 1):
        if not is_number(entry):
            raise InputError(f"expected a number in {name}", got=entry, where=f"{path}, row {number}")
    return [float(entry) for entry in columns[name]]


def parse_percentages(values: Sequence[Any], name: str, path: Path) -> list[float]:
    """The values as numbers; raises for the first that is no percentage."""
    accuracies = []
    for number, value in enumerate(values, 1):
        try:
            accuracy = float(value)
        except (TypeError, ValueError):
            accuracy = float("nan")
        if not 0 <= accuracy <= 100:
            expected = f"expected {name} as a percentage from 0 to 100"
            raise InputError(expected, got=value, where=f"{path}, row {number}")
        accuracies.append(accuracy)
    return accuracies


def run_convert(
    module: str,
    source: str,
    convert: Callable[[argparse.Namespace], str],
    arguments: Sequence[str] | None,
    flags: Mapping[str, str] | None = None,
) -> None:
    """The command `python -m module convert SOURCE TARGET.parquet`, which prints what `convert` returns."""
    parser = FlagParser(prog=f"python -m {module}")
    commands = parser.add_subparsers(required=True)
    converter = commands.add_parser(
        "convert", help="turn an official file, or a CSV, into a small Parquet file"
    )
    converter.add_argument("source", type=Path, help=source)
    converter.add_argument("target", type=place_to_write, help="the .parquet file to write")
    for flag, help_line in (flags or {}).items():
        converter.add_argument(flag, action="store_true", help=help_line)

    @command
    def run(words: Sequence[str] | None) -> None:
        options = parser.parse_args(words)
        if options.target.suffix != ".parquet":
            raise InputError("expected a target that ends in .parquet", got=options.target.name)
        with hold_file(options.target):
            print(f"{convert(options)} → {options.target}")

    run(arguments)
