"""Several objectives by their names, and the front of what was looked at.

params, macs, latency_ms, memory_mb      costs of the network that is trained; less is better
ranking                                  the sum of log-ranks by a set of metrics; more is better
accuracy                                 what a short training or a table says; more is better
any other                                a training-free metric, in its own direction
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from nas_lightning.cost.limits import OF_NETWORKS
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.base import Metric
from nas_lightning.objectives.fronts.dominance import Array, Rows, crowded_order, front_of, knee_of
from nas_lightning.objectives.fronts.hypervolume import hypervolume
from nas_lightning.objectives.log_ranks import log_ranks
from nas_lightning.tables import Table

RANKING, ACCURACY = "ranking", "accuracy"
NAMES = (*OF_NETWORKS, RANKING, ACCURACY)
"""Those that are no metrics."""


class Candidate(NamedTuple):
    """What is known of an architecture.

    Args:
        costs: of its network.
        scores: its metrics.
        accuracy: in percent; None where none is asked for.

    >>> Candidate({"params": 100.0}).scores
    {}
    """

    costs: Mapping[str, float] = {}
    scores: Mapping[str, float] = {}
    accuracy: float | None = None


@dataclass(frozen=True)
class Objectives:
    """What counts, two or more by name.

    Args:
        names: in the order of columns.
        costs: genotype → what its network costs, by name.
        metrics: the objectives that are metrics.
        reference: the worst values that count for the hypervolume; None: the worst that were looked at.

    >>> objectives = Objectives(("params", "macs"), lambda genotype: {"params": 1.0, "macs": 2.0})
    >>> pool = [Candidate({"params": p, "macs": m}) for p, m in ((1.0, 4.0), (2.0, 1.0), (3.0, 5.0))]
    >>> [rows.tolist() for rows in (objectives.front(pool), objectives.order(pool))]
    [[0, 1], [0, 1, 2]]
    """

    names: tuple[str, ...]
    costs: Callable[[Genotype], Mapping[str, float]]
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    reference: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        if len(self.names) < 2:
            raise InputError("expected two objectives or more", got=[*self.names], where="objectives")
        for name in self.names:
            if self.names.count(name) > 1:
                raise InputError("expected distinct objectives", got=name, where="objectives")
            if name not in NAMES and name not in self.metrics:
                raise InputError("expected the metric of an objective", got=name, where="objectives")
        self._check_reference()

    def _check_reference(self) -> None:
        if self.reference is None:
            return
        sound = all(isinstance(value, int | float) and math.isfinite(value) for value in self.reference)
        if len(self.reference) != len(self.names) or not sound:
            expected = f"expected {len(self.names)} numbers, one an objective"
            raise InputError(expected, got=[*self.reference], where="reference")

    @property
    def of_costs(self) -> tuple[str, ...]:
        """The costs among them."""
        return tuple(name for name in self.names if name in OF_NETWORKS)

    def columns(self, pool: Sequence[Candidate], ranked: Mapping[str, Metric] = {}) -> dict[str, list[float]]:
        """The value of each objective of each candidate; `ranked` are the metrics of the ranking."""
        return {name: self._column(name, pool, ranked) for name in self.names}

    def _column(self, name: str, pool: Sequence[Candidate], ranked: Mapping[str, Metric]) -> list[float]:
        if name in OF_NETWORKS:
            return [one.costs[name] for one in pool]
        if name == RANKING:
            return log_ranks([one.scores for one in pool], ranked)
        if name == ACCURACY:
            return [-math.inf if one.accuracy is None else one.accuracy for one in pool]
        return [one.scores[name] for one in pool]

    def minimised(self, columns: Mapping[str, Sequence[float]]) -> Array:
        """(candidates, objectives), less is better."""
        return np.array([self._sign(name) * np.array(columns[name]) for name in self.names]).T

    def _sign(self, name: str) -> float:
        larger = name in (RANKING, ACCURACY) or (name in self.metrics and self.metrics[name].larger_is_better)
        return -1.0 if larger and name not in OF_NETWORKS else 1.0

    def front(self, pool: Sequence[Candidate], ranked: Mapping[str, Metric] = {}) -> Rows:
        """The rows that none dominates; those with an infinite value, such as dead networks, are none."""
        values = self.minimised(self.columns(pool, ranked))
        sound = np.flatnonzero(np.isfinite(values).all(axis=1))
        return sound[front_of(values[sound])]

    def order(self, pool: Sequence[Candidate], ranked: Mapping[str, Metric] = {}) -> Rows:
        """All rows by rank and crowding, the best first and infinite values last (NSGA-II)."""
        values = self.minimised(self.columns(pool, ranked))
        sound = np.isfinite(values).all(axis=1)
        best = np.flatnonzero(sound)
        return np.concatenate([best[crowded_order(values[best])], np.flatnonzero(~sound)])

    def summary(
        self, genotypes: Sequence[Genotype], pool: Sequence[Candidate], ranked: Mapping[str, Metric] = {}
    ) -> Front:
        """The front of a pool, as a result of a search."""
        columns = self.columns(pool, ranked)
        values = self.minimised(columns)
        rows = self.front(pool, ranked)
        rows = rows[np.sort(np.unique(values[rows], axis=0, return_index=True)[1])]  # one of equals
        if not len(rows):
            got = f"none of {len(pool)}"
            raise InputError("expected an architecture with finite objectives", got=got, where="objectives")
        sound = np.isfinite(values).all(axis=1)
        signs = np.array([self._sign(name) for name in self.names])
        worst = values[sound].max(axis=0) if self.reference is None else signs * np.array(self.reference)
        return Front(
            [genotypes[row] for row in rows],
            _pick(columns, rows),
            knee_of(values[rows]),
            hypervolume(values[rows], worst),
            _pick(columns, np.flatnonzero(sound)),
        )


def _pick(columns: Mapping[str, Sequence[float]], rows: Rows) -> dict[str, list[float]]:
    return {name: [column[row] for row in rows] for name, column in columns.items()}


class Front(NamedTuple):
    """The architectures that nothing looked at is better than, in all objectives together.

    Args:
        genotypes: in the order of the first objective, the best first.
        columns: their objectives, by name.
        knee: which of them is deepest below the plane through the ends.
        hypervolume: of the objectives' units.
        looked_at: the objectives of all that was looked at.

    >>> columns = {"params": [1.0, 2.0], "ranking": [-3.0, -1.0]}
    >>> front = Front([], columns, knee=1, hypervolume=2.0, looked_at=columns)
    >>> print(front.table(["a", "b"]).csv(), end="")
    index,params,ranking,knee,genotype
    0,1,-3,,a
    1,2,-1,knee,b
    """

    genotypes: Sequence[Genotype]
    columns: Mapping[str, Sequence[float]]
    knee: int
    hypervolume: float
    looked_at: Mapping[str, Sequence[float]]

    def table(self, notations: Sequence[str]) -> Table:
        """A row a member."""
        rows = [
            [index, *map(_plain, values), "knee" if index == self.knee else "", notation]
            for index, (*values, notation) in enumerate(zip(*self.columns.values(), notations, strict=True))
        ]
        return Table("front", "The front", ["index", *self.columns, "knee", "genotype"], rows)


def _plain(value: float) -> float:
    """Counts as whole numbers."""
    return int(value) if value.is_integer() else value
