"""A surrogate that learns accuracies from what a pool already has: ranks of metrics, counts of the graph.

As BANANAS (White et al. 2021, arXiv:1910.11858) searches with an ensemble and expected improvement, with the
features of GRAF (Kadlecová et al. 2024, arXiv:2404.16551) and training-free metrics, and a random forest
(Breiman 2001), which needs no tuning. The first rounds evaluate the best of the default ranking.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.checks import PositiveInt, checked
from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.log_ranks import MetricsChoice, log_ranks
from nas_lightning.randomness import seed_of_name
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.black_box.graph_counts import graph_counts
from nas_lightning.strategies.black_box.greedy import Greedy

Array = NDArray[np.float64]


class Predictor(Greedy):
    """Every round after the first ones evaluates where a forest expects the most improvement.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: where the images come from.
        benchmark: the table that `evaluation="table"` reads.
        metrics: whose ranks the forest sees; None: what the space says, or `top`; `default`: `COMBINED`.
        starts: rounds before the forest has its say.
        trees: of the forest.
        **pool: see `Greedy`, `PoolSearch` and `BlackBox`.

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
            return self.first_new(ranking)
        sound = {name: value for name, value in ranking.items() if value > -np.inf}
        features = self._features(list(sound))
        rows = dict(zip(sound, features, strict=True))
        seen = [name for name in self.evaluated if name in rows]
        values = np.array([self.evaluated[name] for name in seen])
        seed = seed_of_name(self.seed, f"forest {number}") % 2**32
        mean, deviation = forest(np.stack([rows[name] for name in seen]), values, features, self.trees, seed)
        gain = expected_improvement(mean, deviation, float(values.max()))
        # where the forest expects nothing, the ranking decides
        order = sorted(zip(gain.tolist(), sound.values(), sound, strict=True))
        return self.first_new({name: float(place) for place, (_, _, name) in enumerate(order)})

    def _features(self, names: list[str]) -> Array:
        """(architectures, features): their log-ranks by each metric and by all, and their graphs' counts."""
        pool = [self.scored[name] for name in names]
        columns = [log_ranks(pool, {name: metric}) for name, metric in self.metrics.items()]
        columns.append(log_ranks(pool, self.metrics))
        counts = [graph_counts(self.space.parse(name)) for name in names]
        keys = sorted({key for count in counts for key in count})
        graph = [[count.get(key, 0.0) for key in keys] for count in counts]
        return np.hstack([np.array(columns).T, np.array(graph)])


def forest(x: Array, y: Array, pool: Array, trees: int, seed: int) -> tuple[Array, Array]:
    """Mean and deviation over the trees of what each expects of the pool, (n,) both, learnt from x and y."""
    from sklearn.ensemble import RandomForestRegressor

    model = RandomForestRegressor(trees, random_state=seed, max_features=0.5).fit(x, y)
    found = np.stack([tree.predict(pool) for tree in model.estimators_])  # (trees, n)
    return found.mean(axis=0), found.std(axis=0)


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """E max(0, v − best), v normal: (μ − b) Φ(z) + σ φ(z), z = (μ − b)/σ (Jones et al. 1998).

    >>> expected_improvement(np.array([1.0, 1.0, 3.0]), np.array([0.0, 1.0, 0.0]), best=1.0).round(3)
    array([0.   , 0.399, 2.   ])
    """
    from scipy.stats import norm

    gain = mean - best
    z = np.divide(gain, deviation, out=np.zeros_like(gain), where=deviation > 0)
    return np.where(deviation > 0, gain * norm.cdf(z) + deviation * norm.pdf(z), gain.clip(min=0))
