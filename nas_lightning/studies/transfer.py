"""How well architectures that a metric chooses on one data set do on others (arXiv:2209.07238, F.6).

The k architectures of a pool with the largest metric, computed on the images of one data set, are evaluated
on each data set of the table in turn. The best of them by one data set is looked up on all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.metrics.recording import Scheme
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.studies.scoring import (
    ScoredStudy,
    Setting,
    Values,
    check_metrics,
    mean_estimate,
    orient,
)
from nas_lightning.utils.devices import CPU
from nas_lightning.utils.randomness import seed_of
from nas_lightning.utils.tables import Entry, Table
from nas_lightning.validation import DISTINCT, PositiveInt, at_least, checked, entries

RANDOM = "random"
_NOTE = (
    "Accuracies of the best of k by the data set in the third column, mean ± standard error over searches, "
    "each in its own part of the pool; the k are evaluated by the table, an oracle. Lost: how much less than "
    "the best of the same k by the looked-up data set itself, mean of the others"
)


@checked
@dataclass(frozen=True, kw_only=True)
class Transfer(ScoredStudy):
    """Searches that evaluate k architectures on one data set, and the value of their results on others.

    Args:
        by: metrics whose largest k are evaluated, besides k random architectures.
        pool: number of the scored cells that a search draws; all if there are fewer.
        k: numbers of architectures that are evaluated, each in turn.
        searches: number of repetitions.
        scheme: initialization of the weights.
        metrics, cells, scores, seed, workers, backend: see `ScoredStudy`.

    >>> from nas_lightning.metrics import NTKSqrtMeanDiagonal
    >>> Transfer(metrics={"trace": NTKSqrtMeanDiagonal()}, by=["trace"], k=[5, 20]).cells
    300
    """

    by: Annotated[Sequence[str], entries(1), DISTINCT]
    cells: Annotated[int, at_least(4)] = 300
    pool: Annotated[int, at_least(2)] = 150
    k: Annotated[Sequence[PositiveInt], entries(1), DISTINCT] = (20, 5)
    searches: Annotated[int, at_least(2)] = 10
    scheme: Scheme = "lecun"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_metrics(self.by, self.metrics)

    @property
    def _pool_size(self) -> int:
        return min(self.pool, self.cells)

    def run(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        data: SearchData,
        benchmark: TabularBenchmark,
        folder: Path,
        accelerator: torch.device = CPU,
    ) -> Findings:
        """Score the architectures on one batch, choose by each data set, and look up all accuracies."""
        if len(benchmark.datasets) < 2:
            expected = "The table must have accuracies on several data sets"
            raise InputError(expected, got=", ".join(benchmark.datasets), where="benchmark.path")
        genotypes, accuracies = self.draw_known(benchmark, space)
        setting = Setting(network, data.train_batches(1)[0], self.scheme)
        metrics = {name: self.metrics[name] for name in self.by}
        pool = self.scored_pool(space, genotypes, folder, accelerator)
        scores = replace(pool, metrics=metrics).score_main(setting)
        oriented = orient(metrics, scores)
        counts = dict.fromkeys(min(number, self._pool_size) for number in self.k)
        rows = [
            row
            for k, name in product(counts, (*metrics, RANDOM))
            for row in self._rows(name, oriented.get(name), k, accuracies)
        ]
        columns = ["chosen by", "k", "evaluated on", *accuracies, "lost on the others"]
        among = f"{self._pool_size} of {self.cells:,} cells scored on {data.name}"
        title = f"What one data set's choice is worth: {self.searches} searches among {among}"
        return Findings([Table("transfer", title, columns, rows, _NOTE)])

    def _rows(
        self, name: str, scores: Values | None, k: int, accuracies: Mapping[str, Values]
    ) -> list[list[Entry]]:
        chosen = [self._candidates(scores, k, number) for number in range(self.searches)]
        rows: list[list[Entry]] = []
        for source, own in accuracies.items():
            picks = [cells[int(own[cells].argmax())] for cells in chosen]
            lost = [
                np.mean([of[cells].max() - of[pick] for other, of in accuracies.items() if other != source])
                for cells, pick in zip(chosen, picks, strict=True)
            ]
            ends = [mean_estimate(of[picks]) for of in accuracies.values()]
            rows.append([name, k, source, *ends, mean_estimate(lost)])
        return rows

    def _candidates(self, scores: Values | None, k: int, number: int) -> NDArray[np.int64]:
        """Return the k architectures of a search's part of the pool that are evaluated."""
        part = np.random.default_rng(seed_of(self.seed, number)).permutation(self.cells)[: self._pool_size]
        return part[:k] if scores is None else part[np.argsort(-scores[part], kind="stable")[:k]]
