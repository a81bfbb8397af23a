"""What a training-free metric chooses by one data set, looked up on the others (arXiv:2209.07238, F.6).

The k architectures of a pool with the largest metric, scored on the images of one data set, are evaluated on
each data set of the table in turn; the best of them there is looked up on all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from torch import nn

from nas_lightning.backends import Backend
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.recording import Scheme
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.studies.base import Study
from nas_lightning.studies.scoring import (
    Scorer,
    Setting,
    Values,
    check_names,
    draw_known,
    mean_estimate,
    orient,
)
from nas_lightning.utils.machine import Processes
from nas_lightning.utils.randomness import seed_of
from nas_lightning.utils.tables import Entry, Table
from nas_lightning.validation import DISTINCT, PositiveInt, Seed, at_least, checked, entries

RANDOM = "random"
_NOTE = (
    "Accuracies of the best of k by the data set in the third column, mean ± standard error over searches, "
    "each in its own part of the pool; the k are evaluated by the table, an oracle. Lost: how much less than "
    "the best of the same k by the looked-up data set itself, mean of the others"
)


@checked
class Transfer(Study):
    """Searches that evaluate k architectures on one data set, and what they found is worth on others.

    Args:
        metrics: what is computed, by name.
        by: the metrics whose largest k are evaluated, besides k at random.
        cells: architectures that are scored.
        pool: how many of them a search has; all where there are fewer.
        k: how many of the largest are evaluated, each in turn.
        searches: repetitions.
        scheme: how weights are drawn.
        workers: processes that score.
        backend: whose processes, see `nas_lightning.backends.spread`.
        scores: the folder of the scores, which runs may share; None: `scores` in the run's own.
        seed: of all that is drawn.

    >>> from nas_lightning.metrics import NTKTrace
    >>> Transfer(metrics={"ntk_trace": NTKTrace()}, by=["ntk_trace"], k=[5, 20]).k
    [5, 20]
    """

    def __init__(
        self,
        *,
        metrics: Mapping[str, Metric],
        by: Annotated[Sequence[str], entries(1), DISTINCT],
        cells: Annotated[int, at_least(4)] = 300,
        pool: Annotated[int, at_least(2)] = 150,
        k: Annotated[Sequence[PositiveInt], entries(1), DISTINCT] = (20, 5),
        searches: Annotated[int, at_least(2)] = 10,
        scheme: Scheme = "lecun",
        workers: Processes = 1,
        backend: Backend = "processes",
        scores: str | Path | None = None,
        seed: Seed = 0,
    ) -> None:
        check_names(by, metrics)
        self.metrics = {name: metrics[name] for name in by}
        self.cells, self.pool = cells, min(pool, cells)
        self.k, self.searches = list(dict.fromkeys(min(number, self.pool) for number in k)), searches
        self.scheme, self.seed = scheme, seed
        self.scorer = Scorer(self.metrics, workers, backend, scores)

    def run(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        data: SearchData,
        benchmark: TabularBenchmark,
        folder: Path,
    ) -> Findings:
        """Score the architectures on one batch, choose by each data set, look up on all."""
        if len(benchmark.datasets) < 2:
            expected = "expected a table of accuracies on several data sets"
            raise InputError(expected, got=", ".join(benchmark.datasets), where="benchmark.path")
        genotypes, accuracies = draw_known(benchmark, space, self.cells, self.seed)
        setting = Setting(network, data.train_batches(1)[0], self.scheme)
        scores = self.scorer.pool(space, genotypes, folder).score_main(setting)
        oriented = orient(self.metrics, scores)
        rows = [
            row
            for k, name in product(self.k, (*self.metrics, RANDOM))
            for row in self._rows(name, oriented.get(name), k, accuracies)
        ]
        columns = ["chosen by", "k", "evaluated on", *accuracies, "lost on the others"]
        what = f"{self.searches} searches among {self.pool} of {self.cells:,} cells scored on {data.name}"
        return Findings(
            [Table("transfer", f"What one data set's choice is worth: {what}", columns, rows, _NOTE)]
        )

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
        """The k of a search's part of the pool that are evaluated."""
        part = np.random.default_rng(seed_of(self.seed, number)).permutation(self.cells)[: self.pool]
        return part[:k] if scores is None else part[np.argsort(-scores[part], kind="stable")[:k]]
