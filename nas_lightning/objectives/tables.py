"""Tabular benchmarks: NAS-Bench-101, NAS-Bench-201, and any table of genotypes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import torch
from pytorch_lightning.utilities.rank_zero import rank_zero_warn

from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.table_formats import (
    ARCH,
    DATASET,
    DATASETS,
    EPOCHS,
    HASH,
    LENGTHS,
    MODULE,
    OPTIONAL,
    READERS,
    SECONDS,
    Columns,
    is_number,
    parse_numbers,
    parse_percentages,
    read_official201,
    require_columns,
)
from nas_lightning.spaces.base import SearchSpace, draw_distinct
from nas_lightning.spaces.nasbench101 import OPS as NASBENCH101_OPS
from nas_lightning.spaces.nasbench101 import NasBench101
from nas_lightning.spaces.nasbench201 import EDGES, OPS, NasBench201
from nas_lightning.validation import checked

# The contract of tabular benchmarks: accuracies of trained networks, validation and test apart.

AccuracyTable = Mapping[str, Mapping[str, float]]
"""column → name of an architecture → accuracy"""


class UnknownArchitectureError(InputError):
    """A table was asked for an architecture that it lacks."""


@dataclass(frozen=True)
class TableEntry:
    """Accuracies of an architecture in percent, by data set; None if the table lacks them.

    Args:
        test: test accuracy after all epochs.
        valid: validation accuracy after all epochs.
        valid_12: validation accuracy after 12 epochs.
    """

    test: Mapping[str, float]
    valid: Mapping[str, float] | None
    valid_12: Mapping[str, float] | None


class TabularBenchmark(ABC):
    """Accuracies of trained networks, in percent, by the name of an architecture.

    Searches may use `valid_accuracy`, which never reads a test column; a search that reads test accuracies is
    an oracle (`OracleAccuracy`).
    """

    title: ClassVar[str]
    datasets: ClassVar[tuple[str, ...]]
    epochs: ClassVar[int]
    """Epochs of the whole training."""
    lengths: ClassVar[tuple[int, ...]]
    """Numbers of epochs after which there may be validation accuracies."""
    spaces: ClassVar[tuple[str, ...]]
    """Names of the spaces of the table's architectures."""
    ops: ClassVar[tuple[str, ...]]
    """Operations of these architectures."""
    table: AccuracyTable
    """Test accuracies `<data set>`, and validation accuracies `<data set>-valid` and `…-valid-<epochs>`."""
    dataset: str
    """The data set of `describe` and of defaults."""
    seconds: Mapping[str, float] | None = None
    """Cost of an evaluation, by name of an architecture; None if unknown."""
    space: SearchSpace
    """The space that names the architectures."""
    entries: str = "an architecture of the table"
    """What a query must be for, in error messages."""

    @abstractmethod
    def key(self, genotype: Genotype) -> str:
        """Return the name of an architecture in the table."""

    @abstractmethod
    def architecture(self, key: str) -> Genotype:
        """Return the architecture of that name."""

    def sample(self, space: SearchSpace, count: int, seed: int) -> list[Genotype]:
        """Sample distinct architectures; a larger sample of the same seed begins with the smaller one."""
        return draw_distinct(space, count, torch.Generator().manual_seed(seed))

    def query(self, genotype: Genotype) -> TableEntry:
        test = {name: self.column(name, genotype) for name in self.datasets}
        return TableEntry(test, self._optional(genotype, "valid"), self._optional(genotype, "valid-12"))

    def _optional(self, genotype: Genotype, what: str) -> dict[str, float] | None:
        found = {name: f"{name}-{what}" for name in self.datasets if f"{name}-{what}" in self.table}
        return {name: self.column(column, genotype) for name, column in found.items()} or None

    def valid_accuracy(
        self, genotype: Genotype, dataset: str | None = None, *, epochs: int | None = None
    ) -> float:
        """Return the validation accuracy in percent after so many epochs (default: all)."""
        return self.column(self.validation_column(dataset, epochs), genotype)

    def validation_column(self, dataset: str | None = None, epochs: int | None = None) -> str:
        """Return the name of a validation column; raise if the table lacks it."""
        epochs = self.epochs if epochs is None else epochs
        if epochs not in self.lengths:
            *others, last = map(str, self.lengths)
            raise InputError(f"`epochs` must be {', '.join(others)} or {last}", got=epochs)
        name = f"{self._dataset(dataset)}-valid" + ("" if epochs == self.epochs else f"-{epochs}")
        if name not in self.table:
            raise InputError(
                f"The table must have the column {name!r} (make it from an official file by convert)",
                got=", ".join(self.table),
                where="benchmark.path",
            )
        return name

    def knows(self, genotype: Genotype) -> bool:
        """Return whether the table has the architecture."""
        return self.key(genotype) in self.table[self.dataset]

    def column(self, name: str, genotype: Genotype) -> float:
        """Return the value of a column for a genotype; raise if the column lacks it."""
        return self._look_up(self.table[name], genotype)

    def _look_up(self, values: Mapping[str, float], genotype: Genotype) -> float:
        key = self.key(genotype)
        if key not in values:
            got = self.space.notation(genotype)
            raise UnknownArchitectureError(
                f"The architecture must be {self.entries}", got=got, where="benchmark.path"
            )
        return values[key]

    def seconds_of(self, genotype: Genotype) -> float | None:
        """Return the cost of an evaluation, None if unknown."""
        return None if self.seconds is None else self._look_up(self.seconds, genotype)

    def rank(self, genotype: Genotype, dataset: str | None = None) -> int:
        """Return the rank by test accuracy from 1 on; equal architectures share the better rank."""
        name = self._dataset(dataset)
        accuracy = self.column(name, genotype)
        return 1 + sum(other > accuracy for other in self.table[name].values())

    def best(self, dataset: str | None = None) -> Genotype:
        """Return the architecture with the best test accuracy."""
        column = self.table[self._dataset(dataset)]
        return self.architecture(max(column, key=lambda key: column[key]))

    def describe(self, genotype: Genotype) -> dict[str, float]:
        """Return test accuracy (from 0 to 1) and rank for the summary of a search; empty if unknown."""
        if not self.knows(genotype):
            return {}
        return {
            "true_accuracy": self.column(self.dataset, genotype) / 100,
            "true_rank": self.rank(genotype),
        }

    def check_space(self, space: SearchSpace) -> None:
        """Raise unless the table has the architectures of the space."""
        if space.name not in self.spaces:
            expected = " or ".join(f"space={name}" for name in self.spaces)
            raise InputError(f"The benchmark needs {expected}", got=space.name)
        for op in space.settings.get("ops", ()):
            if op not in self.ops:
                raise InputError(
                    f"Operations must be those of {self.title} ({near_match(op, self.ops)})", got=op
                )

    def _dataset(self, dataset: str | None) -> str:
        if dataset is not None:
            self.check_dataset(dataset)
        return dataset or self.dataset

    @classmethod
    def check_dataset(cls, dataset: str) -> None:
        """Raise unless the benchmark has the data set."""
        if dataset not in cls.datasets:
            raise InputError(
                f"Unknown data set of {cls.title} ({near_match(dataset, cls.datasets)})",
                got=dataset,
                where="benchmark.dataset",
            )


# Files of NAS-Bench-201: CSV, Parquet, or the official files.
#
# One row per architecture, in percent: `arch`, the test accuracies after 200 epochs `cifar10`, `cifar100` and
# `imagenet16-120`, and, where the source has them, validation accuracies after 200 epochs (`cifar10-valid`,
# …) and after 12 (`cifar10-valid-12`, …).

ARCHITECTURES = len(OPS) ** len(EDGES)


def read_nasbench201(path: str | Path, *, trust: bool = False) -> AccuracyTable:
    """Read and check a file of NAS-Bench-201, or a folder of NATS-Bench.

    Args:
        path: the file or folder.
        trust: read official files, which can run code.
    """
    path = Path(path)
    if not path.exists():
        raise InputError("The file must be a table of NAS-Bench-201", got=str(path), where="benchmark.path")
    known = READERS.get(path.suffix)
    return _check_columns(read_official201(path, trust=trust) if known is None else known(path), path)


def columns_of(table: AccuracyTable) -> Columns:
    """Return the table as columns of a file."""
    archs = list(table[DATASETS[0]])
    return {ARCH: archs, **{name: [values[arch] for arch in archs] for name, values in table.items()}}


def read_validation(path: str | Path) -> tuple[AccuracyTable, dict[str, float] | None]:
    """Read `<data set>_valid`, accuracies after 12 epochs, and the optional column of seconds."""
    path = Path(path)
    if path.suffix not in READERS or not path.is_file():
        expected = "Validation accuracies need a CSV or Parquet file"
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
        raise InputError(f"There must be {ARCHITECTURES} architectures", got=len(archs), where=path)
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
            raise InputError(
                "Architectures must be |op~0|+|op~0|op~1|+|op~0|op~1|op~2|", got=arch, where=where
            )
        if arch in seen:
            raise InputError(
                f"Architectures must be distinct; this one is also in row {seen[arch]}", got=arch, where=where
            )
        seen[arch] = number
    return list(seen)


def all_notations() -> set[str]:
    """Return the 15,625 architecture strings."""
    pattern = "|{}~0|+|{}~0|{}~1|+|{}~0|{}~1|{}~2|"
    return {pattern.format(*ops) for ops in product(OPS, repeat=len(EDGES))}


# Custom tables: a CSV or Parquet file with architectures of any space.
#
#     genotype,cifar10_valid          arch,cifar10,seconds          matrix,ops,cifar10_valid
#     "Genotype(normal=[…",92.9       |none~0|+|…,91.2,180          "[[0,1…","[""input"",…",93.8
#
# An architecture is in `genotype` or `arch`, in any notation that the space reads, or in `matrix` and `ops`
# as NAS-Bench-101 has it. Every other column is a value, the larger the better: a validation accuracy if its
# name
# ends in `valid`, which a search may look at, and a test accuracy otherwise. `seconds` is what an evaluation
# took. Rows of one architecture, which a space may write in several ways, are averaged.

_NAMES = ("genotype", "arch")
_MODULE = ("matrix", "ops")


class GenotypeTable(TabularBenchmark):
    r"""A table of architectures of any space, read and checked at once.

    Args:
        path: a `.csv` or `.parquet` file.
        space: the space of the architectures.
        value: the column that a search maximizes and results are compared by. Default: the first.

    >>> from tempfile import TemporaryDirectory
    >>> from nas_lightning.spaces import Mlp
    >>> space = Mlp(layers=3)
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "mine.csv")
    ...     _ = path.write_text("genotype,digits_valid\nrelu|relu,91.5\nrelu|tanh,93.0\n")
    ...     table = GenotypeTable(path, space)
    >>> table.valid_accuracy(space.parse("relu|tanh")), space.notation(table.best())
    (93.0, 'relu|tanh')
    """

    title = "the table"
    epochs, lengths = 1, (1,)  # unknown

    def __init__(self, path: str | Path, space: SearchSpace, value: str | None = None) -> None:
        path = Path(path)
        columns = _read(path)
        self.space, self.path = space, path
        names = _names_of(columns, space, path)
        self.table = {
            name: _means(names, parse_numbers(columns, name, path)) for name in _values(columns, path)
        }
        self.seconds = _means(names, parse_numbers(columns, SECONDS, path)) if SECONDS in columns else None
        self.datasets = tuple(self.table)  # type: ignore[misc]
        self.spaces = (space.name,)  # type: ignore[misc]
        self.entries = f"an architecture of {path}"
        self.dataset = value or self.datasets[0]
        if self.dataset not in self.table:
            expected = f"Unknown column ({near_match(self.dataset, self.datasets)})"
            raise InputError(expected, got=value, where="benchmark.value")

    def key(self, genotype: Genotype) -> str:
        return self.space.notation(genotype)

    def architecture(self, key: str) -> Genotype:
        return self.space.parse(key)

    def sample(self, space: SearchSpace, count: int, seed: int) -> list[Genotype]:
        """Sample architectures of the table."""
        names = list(self.table[self.dataset])
        if count > len(names):
            raise InputError(
                f"A sample can have at most the table's {len(names)} architectures",
                got=count,
                where=self.path,
            )
        order = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed)).tolist()
        return [self.architecture(names[index]) for index in order[:count]]

    def query(self, genotype: Genotype) -> TableEntry:
        known = {name: self.column(name, genotype) for name in self.datasets}
        valid = {name: value for name, value in known.items() if name.endswith("valid")}
        return TableEntry({name: known[name] for name in known if name not in valid}, valid or None, None)

    def validation_column(self, dataset: str | None = None, epochs: int | None = None) -> str:
        name = dataset or self.dataset
        if not name.endswith("valid") or name not in self.table:
            expected = "There must be a column of validation accuracies, whose name ends in valid"
            raise InputError(expected, got=name, where="benchmark.value")
        return name

    def describe(self, genotype: Genotype) -> dict[str, float]:
        """Return the value and its rank; empty if the table lacks the architecture."""
        if not self.knows(genotype):
            return {}
        return {
            f"table/{self.dataset}": self.column(self.dataset, genotype),
            "table/rank": self.rank(genotype, self.dataset),
        }

    def _dataset(self, dataset: str | None) -> str:
        return dataset or self.dataset


def _read(path: Path) -> Columns:
    if path.suffix not in READERS or not path.is_file():
        raise InputError("The table must be a .csv or .parquet file", got=str(path), where="benchmark.path")
    return READERS[path.suffix](path)


def _names_of(columns: Columns, space: SearchSpace, path: Path) -> list[str]:
    """Return each row's architecture in the space's notation."""
    names = []
    for number, text in enumerate(_notations(columns, path), 1):
        try:
            names.append(space.notation(space.parse(text)))
        except InputError as error:
            raise InputError(str(error), where=f"{path}, row {number}") from None
    if not names:
        raise InputError("There must be at least one architecture", where=path)
    return names


def _notations(columns: Columns, path: Path) -> Sequence[str | Mapping[str, Any]]:
    for name in _NAMES:
        if name in columns:
            return [str(text) for text in columns[name]]
    if not all(name in columns for name in _MODULE):
        expected = "There must be a column `genotype` or `arch`, or columns `matrix` and `ops`"
        raise InputError(expected, got=", ".join(columns), where=path)
    pairs = zip(columns["matrix"], columns["ops"], strict=True)
    return [f'{{"matrix": {matrix}, "ops": {ops}}}' for matrix, ops in pairs]


def _values(columns: Columns, path: Path) -> list[str]:
    """Return the columns that contain numbers."""
    others = [name for name in columns if name not in (*_NAMES, *_MODULE, SECONDS)]
    found = [name for name in others if any(map(is_number, columns[name]))]
    if not found:
        raise InputError("There must be a column of numbers", got=", ".join(columns), where=path)
    return found


def _means(names: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    found = defaultdict(list)
    for name, value in zip(names, values, strict=True):
        found[name].append(value)
    return {name: fmean(values) for name, values in found.items()}


# NAS-Bench-101 (Ying et al. 2019, arXiv:1902.09635). The official file is converted into a small table once,
# without TensorFlow:
#
#     python -m nas_lightning.objectives.convert nasbench_only108.tfrecord TARGET.parquet

COMMAND = "python -m nas_lightning.objectives.convert"


class TabularNasBench101(TabularBenchmark):
    r"""CIFAR-10 accuracies after 108 epochs, means over three runs; after 4, 12, and 36 from the full file.

    Args:
        path: a `.parquet` or `.csv` table from `python -m nas_lightning.objectives.convert`.

    >>> from tempfile import TemporaryDirectory
    >>> module = {"matrix": [[0, 1, 0], [0, 0, 1], [0, 0, 0]], "ops": ["input", NASBENCH101_OPS[0], "output"]}
    >>> genotype = NasBench101().parse(module)
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "part.csv")
    ...     row = f'{NasBench101().hash(genotype)},"{NasBench101().notation(genotype)}",92.5'
    ...     _ = path.write_text(f"{HASH},{MODULE},{DATASET}\n{row}\n")
    ...     table = TabularNasBench101(path)
    >>> table.column("cifar10", genotype)
    92.5
    """

    title = "NAS-Bench-101"
    datasets = (DATASET,)
    epochs, lengths = EPOCHS, LENGTHS
    spaces = ("nasbench101", "nasbench1shot1")
    ops = NASBENCH101_OPS
    space: NasBench101

    @checked
    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        columns = _read_nasbench101(path)
        require_columns(columns, (HASH, MODULE, DATASET), path)
        self.modules = dict(zip(columns[HASH], columns[MODULE], strict=True))
        if len(self.modules) != len(columns[HASH]) or not self.modules:
            raise InputError(
                "Modules must be distinct, and there must be at least one", got=len(columns[HASH]), where=path
            )
        names = [name for name in columns if str(name).startswith(DATASET)]
        values = {name: parse_percentages(columns[name], name, path) for name in names}
        self.table = {name: dict(zip(columns[HASH], value, strict=True)) for name, value in values.items()}
        self.space, self.dataset = NasBench101(), DATASET
        self.entries = f"a module of the table's {len(self.modules):,}"

    def key(self, genotype: Genotype) -> str:
        return self.space.hash(genotype)

    def architecture(self, key: str) -> Genotype:
        return self.space.parse(self.modules[key])


def _read_nasbench101(path: Path) -> Columns:
    if path.suffix not in READERS:
        expected = f"The table must be .parquet or .csv. To convert: {COMMAND} FILE.tfrecord TABLE.parquet"
        raise InputError(expected, got=path.name, where="benchmark.path")
    if not path.is_file():
        raise InputError("The file must be a table of NAS-Bench-101", got=str(path), where="benchmark.path")
    return READERS[path.suffix](path)


# NAS-Bench-201 (Dong & Yang 2020, arXiv:2001.00326). The official files are converted into a small table
# once:
#
#     python -m nas_lightning.objectives.convert SOURCE TARGET.parquet


class TabularNasBench201(TabularBenchmark):
    r"""The accuracies of all 15,625 architectures, after 200 epochs or after 12.

    Args:
        path: a `.csv` or `.parquet` table, or an official file or folder of NAS-Bench-201 or NATS-Bench.
        dataset: `cifar10`, `cifar100`, or `imagenet16-120`: the default of queries.
        validation: a file `arch, <dataset>_valid, seconds` of validation accuracies after 12 epochs and their
            cost, for tables without them.
        trust: also read official files, which are pickles and can run code.

    >>> from tempfile import TemporaryDirectory
    >>> from nas_lightning.objectives.tables import all_notations
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "mine.csv")
    ...     rows = [f"{name},{number / 200},50,30" for number, name in enumerate(sorted(all_notations()))]
    ...     _ = path.write_text("\n".join(["arch,cifar10,cifar100,imagenet16-120", *rows]))
    ...     table = TabularNasBench201(path)
    >>> table.rank(table.best()), table.column("cifar10", table.best())
    (1, 78.12)
    """

    title = "NAS-Bench-201"
    datasets = DATASETS
    epochs, lengths = 200, (12, 200)
    spaces = ("nasbench201",)
    ops = OPS

    @checked
    def __init__(
        self,
        path: str | Path,
        dataset: str = "cifar10",
        trust: bool = False,
        validation: str | Path | None = None,
    ) -> None:
        self.check_dataset(dataset)
        self.space, self.dataset = NasBench201(), dataset
        self.table = read_nasbench201(path, trust=trust)
        if validation is not None:
            columns, self.seconds = read_validation(validation)
            self.table = {**self.table, **columns}

    def key(self, genotype: Genotype) -> str:
        return self.space.notation(genotype)

    def architecture(self, key: str) -> Genotype:
        return self.space.parse(key)


# Objectives of searches that query a table. Searches may use validation accuracies. One that uses test
# accuracies is an oracle, an upper bound and not a result, and its name says so in metrics and reports.


@dataclass(frozen=True)
class ValidationAccuracy:
    """The validation accuracy in percent after some epochs.

    Args:
        benchmark: the table.
        epochs: number of epochs. Default: all.
    """

    benchmark: TabularBenchmark
    epochs: int | None = None

    def __post_init__(self) -> None:
        self.benchmark.validation_column(epochs=self.epochs)  # raises if there is none

    @property
    def name(self) -> str:
        whole = self.epochs in (None, self.benchmark.epochs)
        return "valid_accuracy" if whole else f"valid_accuracy_{self.epochs}_epochs"

    def __call__(self, genotype: Genotype) -> float:
        return self.benchmark.valid_accuracy(genotype, epochs=self.epochs)

    def seconds(self, genotype: Genotype) -> float | None:
        """Return the cost of the training, None if unknown."""
        return self.benchmark.seconds_of(genotype)


@dataclass(frozen=True)
class OracleAccuracy:
    """The final test accuracy in percent, an upper bound for searches.

    Args:
        benchmark: the table.
        name: name of the objective.
    """

    benchmark: TabularBenchmark
    name: str = "oracle_test_accuracy"

    def __call__(self, genotype: Genotype) -> float:
        return self.benchmark.column(self.benchmark.dataset, genotype)

    def seconds(self, genotype: Genotype) -> float | None:
        """Return the cost of the training, None if unknown."""
        return self.benchmark.seconds_of(genotype)


class PartialTable:
    """An objective for incomplete tables: missing architectures have accuracy 0, like a diverged training.

    Args:
        objective: the objective for the others.
    """

    def __init__(self, objective: ValidationAccuracy | OracleAccuracy) -> None:
        self.objective, self.name = objective, objective.name
        self._has_said = False

    def __call__(self, genotype: Genotype) -> float:
        try:
            return self.objective(genotype)
        except UnknownArchitectureError as error:
            if not self._has_said:
                rank_zero_warn(f"{error}: missing architectures count as 0 %")
            self._has_said = True
            return 0.0

    def seconds(self, genotype: Genotype) -> float | None:
        """Return the cost of the training, None if unknown, 0 for missing architectures."""
        try:
            return self.objective.seconds(genotype)
        except UnknownArchitectureError:
            return 0.0


def table_accuracy(benchmark: TabularBenchmark) -> ValidationAccuracy | OracleAccuracy:
    """Return the objective of a search: validation accuracy after 12 epochs, else after all, else the
    oracle.
    """
    known = benchmark.query(benchmark.best())
    for epochs, column in ((12, known.valid_12), (benchmark.epochs, known.valid)):
        if column is not None and benchmark.dataset in column:
            return ValidationAccuracy(benchmark, epochs)
    return OracleAccuracy(benchmark)
