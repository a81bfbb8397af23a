"""NAS-Bench-201 (Dong & Yang 2020, arXiv:2001.00326) as a table: genotype → accuracy of the trained network.

The official files are turned into a small table once:

    python -m nas_lightning.benchmarks.nasbench201 convert SOURCE TARGET.parquet
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nas_lightning.benchmarks.official import DATASETS
from nas_lightning.benchmarks.tables import Table, read, write_parquet
from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.nasbench201 import NasBench201


@dataclass(frozen=True)
class Entry:
    """What one architecture reaches, in percent, by data set; None: not in this table."""

    test: Mapping[str, float]
    valid: Mapping[str, float] | None
    valid_12: Mapping[str, float] | None  # after 12 epochs instead of 200


class TabularNasBench201:
    """The accuracies of all 15,625 architectures.

    Searches may ask for `valid_accuracy`, which never reads a test column. Whatever else reads accuracies
    while it searches is an oracle; see `nas_lightning.benchmarks.objectives`.

    Args:
        path: a table `.csv` or `.parquet`, or an official file or folder of NAS-Bench-201 or NATS-Bench.
        dataset: cifar10, cifar100 or imagenet16-120; what `describe` and defaults refer to.
    """

    def __init__(self, path: str | Path, dataset: str = "cifar10") -> None:
        _check_dataset(dataset)
        self.space, self.dataset = NasBench201(), dataset
        self.table: Table = read(path)

    def query(self, genotype: Genotype) -> Entry:
        arch = self.space.notation(genotype)
        test = {name: self.table[name][arch] for name in DATASETS}
        return Entry(test, self._optional(arch, "valid"), self._optional(arch, "valid-12"))

    def _optional(self, arch: str, what: str) -> dict[str, float] | None:
        found = {name: f"{name}-{what}" for name in DATASETS if f"{name}-{what}" in self.table}
        return {name: self.table[column][arch] for name, column in found.items()} or None

    def valid_accuracy(self, genotype: Genotype, dataset: str | None = None, *, epochs: int = 200) -> float:
        """Validation accuracy in percent after 200 or 12 epochs, from its own column."""
        return self.column(self.validation_column(dataset, epochs), genotype)

    def validation_column(self, dataset: str | None = None, epochs: int = 200) -> str:
        """The name of a validation column; raises where the table has none."""
        if epochs not in (12, 200):
            raise InputError("expected 12 or 200 epochs", got=epochs)
        name = f"{self._dataset(dataset)}-valid" + ("-12" if epochs == 12 else "")
        if name not in self.table:
            raise InputError(
                f"expected a table with the column {name!r} (made from an official file by convert)",
                got=", ".join(self.table),
                where="benchmark.path",
            )
        return name

    def column(self, name: str, genotype: Genotype) -> float:
        """The value of a column for a genotype."""
        return self.table[name][self.space.notation(genotype)]

    def rank(self, genotype: Genotype, dataset: str | None = None) -> int:
        """1 for the best test accuracy; architectures that are equal share the better rank."""
        name = self._dataset(dataset)
        accuracy = self.column(name, genotype)
        return 1 + sum(other > accuracy for other in self.table[name].values())

    def best(self, dataset: str | None = None) -> Genotype:
        """The architecture with the best test accuracy."""
        column = self.table[self._dataset(dataset)]
        return self.space.parse(max(column, key=lambda arch: column[arch]))

    def describe(self, genotype: Genotype) -> dict[str, float]:
        """What a finished search is told of its result: test accuracy (as a share of 1) and rank."""
        return {
            "true_accuracy": self.column(self.dataset, genotype) / 100,
            "true_rank": self.rank(genotype),
        }

    def check_space(self, space: SearchSpace) -> None:
        """Raise unless the table knows the architectures of the space."""
        if space.name != self.space.name:
            raise InputError(f"expected space={self.space.name}, which the benchmark is of", got=space.name)

    def _dataset(self, dataset: str | None) -> str:
        if dataset is not None:
            _check_dataset(dataset)
        return dataset or self.dataset


def _check_dataset(dataset: str) -> None:
    if dataset not in DATASETS:
        raise InputError(
            f"expected a data set of NAS-Bench-201 ({near_match(dataset, DATASETS)})",
            got=dataset,
            where="benchmark.dataset",
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """The command `convert`."""
    parser = argparse.ArgumentParser(prog="python -m nas_lightning.benchmarks.nasbench201")
    commands = parser.add_subparsers(required=True)
    convert = commands.add_parser(
        "convert", help="turn an official file, or a CSV, into a small Parquet file"
    )
    convert.add_argument(
        "source", type=Path, help="NATS-tss-… (folder or .pbz2), NAS-Bench-201-….pth or .csv"
    )
    convert.add_argument("target", type=Path, help="the .parquet file to write")
    options = parser.parse_args(arguments)
    try:
        if options.target.suffix != ".parquet":
            raise InputError("expected a target that ends in .parquet", got=options.target.name)
        table = read(options.source)
        write_parquet(table, options.target)
    except InputError as error:
        sys.exit(f"error: {error}")
    print(f"{len(table[DATASETS[0]]):,} architectures, {', '.join(table)} → {options.target}")


if __name__ == "__main__":
    main()
