"""What every tabular benchmark answers: genotype → accuracy when trained, validation apart from test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.sampling import draw_distinct

AccuracyTable = Mapping[str, Mapping[str, float]]
"""column → name of an architecture → accuracy"""


class UnknownArchitectureError(InputError):
    """A table was asked for an architecture that it lacks."""


@dataclass(frozen=True)
class TableEntry:
    """What one architecture reaches, in percent, by data set; None: not in this table.

    Args:
        test: accuracy on the test images, after all epochs.
        valid: validation accuracy after all epochs.
        valid_12: validation accuracy after 12 epochs.
    """

    test: Mapping[str, float]
    valid: Mapping[str, float] | None
    valid_12: Mapping[str, float] | None  # after 12 epochs instead of all


class TabularBenchmark(ABC):
    """Accuracies of trained networks, in percent, by the name of an architecture.

    Searches may ask for `valid_accuracy`, which never reads a test column. Whatever else reads accuracies
    while it searches is an oracle; see `nas_lightning.objectives.table`.
    """

    title: ClassVar[str]
    datasets: ClassVar[tuple[str, ...]]
    epochs: ClassVar[int]
    """Of the whole training."""
    lengths: ClassVar[tuple[int, ...]]
    """The numbers of epochs after which there can be validation accuracies."""
    spaces: ClassVar[tuple[str, ...]]
    """The names of the spaces whose architectures the table knows."""
    ops: ClassVar[tuple[str, ...]]
    """The operations of those architectures."""
    table: AccuracyTable
    """A column of test accuracies for each data set, and `<data set>-valid` and `…-valid-<epochs>`."""
    dataset: str
    """What `describe` and defaults refer to."""
    seconds: Mapping[str, float] | None = None
    """What an evaluation takes, by the name of an architecture; None: not known."""
    space: SearchSpace
    """That writes its architectures."""
    entries: str = "an architecture of the table"
    """What can be asked for, where something else was."""

    @abstractmethod
    def key(self, genotype: Genotype) -> str:
        """The name of an architecture in the table."""

    @abstractmethod
    def architecture(self, key: str) -> Genotype:
        """The architecture of that name."""

    def sample(self, space: SearchSpace, count: int, seed: int) -> list[Genotype]:
        """So many architectures of the space, each another; more of the same seed begin with the same."""
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
        """Validation accuracy in percent after so many epochs, by default all, from its own column."""
        return self.column(self.validation_column(dataset, epochs), genotype)

    def validation_column(self, dataset: str | None = None, epochs: int | None = None) -> str:
        """The name of a validation column; raises where the table has none."""
        epochs = self.epochs if epochs is None else epochs
        if epochs not in self.lengths:
            *others, last = map(str, self.lengths)
            raise InputError(f"expected {', '.join(others)} or {last} epochs", got=epochs)
        name = f"{self._dataset(dataset)}-valid" + ("" if epochs == self.epochs else f"-{epochs}")
        if name not in self.table:
            raise InputError(
                f"expected a table with the column {name!r} (made from an official file by convert)",
                got=", ".join(self.table),
                where="benchmark.path",
            )
        return name

    def knows(self, genotype: Genotype) -> bool:
        """Whether the table has the architecture."""
        return self.key(genotype) in self.table[self.dataset]

    def column(self, name: str, genotype: Genotype) -> float:
        """The value of a column for a genotype; raises for one that the column lacks."""
        return self._look_up(self.table[name], genotype)

    def _look_up(self, values: Mapping[str, float], genotype: Genotype) -> float:
        key = self.key(genotype)
        if key not in values:
            got = self.space.notation(genotype)
            raise UnknownArchitectureError(f"expected {self.entries}", got=got, where="benchmark.path")
        return values[key]

    def seconds_of(self, genotype: Genotype) -> float | None:
        """What an evaluation takes, where the table has it."""
        return None if self.seconds is None else self._look_up(self.seconds, genotype)

    def rank(self, genotype: Genotype, dataset: str | None = None) -> int:
        """1 for the best test accuracy; architectures that are equal share the better rank."""
        name = self._dataset(dataset)
        accuracy = self.column(name, genotype)
        return 1 + sum(other > accuracy for other in self.table[name].values())

    def best(self, dataset: str | None = None) -> Genotype:
        """The architecture with the best test accuracy."""
        column = self.table[self._dataset(dataset)]
        return self.architecture(max(column, key=lambda key: column[key]))

    def describe(self, genotype: Genotype) -> dict[str, float]:
        """What a finished search is told of its result: test accuracy (as a share of 1) and rank.

        Nothing of an architecture that the table lacks.
        """
        if not self.knows(genotype):
            return {}
        return {
            "true_accuracy": self.column(self.dataset, genotype) / 100,
            "true_rank": self.rank(genotype),
        }

    def check_space(self, space: SearchSpace) -> None:
        """Raise unless the table knows the architectures of the space."""
        if space.name not in self.spaces:
            expected = " or ".join(f"space={name}" for name in self.spaces)
            raise InputError(f"expected {expected}, which the benchmark is of", got=space.name)
        for op in space.settings.get("ops", ()):
            if op not in self.ops:
                raise InputError(f"expected operations of {self.title} ({near_match(op, self.ops)})", got=op)

    def _dataset(self, dataset: str | None) -> str:
        if dataset is not None:
            self.check_dataset(dataset)
        return dataset or self.dataset

    @classmethod
    def check_dataset(cls, dataset: str) -> None:
        """Raise unless the benchmark has the data set."""
        if dataset not in cls.datasets:
            raise InputError(
                f"expected a data set of {cls.title} ({near_match(dataset, cls.datasets)})",
                got=dataset,
                where="benchmark.dataset",
            )
