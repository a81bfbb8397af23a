"""Fronts of several objectives: dominance, hypervolume, and their files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.base import Metric
from nas_lightning.objectives.limits import OF_NETWORKS
from nas_lightning.objectives.rankings import log_ranks
from nas_lightning.runs.facts import FIGURES
from nas_lightning.runs.folder import RunFolder
from nas_lightning.utils.files import write_whole
from nas_lightning.utils.tables import Table

# Fronts of points; all objectives are minimized (Deb et al. 2002, NSGA-II).
#
#     a dominates b  ⇔  a_k ≤ b_k for all k, and a_k < b_k for one
#     rank 0: dominated by no point;  rank r: dominated only by points of lower rank
#     crowding(a) = Σ_k (next_k − previous_k) / (max_k − min_k)        among its rank, ordered by objective k
#
# Equal points do not dominate each other and share a rank.

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


def front_ranks(values: Array) -> Rows:
    """Return the rank of each point: (points, objectives) → (points,).

    >>> front_ranks(np.array([[1.0, 2.0], [2.0, 1.0], [2.0, 2.0], [3.0, 3.0]]))
    array([0, 0, 1, 2])
    """
    ranks = np.empty(len(values), dtype=np.int64)
    for rank, rows in enumerate(fronts_of(values)):
        ranks[rows] = rank
    return ranks


def fronts_of(values: Array) -> Iterator[Rows]:
    """Yield the rows of each rank, from 0 on.

    >>> [rows.tolist() for rows in fronts_of(np.array([[2.0, 2.0], [1.0, 1.0], [0.0, 3.0]]))]
    [[2, 1], [0]]
    """
    left = np.arange(len(values))
    while len(left):
        best = front_of(values[left])
        yield left[best]
        left = np.delete(left, best)


def front_of(values: Array) -> Rows:
    """Return the rows of the non-dominated points, in lexicographic order of the objectives.

    In that order no point is dominated by a later one, so each remaining point is on the front.

    >>> front_of(np.array([[3.0, 3.0], [2.0, 1.0], [1.0, 2.0]]))
    array([2, 1])
    """
    rows, place = np.lexsort(values.T[::-1]), 0
    while place < len(rows):
        point, later = values[rows[place]], values[rows[place + 1 :]]
        is_dominated = (later >= point).all(axis=1) & (later > point).any(axis=1)
        rows = np.concatenate([rows[: place + 1], rows[place + 1 :][~is_dominated]])
        place += 1
    return rows


def crowding(values: Array) -> Array:
    """Return the crowding distance of points of one rank, ∞ at the ends: (points,).

    >>> crowding(np.array([[0.0, 4.0], [1.0, 3.0], [4.0, 0.0]]))
    array([inf,  2., inf])
    """
    distance = np.zeros(len(values))
    for column in values.T:
        order = np.argsort(column, kind="stable")
        ordered = column[order]
        spread = ordered[-1] - ordered[0]
        if spread > 0:
            distance[order[1:-1]] += (ordered[2:] - ordered[:-2]) / spread
        distance[order[[0, -1]]] = np.inf
    return distance


def crowded_order(values: Array) -> Rows:
    """Return all rows by rank and then by crowding, the least crowded first."""
    ranks = front_ranks(values)
    distance = np.empty(len(values))
    for rank in np.unique(ranks):
        distance[ranks == rank] = crowding(values[ranks == rank])
    return np.lexsort((-distance, ranks))


def knee_of(values: Array) -> int:
    """Return the row of the knee: the point farthest below the plane through the ends of all objectives.

    With each objective scaled to [0, 1] the plane is Σ_k v_k = 1 (Das 1999), so the knee has the least sum.

    >>> knee_of(np.array([[0.0, 10.0], [1.0, 2.0], [9.0, 0.0]]))
    1
    """
    low, high = values.min(axis=0), values.max(axis=0)
    scaled = (values - low) / np.where(high > low, high - low, 1.0)
    return int(scaled.sum(axis=1).argmin())


# The hypervolume that points dominate below a reference (Zitzler & Thiele 1999).
#
#     HV(A) = volume of ∪_{a ∈ A} [a, r]
#
# It is the sum over slices between the points' values of the last objective (Zitzler 2001); within a slice
# the points below it form a front with one objective less.


def hypervolume(values: Array, reference: Array) -> float:
    """Return HV of (points, objectives) below a reference (objectives,).

    >>> hypervolume(np.array([[1.0, 2.0], [2.0, 1.0], [5.0, 0.0]]), np.array([3.0, 3.0]))
    3.0
    """
    if values.shape[1:] != reference.shape:
        raise InputError("The reference must have one number per objective", got=list(reference.shape))
    return _volume(values[(values < reference).all(axis=1)], reference)


def _volume(values: Array, reference: Array) -> float:
    if not len(values):
        return 0.0
    if len(reference) == 1:
        return float(reference[0] - values.min())
    if len(reference) == 2:
        return _area(values, reference)
    values = values[np.argsort(values[:, -1], kind="stable")]
    levels = np.append(values[:, -1], reference[-1])
    volume = 0.0
    for count, thickness in enumerate(np.diff(levels), 1):
        if thickness > 0:
            volume += thickness * _volume(values[:count, :-1], reference[:-1])
    return float(volume)


def _area(values: Array, reference: Array) -> float:
    """Return the hypervolume of two objectives: the area under a staircase."""
    front = values[front_of(values)]
    ceilings = np.append(reference[1], front[:-1, 1])
    return float(((reference[0] - front[:, 0]) * (ceilings - front[:, 1])).sum())


# Objectives by name, and the front of the evaluated architectures.
#
# params, macs, latency_ms, memory_mb      costs of the trained network; minimized
# ranking                                  the sum of log-ranks by several metrics; maximized
# accuracy                                 of a short training or a table; maximized
# any other name                           a training-free metric, in its own direction

RANKING, ACCURACY = "ranking", "accuracy"
NAMES = (*OF_NETWORKS, RANKING, ACCURACY)
"""Objectives that are not metrics."""


class Candidate(NamedTuple):
    """The known values of an architecture.

    Args:
        costs: costs of its network, by name.
        scores: values of its metrics, by name.
        accuracy: in percent, None if it is no objective.

    >>> Candidate({"params": 100.0}).scores
    {}
    """

    costs: Mapping[str, float] = {}
    scores: Mapping[str, float] = {}
    accuracy: float | None = None


@dataclass(frozen=True)
class Objectives:
    """Two or more objectives.

    Args:
        names: names in the order of columns.
        costs: maps a genotype to the costs of its network, by name.
        metrics: the objectives that are metrics.
        reference: reference point of the hypervolume. Default: the worst evaluated values.

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
            raise InputError(
                "`objectives` must have at least two entries", got=[*self.names], where="objectives"
            )
        for name in self.names:
            if self.names.count(name) > 1:
                raise InputError("`objectives` must be distinct", got=name, where="objectives")
            if name not in NAMES and name not in self.metrics:
                raise InputError("The metric must be one of the objectives", got=name, where="objectives")
        self._check_reference()

    def _check_reference(self) -> None:
        if self.reference is None:
            return
        sound = all(isinstance(value, int | float) and math.isfinite(value) for value in self.reference)
        if len(self.reference) != len(self.names) or not sound:
            expected = f"There must be {len(self.names)} numbers, one per objective"
            raise InputError(expected, got=[*self.reference], where="reference")

    @property
    def of_costs(self) -> tuple[str, ...]:
        """The objectives that are costs."""
        return tuple(name for name in self.names if name in OF_NETWORKS)

    def columns(self, pool: Sequence[Candidate], ranked: Mapping[str, Metric] = {}) -> dict[str, list[float]]:
        """Return the candidates' values by objective; `ranked` are the metrics of the ranking."""
        return {name: self._column(name, pool, ranked) for name in self.names}

    def _column(self, name: str, pool: Sequence[Candidate], ranked: Mapping[str, Metric]) -> list[float]:
        if name in OF_NETWORKS:
            return [one.costs[name] for one in pool]
        if name == RANKING:
            return log_ranks([one.scores for one in pool], ranked)
        if name == ACCURACY:
            return [-math.inf if one.accuracy is None else one.accuracy for one in pool]
        return [one.scores[name] for one in pool]

    def minimized(self, columns: Mapping[str, Sequence[float]]) -> Array:
        """Return (candidates, objectives), smaller is better."""
        return np.array([self._sign(name) * np.array(columns[name]) for name in self.names]).T

    def _sign(self, name: str) -> float:
        larger = name in (RANKING, ACCURACY) or (name in self.metrics and self.metrics[name].larger_is_better)
        return -1.0 if larger and name not in OF_NETWORKS else 1.0

    def front(self, pool: Sequence[Candidate], ranked: Mapping[str, Metric] = {}) -> Rows:
        """Return the non-dominated rows, without those with an infinite value, such as dead networks."""
        values = self.minimized(self.columns(pool, ranked))
        sound = np.flatnonzero(np.isfinite(values).all(axis=1))
        return sound[front_of(values[sound])]

    def order(self, pool: Sequence[Candidate], ranked: Mapping[str, Metric] = {}) -> Rows:
        """Return all rows by rank and crowding (NSGA-II), those with infinite values last."""
        values = self.minimized(self.columns(pool, ranked))
        sound = np.isfinite(values).all(axis=1)
        best = np.flatnonzero(sound)
        return np.concatenate([best[crowded_order(values[best])], np.flatnonzero(~sound)])

    def summary(
        self, genotypes: Sequence[Genotype], pool: Sequence[Candidate], ranked: Mapping[str, Metric] = {}
    ) -> Front:
        """Return the front of a pool as a result of a search."""
        columns = self.columns(pool, ranked)
        values = self.minimized(columns)
        rows = self.front(pool, ranked)
        rows = rows[np.sort(np.unique(values[rows], axis=0, return_index=True)[1])]  # one of equal points
        if not len(rows):
            got = f"none of {len(pool)}"
            raise InputError(
                "At least one architecture must have finite objectives", got=got, where="objectives"
            )
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
    """The non-dominated architectures.

    Args:
        genotypes: in the order of the first objective, the best first.
        columns: their objectives, by name.
        knee: index of the knee, see `knee_of`.
        hypervolume: in the objectives' units.
        looked_at: the objectives of all evaluated architectures.

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
        """Return a row per architecture."""
        rows = [
            [index, *map(_plain, values), "knee" if index == self.knee else "", notation]
            for index, (*values, notation) in enumerate(zip(*self.columns.values(), notations, strict=True))
        ]
        return Table("front", "The front", ["index", *self.columns, "knee", "genotype"], rows)


def _plain(value: float) -> float:
    """Return counts as integers."""
    return int(value) if value.is_integer() else value


# A run's files of a front: `front.csv`, all evaluated candidates, and a figure.


def write_front(run: RunFolder, front: Front, notations: Sequence[str]) -> None:
    """Write the front, all evaluated candidates, and a figure.

    Args:
        run: the run's folder.
        front: the front.
        notations: notations of its architectures.
    """
    from nas_lightning.plots.charts import draw_front
    from nas_lightning.plots.files import save

    rows = list(zip(*front.looked_at.values(), strict=True))
    write_whole(run.front, front.table(notations).csv())
    write_whole(run.candidates, Table("candidates", "", list(front.looked_at), rows).csv())
    save(draw_front(front.looked_at, front.columns, front.knee), run.path / FIGURES / "front")
