"""Rules that choose cells for a front of error and latency, and what their choices are worth.

A choice is worth the hypervolume of its errors and latencies as trained and measured, as a share of that of
all cells. No rule sees an error; some see a few validation accuracies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nas_lightning.genotype import Genotype
from nas_lightning.metrics.base import Metric
from nas_lightning.objectives.fronts.dominance import Array, Rows, front_of, fronts_of
from nas_lightning.objectives.fronts.hypervolume import hypervolume
from nas_lightning.objectives.log_ranks import log_ranks
from nas_lightning.strategies.black_box.graph_counts import graph_counts
from nas_lightning.strategies.black_box.predictor import forest

TREES = 100
FAR = -1e3
"""In the place of −∞, which a forest does not take."""
LAYERS = 500
"""Cells that evaluations are drawn from: so many are better than the others in both scores and latency."""


@dataclass(frozen=True, eq=False)
class Bench:
    """A device, and a data set whose errors count.

    Args:
        ms: of all cells, NaN where it has none, (cells,).
        errors: in percent, (cells,).
        reference: the error below which a cell counts.

    >>> bench = Bench(np.array([1.0, 3.0, np.nan]), np.array([10.0, 0.0, 0.0]), reference=20.0)
    >>> bench.share(np.array([0])), bench.share(np.array([0, 1]))
    (1.0, 1.0)
    """

    ms: Array
    errors: Array
    reference: float

    def share(self, chosen: Rows) -> float:
        """HV of the chosen cells by HV of all, below the reference and the slowest cell."""
        return self._volume(chosen) / self.true_volume

    @cached_property
    def true_volume(self) -> float:
        """That of all cells."""
        return self._volume(np.arange(len(self.ms)))

    def _volume(self, rows: Rows) -> float:
        rows = self.measured(rows)
        points = np.stack([self.ms[rows], self.errors[rows]], axis=1)
        return hypervolume(points, np.array([np.nanmax(self.ms), self.reference]))

    def measured(self, rows: Rows) -> Rows:
        """Those of the cells that the device has."""
        return rows[~np.isnan(self.ms[rows])]


def front(ms: Array, *scores: Array) -> Rows:
    """What is best in latency and all scores together; a score of −∞ is of what computes nothing."""
    values = np.stack([ms, *(-score for score in scores)], axis=1)
    sound = np.flatnonzero(np.isfinite(values).all(axis=1))
    return sound[front_of(values[sound])]


def leading(ms: Array, scores: Sequence[Array], count: int) -> Rows:
    """At least so many cells, whole fronts one after another."""
    values = np.stack([ms, *(-score for score in scores)], axis=1)
    sound = np.flatnonzero(np.isfinite(values).all(axis=1))
    chosen = np.empty(0, dtype=np.int64)
    for rows in fronts_of(values[sound]):
        chosen = np.concatenate([chosen, sound[rows]])
        if len(chosen) >= count:
            break
    return chosen


class Look:
    """What a draw of cells shows before anything is trained.

    Args:
        rows: of the draw's cells among all.
        cells: the draw's.
        scores: theirs.
        metrics: by name.
        ranking: metrics whose log-ranks are one score.

    >>> from nas_lightning.metrics import Params
    >>> from nas_lightning.spaces import NasBench201
    >>> cell = NasBench201().parse("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|")
    >>> scores, metrics = [{"params": 1.0}, {"params": 2.0}], {"params": Params()}
    >>> look = Look(np.array([0, 2]), [cell, cell], scores, metrics, metrics)
    >>> look.front(Bench(np.array([1.0, 2.0, 3.0]), np.array([5.0, 5.0, 4.0]), 20.0), ["params"])
    array([0, 2])
    """

    def __init__(
        self,
        rows: Rows,
        cells: Sequence[Genotype],
        scores: Sequence[Mapping[str, float]],
        metrics: Mapping[str, Metric],
        ranking: Mapping[str, Metric],
    ) -> None:
        self.rows = rows
        self.ranking = np.array(log_ranks(scores, ranking))
        self.ranks = {name: np.array(log_ranks(scores, {name: one})) for name, one in metrics.items()}
        counts = [graph_counts(cell) for cell in cells]
        keys = sorted({key for count in counts for key in count})
        graph = np.array([[count.get(key, 0.0) for key in keys] for count in counts]).reshape(len(cells), -1)
        self.features = np.column_stack([self.ranking, *self.ranks.values(), graph])

    def front(self, bench: Bench, names: Sequence[str] = ()) -> Rows:
        """The cells that are best in latency and these scores together; without one, and the ranking."""
        chosen = [self.ranks[name] for name in names] or [self.ranking]
        return self.rows[front(bench.ms[self.rows], *chosen)]

    def learn(self, bench: Bench, names: Sequence[str], accuracies: Array, count: int, seed: int) -> Rows:
        """What is best in latency, the scores and the accuracy that a forest expects; what it learnt from.

        Args:
            bench: the device.
            names: of scores, from whose first fronts the evaluated cells are drawn.
            accuracies: of all cells, of which `count` are read.
            count: evaluations.
            seed: of the draw and the forest.
        """
        ms = bench.ms[self.rows]
        scores = [self.ranks[name] for name in names]
        candidates = leading(ms, scores, max(LAYERS, count))
        chosen = np.random.default_rng(seed).permutation(candidates)[:count]
        worth = -np.log(100.5 - accuracies[self.rows[chosen]])  # among the best, shares of an error matter
        features = np.where(np.isfinite(self.features), self.features, FAR)
        expected, _ = forest(features[chosen], worth, features, TREES, seed)
        return self.rows[np.union1d(front(ms, expected, *scores), chosen)]
