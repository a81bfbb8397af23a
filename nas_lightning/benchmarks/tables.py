"""The table of NAS-Bench-201 on disk: CSV, Parquet, or the official files.

One row an architecture, in percent: `arch`, the test accuracies after 200 epochs `cifar10`, `cifar100` and
`imagenet16-120`, and, where the source has them, validation accuracies after 200 epochs (`cifar10-valid`, …)
and after 12 (`cifar10-valid-12`, …).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from nas_lightning.benchmarks.base import AccuracyTable
from nas_lightning.benchmarks.formats import official
from nas_lightning.benchmarks.formats.columns import (
    READERS,
    SECONDS,
    Columns,
    parse_numbers,
    parse_percentages,
    require_columns,
)
from nas_lightning.benchmarks.formats.official import ARCH, DATASETS, OPTIONAL
from nas_lightning.errors import InputError
from nas_lightning.spaces.nasbench201 import EDGES, OPS, NasBench201

ARCHITECTURES = len(OPS) ** len(EDGES)


def read(path: str | Path, *, trust: bool = False) -> AccuracyTable:
    """The table in a file or, for NATS-Bench, a folder; raises for the first row that is wrong.

    `trust` allows official files, which can run code.
    """
    path = Path(path)
    if not path.exists():
        raise InputError("expected a table of NAS-Bench-201", got=str(path), where="benchmark.path")
    known = READERS.get(path.suffix)
    return _check_columns(official.read(path, trust=trust) if known is None else known(path), path)


def columns_of(table: AccuracyTable) -> Columns:
    """The table as its file has it."""
    archs = list(table[DATASETS[0]])
    return {ARCH: archs, **{name: [values[arch] for arch in archs] for name, values in table.items()}}


def read_validation(path: str | Path) -> tuple[AccuracyTable, dict[str, float] | None]:
    """The columns `<data set>_valid` as those after 12 epochs, and the seconds where the file has them."""
    path = Path(path)
    if path.suffix not in READERS or not path.is_file():
        expected = "expected a CSV or Parquet file of validation accuracies"
        raise InputError(expected, got=str(path), where="benchmark.validation")
    columns = READERS[path.suffix](path)
    known = [name for name in DATASETS if f"{name}_valid" in columns]
    require_columns(columns, (ARCH, *(f"{name}_valid" for name in known or DATASETS[:1])), path)
    archs = _check_all(columns[ARCH], path)
    table = {
        f"{name}-valid-12": dict(
            zip(archs, parse_percentages(columns[f"{name}_valid"], f"{name}_valid", path), strict=True)
        )
        for name in known
    }
    seconds = parse_numbers(columns, SECONDS, path) if SECONDS in columns else None
    return table, None if seconds is None else dict(zip(archs, seconds, strict=True))


def _check_columns(columns: Columns, path: Path) -> AccuracyTable:
    require_columns(columns, (ARCH, *DATASETS), path)
    archs = _check_all(columns[ARCH], path)
    names = [*DATASETS, *(name for name in OPTIONAL if name in columns)]
    table = {
        name: dict(zip(archs, parse_percentages(columns[name], name, path), strict=True)) for name in names
    }
    return table


def _check_all(names: Sequence[Any], path: Path) -> list[str]:
    archs = _check_architectures(names, path)
    if len(archs) != ARCHITECTURES:
        raise InputError(f"expected {ARCHITECTURES} architectures", got=len(archs), where=path)
    return archs


def _check_architectures(archs: Sequence[Any], path: Path) -> list[str]:
    space, known = NasBench201(), all_notations()
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


def all_notations() -> set[str]:
    """The 15,625 architecture strings."""
    pattern = "|{}~0|+|{}~0|{}~1|+|{}~0|{}~1|{}~2|"
    return {pattern.format(*ops) for ops in product(OPS, repeat=len(EDGES))}
