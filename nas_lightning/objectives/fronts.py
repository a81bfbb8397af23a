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

# Fronts of points by several objectives, all of which are minimized (Deb et al. 2002, NSGA-II).
#
#     a dominates b  ⇔  a_k ≤ b_k for all k, and a_k < b_k for one
#     rank 0: what nothing dominates;  rank r: what nothing dominates but points of lower rank
#     crowding(a) = Σ_k (next_k − previous_k) / (max_k − min_k)        among its rank, ordered by objective k
#
# Points that are equal dominate each other not, and share a rank.

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


def front_ranks(values: Array) -> Rows:
    """The rank of each of (points, objectives): (points,).

    >>> front_ranks(np.array([[1.0, 2.0], [2.0, 1.0], [2.0, 2.0], [3.0, 3.0]]))
    array([0, 0, 1, 2])
    """
    ranks = np.empty(len(values), dtype=np.int64)
    for rank, rows in enumerate(fronts_of(values)):
        ranks[rows] = rank
    return ranks


def fronts_of(values: Array) -> Iterator[Rows]:
    """The rows of each rank, from 0 on.

    >>> [rows.tolist() for rows in fronts_of(np.array([[2.0, 2.0], [1.0, 1.0], [0.0, 3.0]]))]
    [[2, 1], [0]]
    """
    left = np.arange(len(values))
    while len(left):
        best = front_of(values[left])
        yield left[best]
        left = np.delete(left, best)


def front_of(values: Array) -> Rows:
    """The points that no other dominates, by the first objective and then the next: their rows.

    In that order no point is dominated by a later one, so each that is left is of the front.

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
    """The distance of each point of one rank to its neighbors, ∞ at the ends: (points,).

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
    """All points, by rank and then by crowding, the least crowded first: their rows."""
    ranks = front_ranks(values)
    distance = np.empty(len(values))
    for rank in np.unique(ranks):
        distance[ranks == rank] = crowding(values[ranks == rank])
    return np.lexsort((-distance, ranks))


def knee_of(values: Array) -> int:
    """The point of a front that is deepest below the plane through the ends of all objectives: its row.

    With each objective scaled to [0, 1] that plane is Σ_k v_k = 1 (Das 1999), so the point is the one with
    the least sum.

    >>> knee_of(np.array([[0.0, 10.0], [1.0, 2.0], [9.0, 0.0]]))
    1
    """
    low, high = values.min(axis=0), values.max(axis=0)
    scaled = (values - low) / np.where(high > low, high - low, 1.0)
    return int(scaled.sum(axis=1).argmin())


# The volume that points dominate below a reference, all objectives minimized (Zitzler & Thiele 1999).
#
#     HV(A) = volume of ∪_{a ∈ A} [a, r]
#
# It is summed up over slices between the points' values of the last objective (Zitzler 2001): within a slice
# the points below it are a front of one objective less.


def hypervolume(values: Array, reference: Array) -> float:
    """HV of (points, objectives) below a reference of (objectives,); what is not below it adds nothing.

    >>> hypervolume(np.array([[1.0, 2.0], [2.0, 1.0], [5.0, 0.0]]), np.array([3.0, 3.0]))
    3.0
    """
    if values.shape[1:] != reference.shape:
        raise InputError("expected a reference with a number an objective", got=list(reference.shape))
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
    """The same of two objectives: steps of a staircase."""
    front = values[front_of(values)]
    ceilings = np.append(reference[1], front[:-1, 1])
    return float(((reference[0] - front[:, 0]) * (ceilings - front[:, 1])).sum())


# Several objectives by their names, and the front of what was looked at.
#
# params, macs, latency_ms, memory_mb      costs of the network that is trained; less is better
# ranking                                  the sum of log-ranks by a set of metrics; more is better
# accuracy                                 what a short training or a table says; more is better
# any other                                a training-free metric, in its own direction

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

    def minimized(self, columns: Mapping[str, Sequence[float]]) -> Array:
        """(candidates, objectives), less is better."""
        return np.array([self._sign(name) * np.array(columns[name]) for name in self.names]).T

    def _sign(self, name: str) -> float:
        larger = name in (RANKING, ACCURACY) or (name in self.metrics and self.metrics[name].larger_is_better)
        return -1.0 if larger and name not in OF_NETWORKS else 1.0

    def front(self, pool: Sequence[Candidate], ranked: Mapping[str, Metric] = {}) -> Rows:
        """The rows that none dominates; those with an infinite value, such as dead networks, are none."""
        values = self.minimized(self.columns(pool, ranked))
        sound = np.flatnonzero(np.isfinite(values).all(axis=1))
        return sound[front_of(values[sound])]

    def order(self, pool: Sequence[Candidate], ranked: Mapping[str, Metric] = {}) -> Rows:
        """All rows by rank and crowding, the best first and infinite values last (NSGA-II)."""
        values = self.minimized(self.columns(pool, ranked))
        sound = np.isfinite(values).all(axis=1)
        best = np.flatnonzero(sound)
        return np.concatenate([best[crowded_order(values[best])], np.flatnonzero(~sound)])

    def summary(
        self, genotypes: Sequence[Genotype], pool: Sequence[Candidate], ranked: Mapping[str, Metric] = {}
    ) -> Front:
        """The front of a pool, as a result of a search."""
        columns = self.columns(pool, ranked)
        values = self.minimized(columns)
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


# A front as files of a run: `front.csv`, all that was looked at, and a figure.


def write_front(run: RunFolder, front: Front, notations: Sequence[str]) -> None:
    """Write what a search for a front has come to.

    Args:
        run: the folder.
        front: what was found.
        notations: of its architectures.
    """
    from nas_lightning.plots.charts import draw_front
    from nas_lightning.plots.files import save

    rows = list(zip(*front.looked_at.values(), strict=True))
    write_whole(run.front, front.table(notations).csv())
    write_whole(run.candidates, Table("candidates", "", list(front.looked_at), rows).csv())
    save(draw_front(front.looked_at, front.columns, front.knee), run.path / FIGURES / "front")
