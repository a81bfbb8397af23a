"""Searches in a pool: random, ranked by metrics, greedy, RoBoT, and a predictor."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from nas_lightning.backends import Backend, check_backend
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Genotype
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.pool import MetricValues, score_pool
from nas_lightning.objectives.counts import count_parameters
from nas_lightning.objectives.fronts import ACCURACY, RANKING, Candidate, Front, Objectives
from nas_lightning.objectives.rankings import MetricsChoice, log_ranks, metrics_of
from nas_lightning.objectives.short_training import AccuracyObjective, Evaluator
from nas_lightning.objectives.tables import TabularBenchmark, table_accuracy
from nas_lightning.spaces.base import SearchSpace, draw_distinct
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.base import Strategy
from nas_lightning.strategies.black_box.base import BlackBox, suggest
from nas_lightning.strategies.black_box.fronts import FrontSearch
from nas_lightning.utils.machine import Processes
from nas_lightning.utils.progress import never
from nas_lightning.utils.randomness import choose, seed_of_name
from nas_lightning.validation import NonNegativeInt, PositiveInt, Seed, above, at_most, checked

# Uniform sampling: the baseline that any search must beat.

IMAGES = 32
"""Number of images on which architectures are scored, if metrics are objectives."""


class RandomSearch(Strategy):
    """Sample `count` distinct architectures uniformly; nothing is trained.

    With objectives all of them are scored and counted, and the result is the Pareto front. Accuracies come
    from the benchmark.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: the images.
        benchmark: the table of accuracies.
        objectives: the objectives of a search for a Pareto front.
        count: number of architectures; None: 1, or 100 with objectives.
        workers: number of processes that score.
        backend: where the processes run, see `nas_lightning.backends.spread`.
        seed: seed of the samples.

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
        return [Candidate(*known) for known in zip(costs, scores, found, strict=False)]  # until time was over

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
                "A search that trains nothing needs a single process",
                got=self.trainer.world_size,
                where="trainer.devices",
            )

    def training_step(self, *args: Any) -> None:
        """Do nothing; Lightning requires the method."""

    def configure_optimizers(self) -> None:
        return None


def _accuracy(objectives: Objectives | None, benchmark: TabularBenchmark | None) -> AccuracyObjective | None:
    if objectives is None or ACCURACY not in objectives.names:
        return None
    if benchmark is None:
        expected = (
            "This objective needs a benchmark with accuracies: pass benchmark=nasbench201 benchmark.path=…"
        )
        raise InputError(expected, got="none", where="objectives")
    return table_accuracy(benchmark)


# Search in a pool of random architectures: score all, and evaluate the most promising ones.

_REPEATS = 20_000  # duplicates in a row after which the space counts as exhausted


class PoolSearch(BlackBox):
    """Base class of strategies with a pool; every round evaluates one of its architectures.

    Without an evaluation a round only lets the pool grow.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: the images.
        benchmark: the table for `evaluation="table"`.
        pool_size: number of distinct random architectures in the first round.
        pool_per_round: number of further architectures in every later round.
        keep: share of the pool that is scored: the networks with the most parameters.
        **black_box: see `BlackBox`.
    """

    @checked
    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        benchmark: TabularBenchmark | None = None,
        *,
        pool_size: PositiveInt = 100,
        pool_per_round: NonNegativeInt = 0,
        keep: Annotated[float, above(0), at_most(1)] = 1.0,
        **black_box: Any,
    ) -> None:
        super().__init__(space, network, data, benchmark, **black_box)
        self.pool_size, self.pool_per_round, self.keep = pool_size, pool_per_round, keep
        self.sizes: dict[Genotype, int] = {}  # numbers of parameters, if `keep` < 1
        self.drawn: dict[Genotype, None] = {}
        self.exhausted = False
        self.promising: list[str] = []  # sorted by the values of the last choice
        self.draws = torch.Generator().manual_seed(self.seed)

    def run_round(self, number: int) -> Mapping[str, float]:
        self.examine(self.largest(self.draw(self.pool_size + number * self.pool_per_round)))
        if self.objective is None:
            return {}
        value = self.evaluate(self.choose(number))
        return {f"candidate/{self.objective.name}": value / 100}

    def examine(self, genotypes: Sequence[Genotype]) -> None:
        """Score the architectures of the pool."""
        self.score(genotypes)

    def draw(self, count: int) -> list[Genotype]:
        """Return the first `count` architectures of the pool; fewer if the space is smaller."""
        repeats = 0  # in a row
        while len(self.drawn) < count and not self.exhausted:
            genotype = self.space.sample(self.draws)
            repeats = repeats + 1 if genotype in self.drawn else 0
            self.exhausted = repeats > _REPEATS
            self.drawn[genotype] = None
        return list(self.drawn)[:count]

    def largest(self, drawn: list[Genotype]) -> list[Genotype]:
        """Return the share `keep` with the most parameters, sorted by size; if `keep` is 1, all unsorted."""
        if self.keep == 1:
            return drawn
        new = [genotype for genotype in drawn if genotype not in self.sizes]
        if new:
            self.sizes.update(zip(new, self.timed("scoring", lambda: self._count(new)), strict=True))
        order = sorted(drawn, key=lambda genotype: -self.sizes[genotype])
        return order[: math.ceil(self.keep * len(drawn))]

    def _count(self, genotypes: list[Genotype]) -> list[int]:
        with torch.random.fork_rng(devices=[]):
            return [count_parameters(self.network(genotype)) for genotype in genotypes]

    def choose(self, number: int) -> Genotype:
        """Return the architecture that a round evaluates: the best one that was not evaluated yet."""
        return self.best_unevaluated(self.ranking())

    def best_unevaluated(self, values: Mapping[str, float]) -> Genotype:
        """Return the best unevaluated architecture of finite value; if none is left, the best of all."""
        worth = {notation: value for notation, value in values.items() if value > -torch.inf}
        if not worth:
            raise InputError(
                "No architecture of the pool has finite scores: use a larger pool or other metrics",
                got=f"none of {len(values)}",
                where="strategy.pool_size",
            )
        new = [notation for notation in worth if notation not in self.evaluated]
        self.promising = sorted(new or worth, key=lambda notation: -worth[notation])
        return self.space.parse(self.promising[0])

    def likely_next(self, count: int) -> list[Genotype]:
        """Return the next best architectures by the values of the last choice."""
        return [self.space.parse(notation) for notation in self.promising[1 : 1 + count]]


# Random search over training-free metrics, as in NASWOT (Mellor et al. 2021, arXiv:2006.04647, algorithm 1).
# By default it ranks by six metrics, see `nas_lightning.objectives.rankings`.
#
# With objectives the result is the Pareto front of the pool. If accuracy is one of them, every round
# evaluates one of the nondominated architectures, with the ranking in place of the accuracy.


class MetricSearch(FrontSearch, PoolSearch):
    """Rank a pool by training-free metrics; with an evaluation, evaluate the next best in every round.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: the images.
        benchmark: the table for `evaluation="table"`.
        objectives: the objectives of a search for a Pareto front.
        pool_size: number of architectures in the first round.
        pool_per_round: number of further architectures in every later round.
        **pool: see `FrontSearch`, `PoolSearch`, and `BlackBox`. The pool is ranked by `metrics`.

    >>> import pytorch_lightning as pl
    >>> from nas_lightning.metrics import Params
    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> network = lambda genotype: space.network(genotype, **sizes)
    >>> data = SearchData(Digits(subset=64))
    >>> search = MetricSearch(space, network, data, metrics={"params": Params()}, pool_size=5)
    >>> off = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    >>> pl.Trainer(max_steps=2, accelerator="cpu", **dict.fromkeys(off, False)).fit(search, data)
    >>> best, ranking = space.notation(search.derive()[0]), search.ranking()
    >>> len(ranking), ranking[best] == max(ranking.values())
    (25, True)
    """

    ranks_candidates = True

    @checked
    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        benchmark: TabularBenchmark | None = None,
        objectives: Objectives | None = None,
        *,
        pool_size: PositiveInt = 20,
        pool_per_round: NonNegativeInt = 20,
        **pool: Any,
    ) -> None:
        sizes: dict[str, Any] = {"pool_size": pool_size, "pool_per_round": pool_per_round}
        super().__init__(space, network, data, benchmark, objectives, **sizes, **pool)

    def examine(self, genotypes: Sequence[Genotype]) -> None:
        if self.metrics:
            super().examine(genotypes)
        for genotype in genotypes:
            self.count(genotype)

    def choose(self, number: int) -> Genotype:
        if self.objectives is None:
            return super().choose(number)
        ranking = self.ranking()
        names = [name for name in ranking if name not in self.evaluated] or list(ranking)
        known = zip(names, self.candidates(names), strict=True)
        promising = [one._replace(accuracy=ranking[name]) for name, one in known]
        best = self.objectives.front(promising, self.ranked).tolist() or range(len(names))
        generator = torch.Generator().manual_seed(seed_of_name(self.seed, f"evaluation {number}"))
        return self.space.parse(names[choose(best, generator)])


# Greedy search.


class Greedy(PoolSearch):
    """Evaluate the architectures of a pool that rank best untrained one by one, and return the best.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: the images.
        benchmark: the table for `evaluation="table"`.
        metrics: the metrics of the ranking, several by the sum of their log-ranks. None: the space's, or
            `top`: `AT_THE_TOP`; `default`: `COMBINED`.
        evaluation: `training`, a short one, or `table`.
        **pool: see `PoolSearch` and `BlackBox`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> network = lambda genotype: space.network(genotype, **sizes)
    >>> search = Greedy(space, network, SearchData(Digits()), pool_size=20, epochs=1)
    >>> search.pool_size, search.objective.name
    (20, 'valid_accuracy')
    """

    @checked
    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        benchmark: TabularBenchmark | None = None,
        *,
        metrics: MetricsChoice | None = None,
        evaluation: Evaluator = "training",
        **pool: Any,
    ) -> None:
        super().__init__(space, network, data, benchmark, evaluation=evaluation, **pool)
        if self.objective is None:
            raise InputError(
                "The best-ranked architectures need an evaluation (training or table)",
                got="none",
                where="strategy.evaluation",
            )
        self.metrics = metrics_of(space, metrics, "top")


# RoBoT: weights of training-free metrics, then greedy search (He et al. 2024, arXiv:2403.07591).
#
#     s_w(A) = Σ_m w_m log(rank_m(A) / n)
#
# The first rounds search for weights w: each evaluates the best unevaluated architecture by s_w. The later
#     rounds evaluate the next best by the weights whose round found the best architecture. The paper adds the
#     metrics' normalized values, with weights in [−1, 1] from Bayesian optimization. Here log-ranks are
#     added, and the weights are by default random and not negative, because a dozen evaluations are too few
#     to learn signs.

Weights = dict[str, float]


class Robot(Greedy):
    """RoBoT: rounds that explore weights of metrics, then greedy search by the best weights.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: the images.
        benchmark: the table for `evaluation="table"`.
        metrics: the weighted metrics; `to_weigh` or None: zen and synflow; `top`: `AT_THE_TOP`; `default`:
            `COMBINED`.
        explore: number of rounds that search for weights; the first has equal weights.
        proposals: `random`: uniform on the simplex; `bayesian`: by a Gaussian process.
        signed: weights from −1 to 1 instead.
        **pool: see `Greedy`, `PoolSearch`, and `BlackBox`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> network = lambda genotype: space.network(genotype, **sizes)
    >>> search = Robot(space, network, SearchData(Digits()), pool_size=20, explore=3, proposals="bayesian")
    >>> search.explore, search.objective.name
    (3, 'valid_accuracy')
    """

    @checked
    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        benchmark: TabularBenchmark | None = None,
        *,
        metrics: MetricsChoice | None = None,
        explore: NonNegativeInt = 5,
        proposals: Literal["random", "bayesian"] = "random",
        signed: bool = False,
        **pool: Any,
    ) -> None:
        chosen = "to_weigh" if metrics is None else metrics
        super().__init__(space, network, data, benchmark, metrics=chosen, **pool)
        self.explore, self.proposals, self.signed = explore, proposals, signed
        self.tried: list[tuple[Weights, str]] = []  # weights, and the architecture that they chose

    def choose(self, number: int) -> Genotype:
        weights = self._weights(number) if number < self.explore else self._best_weights()
        values = log_ranks(list(self.scored.values()), self.metrics, weights)
        genotype = self.best_unevaluated(dict(zip(self.scored, values, strict=True)))
        if number < self.explore:
            self.tried.append((weights, self.space.notation(genotype)))
        return genotype

    def _weights(self, number: int) -> Weights:
        if number == 0:
            return dict.fromkeys(self.metrics, 1.0)
        seed = seed_of_name(self.seed, f"weights {number}")
        low = -1.0 if self.signed else 0.0
        if self.proposals == "bayesian" and number > 1:
            return suggest(self._observations(), dict.fromkeys(self.metrics, (low, 1.0)), seed)
        return random_weights(list(self.metrics), seed, signed=self.signed)

    def _best_weights(self) -> Weights:
        """Return the weights of the best exploration round; equal weights if there was none."""
        if not self._observations():
            return self._weights(0)
        return max(self._observations(), key=lambda pair: pair[1])[0]

    def _observations(self) -> list[tuple[Weights, float]]:
        """Return weights with the value of the architecture that they chose, if it was evaluated."""
        return [(weights, self.evaluated[name]) for weights, name in self.tried if name in self.evaluated]

    def search_state(self) -> dict[str, Any]:
        return {"tried": [[dict(weights), notation] for weights, notation in self.tried]}

    def load_search_state(self, state: Mapping[str, Any]) -> None:
        self.tried = [(weights, notation) for weights, notation in state["tried"]]


def random_weights(names: list[str], seed: int, *, signed: bool = False) -> Weights:
    """Draw weights uniformly from the simplex, or, if signed, from the cube [−1, 1].

    >>> sum(random_weights(["a", "b", "c"], seed=0).values())
    1.0
    """
    draws = torch.rand(len(names), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if signed:
        return dict(zip(names, (2 * draws - 1).tolist(), strict=True))
    draws = -draws.clamp_min(1e-300).log()  # exponential variables, divided by their sum
    return dict(zip(names, (draws / draws.sum()).tolist(), strict=True))


# Counts of a genotype's graph (GRAF, Kadlecová et al. 2024, arXiv:2404.16551).

Best = Callable[..., int]
"""`max` or `min`."""


def graph_counts(genotype: Genotype) -> dict[str, float]:
    """Count edges, and the most and fewest on a path, per cell and operation; and degrees per node.

    A path leads from an input to an output. Zero counts are not listed.

    >>> from nas_lightning.spaces import NasBench201
    >>> cell = "|skip_connect~0|+|none~0|nor_conv_3x3~1|+|none~0|skip_connect~1|nor_conv_3x3~2|"
    >>> counts = graph_counts(NasBench201().parse(cell))
    >>> counts["cell/edges/nor_conv_3x3"], counts["cell/most/nor_conv_3x3"], counts["cell/most/all"]
    (2, 2, 3)
    """
    found: Counter[str] = Counter()
    for name, cell in genotype:
        found.update({f"{name}/{key}": value for key, value in _of_cell(cell).items()})
    return dict(found)


def _of_cell(cell: Cell) -> dict[str, int]:
    edges = [edge for edge in cell.edges if edge.op != "none"]
    counts: Counter[str] = Counter(f"edges/{edge.op}" for edge in edges)
    counts.update(f"out/{edge.source}" for edge in edges)
    counts.update(f"in/{edge.target}" for edge in edges)
    for op in (*sorted({edge.op for edge in edges}), "all"):
        steps = [(edge.source, edge.target, int(op in (edge.op, "all"))) for edge in edges]
        for kind, best in (("most", max), ("least", min)):
            ends = _path_sums(cell, steps, best)
            if ends:
                counts[f"{kind}/{op}"] = best(ends)
    return dict(counts)


def _path_sums(cell: Cell, steps: list[tuple[int, int, int]], best: Best) -> list[int]:
    """Return the best sum over the paths from any input to each reachable output."""
    sums = dict.fromkeys(range(cell.inputs), 0)
    for source, target, length in sorted(steps, key=lambda step: step[1]):
        if source in sums:
            longer = sums[source] + length
            sums[target] = best(sums.get(target, longer), longer)
    return [sums[node] for node in cell.output if node in sums]


# A surrogate model of the accuracy: ensemble and expected improvement as in BANANAS (White et al. 2021,
#     arXiv:1910.11858), with the features of GRAF (Kadlecová et al. 2024, arXiv:2404.16551), training-free
#     metrics, and a random forest (Breiman 2001), which needs no tuning. The first rounds evaluate the best
#     by the ranking.

Array = NDArray[np.float64]


class Predictor(Greedy):
    """After some rounds of greedy search, evaluate where a random forest expects the most improvement.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: the images.
        benchmark: the table for `evaluation="table"`.
        metrics: metrics whose ranks are features; None: the space's, or `top`; `default`: `COMBINED`.
        starts: number of rounds of greedy search.
        trees: number of trees.
        **pool: see `Greedy`, `PoolSearch`, and `BlackBox`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> network = lambda genotype: space.network(genotype, **sizes)
    >>> search = Predictor(space, network, SearchData(Digits()), pool_size=20, starts=3, trees=50)
    >>> search.starts, search.objective.name
    (3, 'valid_accuracy')
    """

    @checked
    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        benchmark: TabularBenchmark | None = None,
        *,
        metrics: MetricsChoice | None = None,
        starts: PositiveInt = 5,
        trees: PositiveInt = 100,
        **pool: Any,
    ) -> None:
        super().__init__(space, network, data, benchmark, metrics=metrics, **pool)
        self.starts, self.trees = starts, trees

    def choose(self, number: int) -> Genotype:
        ranking = self.ranking()
        if number < self.starts:
            return self.best_unevaluated(ranking)
        sound = {name: value for name, value in ranking.items() if value > -np.inf}
        features = self._features(list(sound))
        rows = dict(zip(sound, features, strict=True))
        seen = [name for name in self.evaluated if name in rows]
        values = np.array([self.evaluated[name] for name in seen])
        seed = seed_of_name(self.seed, f"forest {number}") % 2**32
        mean, deviation = forest(np.stack([rows[name] for name in seen]), values, features, self.trees, seed)
        gain = expected_improvement(mean, deviation, float(values.max()))
        # if the forest expects no improvement, the ranking decides
        order = sorted(zip(gain.tolist(), sound.values(), sound, strict=True))
        return self.best_unevaluated({name: float(place) for place, (_, _, name) in enumerate(order)})

    def _features(self, names: list[str]) -> Array:
        """Return log-ranks by each metric and by all, and graph counts: (architectures, features)."""
        pool = [self.scored[name] for name in names]
        columns = [log_ranks(pool, {name: metric}) for name, metric in self.metrics.items()]
        columns.append(log_ranks(pool, self.metrics))
        counts = [graph_counts(self.space.parse(name)) for name in names]
        keys = sorted({key for count in counts for key in count})
        graph = [[count.get(key, 0.0) for key in keys] for count in counts]
        return np.hstack([np.array(columns).T, np.array(graph)])


def forest(x: Array, y: Array, pool: Array, trees: int, seed: int) -> tuple[Array, Array]:
    """Return mean and deviation over the trees' predictions for the pool, (n,) each."""
    from sklearn.ensemble import RandomForestRegressor

    model = RandomForestRegressor(trees, random_state=seed, max_features=0.5).fit(x, y)
    found = np.stack([tree.predict(pool) for tree in model.estimators_])  # (trees, n)
    return found.mean(axis=0), found.std(axis=0)


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Return E max(0, v − b) = (μ − b) Φ(z) + σ φ(z), z = (μ − b)/σ (Jones et al. 1998).

    >>> expected_improvement(np.array([1.0, 1.0, 3.0]), np.array([0.0, 1.0, 0.0]), best=1.0).round(3)
    array([0.   , 0.399, 2.   ])
    """
    from scipy.stats import norm

    gain = mean - best
    z = np.divide(gain, deviation, out=np.zeros_like(gain), where=deviation > 0)
    return np.where(deviation > 0, gain * norm.cdf(z) + deviation * norm.pdf(z), gain.clip(min=0))
