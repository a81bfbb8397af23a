"""A table of one's own: a CSV or Parquet file of architectures of any space and what they came to.

    genotype,cifar10_valid          arch,cifar10,seconds          matrix,ops,cifar10_valid
    "Genotype(normal=[…",92.9       |none~0|+|…,91.2,180          "[[0,1…","[""input"",…",93.8

An architecture is in `genotype` or `arch`, in any notation that the space reads, or in `matrix` and `ops` as
NAS-Bench-101 has it. Every other column is a value, the larger the better: a validation accuracy if its name
ends in `valid`, which a search may look at, and a test accuracy otherwise. `seconds` is what an evaluation
took. Rows of one architecture, which a space may write in several ways, are averaged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from nas_lightning.benchmarks.base import TableEntry, TabularBenchmark
from nas_lightning.benchmarks.formats.columns import READERS, SECONDS, Columns, is_number, parse_numbers
from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace

_NAMES = ("genotype", "arch")
_MODULE = ("matrix", "ops")


class GenotypeTable(TabularBenchmark):
    r"""What is known of some architectures of a space; all of it is read and checked at once.

    Args:
        path: the file, `.csv` or `.parquet`.
        space: that the architectures are of.
        value: the column that a search maximises and that results are compared in; None: the first.

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
    epochs, lengths = 1, (1,)  # it says nothing of them

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
            expected = f"expected a column of the table ({near_match(self.dataset, self.datasets)})"
            raise InputError(expected, got=value, where="benchmark.value")

    def key(self, genotype: Genotype) -> str:
        return self.space.notation(genotype)

    def architecture(self, key: str) -> Genotype:
        return self.space.parse(key)

    def sample(self, space: SearchSpace, count: int, seed: int) -> list[Genotype]:
        """Of the table's own, shuffled."""
        names = list(self.table[self.dataset])
        if count > len(names):
            raise InputError(
                f"expected at most the table's {len(names)} architectures", got=count, where=self.path
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
            expected = "expected a column of validation accuracies, whose name ends in valid"
            raise InputError(expected, got=name, where="benchmark.value")
        return name

    def describe(self, genotype: Genotype) -> dict[str, float]:
        """The value and its rank; nothing of an architecture that the table has not."""
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
        raise InputError("expected a table, .csv or .parquet", got=str(path), where="benchmark.path")
    return READERS[path.suffix](path)


def _names_of(columns: Columns, space: SearchSpace, path: Path) -> list[str]:
    """Each row's architecture as the space writes it."""
    names = []
    for number, text in enumerate(_notations(columns, path), 1):
        try:
            names.append(space.notation(space.parse(text)))
        except InputError as error:
            raise InputError(str(error), where=f"{path}, row {number}") from None
    if not names:
        raise InputError("expected at least one architecture", got="none", where=path)
    return names


def _notations(columns: Columns, path: Path) -> Sequence[str | Mapping[str, Any]]:
    for name in _NAMES:
        if name in columns:
            return [str(text) for text in columns[name]]
    if not all(name in columns for name in _MODULE):
        expected = "expected a column genotype or arch, or columns matrix and ops"
        raise InputError(expected, got=", ".join(columns), where=path)
    pairs = zip(columns["matrix"], columns["ops"], strict=True)
    return [f'{{"matrix": {matrix}, "ops": {ops}}}' for matrix, ops in pairs]


def _values(columns: Columns, path: Path) -> list[str]:
    """The columns that are values: that have a number."""
    others = [name for name in columns if name not in (*_NAMES, *_MODULE, SECONDS)]
    found = [name for name in others if any(map(is_number, columns[name]))]
    if not found:
        raise InputError("expected a column of numbers", got=", ".join(columns), where=path)
    return found


def _means(names: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    found = defaultdict(list)
    for name, value in zip(names, values, strict=True):
        found[name].append(value)
    return {name: fmean(values) for name, values in found.items()}
