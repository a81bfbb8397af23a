"""Mean ranks over data sets, and which of them differ: Friedman's test and Nemenyi's critical difference.

Demšar, Statistical comparisons of classifiers over multiple data sets (JMLR 7, 2006), §3.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RankComparison:
    """How some ways rank over data sets; 1 is the best.

    Args:
        ranks: the mean rank of each.
        sets: how many data sets they are of.
        p: of Friedman's χ², that all rank alike.
        critical_difference: of mean ranks, at a level of 5 %, between any two.

    >>> ranked = RankComparison({"a": 1.0, "b": 2.4, "c": 2.6}, sets=5, p=0.02, critical_difference=1.48)
    >>> ranked.cliques()
    [('a', 'b'), ('b', 'c')]
    """

    ranks: Mapping[str, float]
    sets: int
    p: float
    critical_difference: float

    def cliques(self) -> list[tuple[str, ...]]:
        """The largest groups of neighbours that are not told apart."""
        names = sorted(self.ranks, key=lambda name: self.ranks[name])
        ends = [
            max(j for j in range(i, len(names)) if self._is_near(names[i], names[j]))
            for i in range(len(names))
        ]
        spans = [(i, end) for i, end in enumerate(ends) if end > i and (i == 0 or end > ends[i - 1])]
        return [tuple(names[i : end + 1]) for i, end in spans]

    def _is_near(self, one: str, other: str) -> bool:
        return abs(self.ranks[one] - self.ranks[other]) < self.critical_difference


def compare_ranks(scores: Mapping[str, Sequence[float]]) -> RankComparison:
    """The comparison of at least two ways by their scores, one a data set; larger is better.

    χ²_F = 12N / (k(k+1)) · (Σ_j R_j² − k(k+1)²/4),   divided by 1 − Σ(t³−t) / (N k (k²−1)) for ties
    CD = q_α √(k(k+1) / 6N)

    >>> ranked = compare_ranks({"a": [0.9, 0.8, 0.7], "b": [0.8, 0.7, 0.6]})
    >>> dict(ranked.ranks), round(ranked.p, 4), round(ranked.critical_difference, 3)
    ({'a': 1.0, 'b': 2.0}, 0.0833, 1.132)
    """
    from scipy.special import chdtrc
    from scipy.stats import rankdata

    table = np.array([*scores.values()], dtype=np.float64).T  # (data sets, ways)
    N, k = table.shape
    ranks = rankdata(-table, axis=1)
    R = ranks.mean(axis=0)
    ties = sum(int(t**3 - t) for row in table for t in np.unique(row, return_counts=True)[1])
    spread = 1 - ties / (N * k * (k**2 - 1))
    chi2 = 12 * N / (k * (k + 1)) * (float((R**2).sum()) - k * (k + 1) ** 2 / 4)
    p = float(chdtrc(k - 1, max(chi2, 0.0) / spread)) if spread else 1.0
    names = [*scores]
    return RankComparison(dict(zip(names, map(float, R), strict=True)), N, p, critical_difference(k, N))


def critical_difference(ways: int, sets: int, level: float = 0.05) -> float:
    """Nemenyi's: q_α is the quantile of the studentised range of infinitely many degrees, divided by √2.

    >>> round(critical_difference(4, 14), 2)  # of Demšar's example
    1.25
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - level, ways, math.inf)) / math.sqrt(2)
    return q * math.sqrt(ways * (ways + 1) / (6 * sets))
