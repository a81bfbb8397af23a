"""Whether a ranking finds better networks: its pick of a pool against a random one and the largest.

Each seed draws a pool and scores it untrained, as `strategy=metric_search` does; what is picked is trained
alike, for some epochs, and compared pool by pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from nas_lightning.backends import Backend, check_backend
from nas_lightning.checks import PositiveFloat, PositiveInt, at_least, checked
from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.machine import Processes
from nas_lightning.metrics import Params
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.pool.scoring import score_pool
from nas_lightning.objectives.log_ranks import MetricsChoice, log_ranks, named_metrics
from nas_lightning.objectives.short_training import ShortTraining
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.spaces.sampling import draw_distinct
from nas_lightning.studies.base import Study
from nas_lightning.studies.short_trainings import FILE, train_all
from nas_lightning.studies.statistics import mean_estimate
from nas_lightning.tables import Entry, Table

KINDS = ("ranking", "largest", "random")


@checked
class Picks(Study):
    """Accuracies of what the ranking picks, of the largest and of the first, which is a random one.

    Args:
        metrics: what a pool is ranked by; a word or metrics by name.
        pools: one a seed, from 0 on.
        pool_size: architectures of each.
        images: that they are scored on.
        epochs: of each training, on the weights' side.
        lr: learning rate of the first.
        workers: processes that score and train.
        backend: whose processes, see `nas_lightning.backends.spread`.

    >>> study = Picks(metrics="top", pools=3)
    >>> list(study.ranked)
    ['params', 'meco', 'zen', 'swap']
    """

    def __init__(
        self,
        *,
        metrics: MetricsChoice = "default",
        pools: Annotated[int, at_least(2)] = 5,
        pool_size: PositiveInt = 100,
        images: Annotated[int, at_least(2)] = 32,
        epochs: PositiveInt = 10,
        lr: PositiveFloat = 0.1,
        workers: Processes = 1,
        backend: Backend = "processes",
    ) -> None:
        self.metrics: Mapping[str, Metric] = {**named_metrics(metrics), "size": Params()}
        self.ranked = named_metrics(metrics)
        self.pools, self.pool_size, self.images, self.workers = pools, pool_size, images, workers
        check_backend(backend, "study.backend")
        self.backend = backend
        self.epochs, self.lr = epochs, lr

    def run(self, space: SearchSpace, network: NetworkFactory, data: SearchData, folder: Path) -> Findings:
        """Score the pools, train what is picked, compare."""
        training = ShortTraining(space, network, data, epochs=self.epochs, lr=self.lr)
        picks = [self._picks(space, network, data, folder, seed) for seed in range(self.pools)]
        order = [genotype for pool in picks for genotype in pool]
        accuracies = np.array(train_all(training, order, folder / FILE, self.workers, self.backend)).reshape(
            self.pools, len(KINDS)
        )
        rows: list[Sequence[Entry]] = [[number, *row] for number, row in enumerate(accuracies.tolist())]
        rows.append(["mean", *map(mean_estimate, accuracies.T)])
        what = f"{space.name}, pools of {self.pool_size}, {self.epochs} epochs on {data.name}"
        return Findings(
            [
                Table("picks", f"Accuracies (%) of what is picked: {what}", ["pool", *KINDS], rows),
                Table(
                    "differences",
                    f"The ranking's pick less the others: {what}",
                    ["against", "difference", "t", "p"],
                    [compare(kind, accuracies[:, 0], accuracies[:, i]) for i, kind in enumerate(KINDS) if i],
                    "Paired by pools, ± the standard error; p of Student's two-sided test",
                ),
            ]
        )

    def _picks(
        self, space: SearchSpace, network: NetworkFactory, data: SearchData, folder: Path, seed: int
    ) -> list[Genotype]:
        pool = draw_distinct(space, self.pool_size, torch.Generator().manual_seed(seed))
        (batch,) = data.train_batches(1)
        batch = batch[0][: self.images], batch[1][: self.images]
        options: dict[str, Any] = {
            "path": folder / "scores" / f"{seed}.csv",
            "workers": self.workers,
            "backend": self.backend,
            "seed": seed,
        }
        scores = score_pool(space, network, pool, batch, self.metrics, **options)
        ranking, sizes = log_ranks(scores, self.ranked), [row["size"] for row in scores]
        return [pool[int(np.argmax(ranking))], pool[int(np.argmax(sizes))], pool[0]]


def compare(kind: str, ours: np.ndarray, others: np.ndarray) -> list[Entry]:
    """Name, mean difference, Student's t and its p; without a test where all differences are the same."""
    from scipy.stats import ttest_rel

    difference = mean_estimate(ours - others)
    if difference.error == 0:
        return [kind, difference, None, None]
    test = ttest_rel(ours, others)
    return [kind, difference, float(test.statistic), float(test.pvalue)]
