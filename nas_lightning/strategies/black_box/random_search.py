"""An architecture drawn uniformly: what any search must beat, and what costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from nas_lightning.backends import Backend, check_backend
from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.checks import PositiveInt, Seed, checked
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.machine import Processes
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.pool.file import MetricValues
from nas_lightning.metrics.pool.scoring import score_pool
from nas_lightning.objectives.fronts.objectives import ACCURACY, RANKING, Candidate, Front, Objectives
from nas_lightning.objectives.log_ranks import metrics_of
from nas_lightning.objectives.short_training import AccuracyObjective
from nas_lightning.objectives.table import table_accuracy
from nas_lightning.progress import never
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.spaces.sampling import draw_distinct
from nas_lightning.strategies.base import Strategy

IMAGES = 32
"""That architectures are scored on, where scores are objectives."""


class RandomSearch(Strategy):
    """`count` distinct architectures, drawn uniformly; nothing is trained.

    Where several things count, all of them are scored and counted, and the front is the result. An accuracy
    is the benchmark's.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: where the images come from.
        benchmark: the table that has accuracies.
        objectives: what counts, where it is several things.
        count: how many; None: 1, or 100 where there are objectives.
        workers: processes that score.
        backend: whose processes, see `nas_lightning.backends.spread`.
        seed: of the draws.

    >>> from nas_lightning.spaces import NasBench201
    >>> len(RandomSearch(NasBench201(), count=3).derive())
    3
    """

    @checked
    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory | None = None,
        data: SearchData | None = None,
        benchmark: TabularBenchmark | None = None,
        objectives: Objectives | None = None,
        *,
        count: PositiveInt | None = None,
        workers: Processes = 1,
        backend: Backend = "processes",
        seed: Seed = 0,
    ) -> None:
        super().__init__(space, seed)
        usual = 1 if objectives is None else 100
        self.architectures = draw_distinct(space, usual if count is None else count, self.generator)
        self.network, self.data, self.objectives, self.seed = network, data, objectives, seed
        check_backend(backend, "strategy.backend")
        self.workers, self.backend = workers, backend
        self.accuracy = _accuracy(objectives, benchmark)
        self._is_over: Callable[[], bool] = never  # until a trainer may limit the time

    def derive(self) -> list[Genotype]:
        front = self.front()
        return self.architectures if front is None else list(front.genotypes)

    def front(self) -> Front | None:
        if self.objectives is None:
            return None
        known = self._candidates
        return self.objectives.summary(self.architectures[: len(known)], known, self._ranked)

    @property
    def _ranked(self) -> Mapping[str, Metric]:
        return metrics_of(self.space, None, "default")

    @cached_property
    def _candidates(self) -> list[Candidate]:
        objectives, genotypes, costs = self.objectives, self.architectures, []
        assert objectives is not None
        metrics = {**objectives.metrics, **(self._ranked if RANKING in objectives.names else {})}
        scores = self._score(metrics) if metrics else [{} for _ in genotypes]
        for genotype, _ in zip(genotypes, scores, strict=False):
            costs.append(objectives.costs(genotype))
            if self._is_over():
                break
        found = [None if self.accuracy is None else self.accuracy(genotype) for genotype in genotypes]
        return [Candidate(*known) for known in zip(costs, scores, found, strict=False)]  # as far as time went

    def _score(self, metrics: Mapping[str, Metric]) -> list[MetricValues]:
        assert self.network is not None
        assert self.data is not None
        batch = self.data.train.plain_images(IMAGES, self.seed)
        options: dict[str, Any] = {"workers": self.workers, "backend": self.backend, "seed": self.seed}
        options["out_of_time"] = self._is_over
        return score_pool(self.space, self.network, self.architectures, batch, metrics, **options)

    def setup(self, stage: str) -> None:
        self._is_over = self.out_of_time
        if self.trainer.world_size > 1:
            raise InputError(
                "expected one process, for a search that trains nothing",
                got=self.trainer.world_size,
                where="trainer.devices",
            )

    def training_step(self, *args: Any) -> None:
        """Nothing; Lightning fits no module without one."""

    def configure_optimizers(self) -> None:
        return None


def _accuracy(objectives: Objectives | None, benchmark: TabularBenchmark | None) -> AccuracyObjective | None:
    if objectives is None or ACCURACY not in objectives.names:
        return None
    if benchmark is None:
        expected = "expected a benchmark that has accuracies: benchmark=nasbench201 benchmark.path=…"
        raise InputError(expected, got="none", where="objectives")
    return table_accuracy(benchmark)
