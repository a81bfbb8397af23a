"""What a search maximises where a table answers instead of a training run.

A search may look at validation accuracies. One that looks at test accuracies is an oracle: it shows what a
perfect judge would find and is no result of a search, so its objective says so in its name, which is what
metrics and reports show.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytorch_lightning.utilities.rank_zero import rank_zero_warn

from nas_lightning.benchmarks.base import TabularBenchmark, UnknownArchitectureError
from nas_lightning.genotype import Genotype


@dataclass(frozen=True)
class ValidationAccuracy:
    """The validation accuracy after all epochs or fewer, in percent; reads no test accuracy.

    Args:
        benchmark: the table.
        epochs: after how many; None: all.
    """

    benchmark: TabularBenchmark
    epochs: int | None = None

    def __post_init__(self) -> None:
        self.benchmark.validation_column(epochs=self.epochs)  # raises where there is none

    @property
    def name(self) -> str:
        whole = self.epochs in (None, self.benchmark.epochs)
        return "valid_accuracy" if whole else f"valid_accuracy_{self.epochs}_epochs"

    def __call__(self, genotype: Genotype) -> float:
        return self.benchmark.valid_accuracy(genotype, epochs=self.epochs)

    def seconds(self, genotype: Genotype) -> float | None:
        """Of the training, where the table knows them."""
        return self.benchmark.seconds_of(genotype)


@dataclass(frozen=True)
class OracleAccuracy:
    """The final test accuracy, in percent, which no search could know.

    Args:
        benchmark: the table.
        name: under which searches show it.
    """

    benchmark: TabularBenchmark
    name: str = "oracle_test_accuracy"

    def __call__(self, genotype: Genotype) -> float:
        return self.benchmark.column(self.benchmark.dataset, genotype)

    def seconds(self, genotype: Genotype) -> float | None:
        """Of the training, where the table knows them."""
        return self.benchmark.seconds_of(genotype)


class PartialTable:
    """An objective of a table that lacks some architectures: they are worth what a diverged training is, 0.

    Args:
        objective: what the table says of the others.
    """

    def __init__(self, objective: ValidationAccuracy | OracleAccuracy) -> None:
        self.objective, self.name = objective, objective.name
        self._has_said = False

    def __call__(self, genotype: Genotype) -> float:
        try:
            return self.objective(genotype)
        except UnknownArchitectureError as error:
            if not self._has_said:
                rank_zero_warn(f"{error}: it counts as 0 %, as whatever else the table lacks")
            self._has_said = True
            return 0.0

    def seconds(self, genotype: Genotype) -> float | None:
        """Of the training, where the table knows them; 0 of what it lacks."""
        try:
            return self.objective.seconds(genotype)
        except UnknownArchitectureError:
            return 0.0


def table_accuracy(benchmark: TabularBenchmark) -> ValidationAccuracy | OracleAccuracy:
    """What a search reads of the table: 12 epochs' validation accuracy, else all epochs'.

    A table that has test accuracies only makes the search an oracle, by whose name its numbers are shown.
    """
    known = benchmark.query(benchmark.best())
    for epochs, column in ((12, known.valid_12), (benchmark.epochs, known.valid)):
        if column is not None and benchmark.dataset in column:
            return ValidationAccuracy(benchmark, epochs)
    return OracleAccuracy(benchmark)
