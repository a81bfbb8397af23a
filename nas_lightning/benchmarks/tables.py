"""The table of NAS-Bench-201 on disk: CSV, Parquet, or the official files.

One row an architecture, in percent: `arch`, the test accuracies after 200 epochs `cifar10`, `cifar100` and
`imagenet16-120`, and, where the source has them, validation accuracies after 200 epochs (`cifar10-valid`, …)
and after 12 (`cifar10-valid-12`, …).
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from nas_lightning.benchmarks import official
from nas_lightning.benchmarks.official import ARCH, DATASETS, OPTIONAL, Columns
from nas_lightning.errors import InputError
from nas_lightning.spaces.nasbench201 import EDGES, OPS, NasBench201

ARCHITECTURES = len(OPS) ** len(EDGES)
Table = dict[str, dict[str, float]]
"""column → architecture string → accuracy"""


def read(path: str | Path) -> Table:
    """The table in a file or, for NATS-Bench, a folder; raises for the first row that is wrong."""
    path = Path(path)
    if not path.exists():
        raise InputError("expected a table of NAS-Bench-201", got=str(path), where="benchmark.path")
    columns = _READERS.get(path.suffix, official.read)(path)
    return _checked(columns, path)


def write_parquet(table: Table, path: Path) -> None:
    """A file of about a megabyte, complete or not there."""
    arrow, parquet = _pyarrow(path)
    archs = list(table[DATASETS[0]])
    columns = {name: [values[arch] for arch in archs] for name, values in table.items()}
    partial = path.with_name(f"{path.name}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(arrow.table({ARCH: archs, **columns}), partial, compression="zstd")
    os.replace(partial, path)


def _read_csv(path: Path) -> Columns:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = list(csv.reader(file)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"expected a CSV file: {error}", where=path) from None
    if len(set(header)) != len(header):
        raise InputError("expected distinct columns", got=", ".join(header), where=path)
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise InputError(f"expected {len(header)} values", got=len(row), where=f"{path}, row {number}")
    return {name: [row[index] for row in rows] for index, name in enumerate(header)}


def _read_parquet(path: Path) -> Columns:
    arrow, parquet = _pyarrow(path)
    try:
        return parquet.read_table(path, memory_map=False).to_pydict()
    except (OSError, arrow.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"expected a Parquet file: {reason[:200]}", where=path) from None


def _pyarrow(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise InputError("expected the package pyarrow (pip install pyarrow)", where=path) from None
    return pyarrow, pyarrow.parquet


_READERS: Mapping[str, Callable[[Path], Columns]] = {".csv": _read_csv, ".parquet": _read_parquet}


def _checked(columns: Columns, path: Path) -> Table:
    missing = [name for name in (ARCH, *DATASETS) if name not in columns]
    if missing:
        raise InputError(f"expected a column {missing[0]!r}", got=", ".join(map(str, columns)), where=path)
    archs = _checked_archs(columns[ARCH], path)
    names = [*DATASETS, *(name for name in OPTIONAL if name in columns)]
    table = {name: dict(zip(archs, _accuracies(columns[name], name, path), strict=True)) for name in names}
    if len(archs) != ARCHITECTURES:
        raise InputError(f"expected {ARCHITECTURES} architectures", got=len(archs), where=path)
    return table


def _checked_archs(archs: Sequence[Any], path: Path) -> list[str]:
    space, known = NasBench201(), all_strings()
    seen: dict[str, int] = {}
    for number, arch in enumerate(archs, 1):
        where = f"{path}, row {number}"
        if arch not in known:
            try:
                space.parse(str(arch))
            except InputError as error:
                raise InputError(str(error), where=where) from None
            raise InputError("expected |op~0|+|op~0|op~1|+|op~0|op~1|op~2|", got=arch, where=where)
        if arch in seen:
            raise InputError(
                f"expected each architecture once: also in row {seen[arch]}", got=arch, where=where
            )
        seen[arch] = number
    return list(seen)


def all_strings() -> set[str]:
    """The 15,625 architecture strings."""
    pattern = "|{}~0|+|{}~0|{}~1|+|{}~0|{}~1|{}~2|"
    return {pattern.format(*ops) for ops in product(OPS, repeat=len(EDGES))}


def _accuracies(values: Sequence[Any], name: str, path: Path) -> list[float]:
    found = []
    for number, value in enumerate(values, 1):
        try:
            accuracy = float(value)
        except (TypeError, ValueError):
            accuracy = float("nan")
        if not 0 <= accuracy <= 100:
            expected = f"expected {name} as a percentage from 0 to 100"
            raise InputError(expected, got=value, where=f"{path}, row {number}")
        found.append(accuracy)
    return found
