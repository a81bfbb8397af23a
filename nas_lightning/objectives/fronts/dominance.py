"""Fronts of points by several objectives, all of which are minimised (Deb et al. 2002, NSGA-II).

    a dominates b  ⇔  a_k ≤ b_k for all k, and a_k < b_k for one
    rank 0: what nothing dominates;  rank r: what nothing dominates but points of lower rank
    crowding(a) = Σ_k (next_k − previous_k) / (max_k − min_k)        among its rank, ordered by objective k

Points that are equal dominate each other not, and share a rank.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

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
    """The distance of each point of one rank to its neighbours, ∞ at the ends: (points,).

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
