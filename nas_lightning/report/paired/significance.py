"""Whether paired differences lie to one side of 0: exact tests, an interval, Holm's correction, their power.

Wilcoxon, Individual comparisons by ranking methods (1945); Fisher, The design of experiments (1935), §21;
Holm, A simple sequentially rejective multiple test procedure (1979).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np

MOST_ENUMERATED = 20  # pairs, whose signs are a million


def wilcoxon(differences: Sequence[float]) -> float:
    """The exact two-sided p of W⁺ = Σ_{d_i > 0} rank |d_i|, where every sign is as likely as the other.

    Equal sizes share their mean rank; pairs without a difference say nothing and are left out.

    >>> wilcoxon([1.0, 2.0, 3.0]), wilcoxon([1.0, -2.0, 3.0]), wilcoxon([0.0])
    (0.25, 0.75, 1.0)
    """
    from scipy.stats import rankdata

    kept = [d for d in differences if d]
    if not kept:
        return 1.0
    ranks = [round(2 * rank) for rank in rankdata(np.abs(kept))]  # whole numbers, with shared ones, too
    ways = np.ones(1, dtype=object)  # ways[w]: of how many choices of signs W⁺ is w / 2
    for rank in ranks:
        longer = np.zeros(len(ways) + rank, dtype=object)
        longer[: len(ways)] += ways
        longer[rank:] += ways
        ways = longer
    above = sum(rank for rank, d in zip(ranks, kept, strict=True) if d > 0)
    tail = min(above, sum(ranks) - above)  # the distribution is symmetric
    return float(min(1.0, 2 * int(sum(ways[: tail + 1])) / 2 ** len(kept)))


def permutation(differences: Sequence[float]) -> float:
    """The exact two-sided p of |Σ d_i| among all 2ⁿ choices of signs.

    >>> permutation([1.0, 2.0, 3.0]), permutation([1.0, -2.0, 3.0])
    (0.25, 0.75)
    """
    sums = np.zeros(1)
    for d in differences:
        sums = np.concatenate([sums + d, sums - d])
    seen = abs(math.fsum(differences))
    margin = 1e-9 * math.fsum(map(abs, differences))  # sums that are equal but for their rounding
    return float(np.mean(np.abs(sums) >= seen - margin))


def t_test(differences: Sequence[float]) -> float:
    """The two-sided p of t = d̄ / (s / √n), whose differences are taken to be normal.

    >>> round(t_test([1.0, 2.0, 3.0]), 4)
    0.0742
    """
    from scipy.special import stdtr

    mean, error = _mean_and_error(differences)
    if not error:
        return 1.0 if not mean else 0.0
    return float(2 * stdtr(len(differences) - 1, -abs(mean / error)))


TESTS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "wilcoxon": wilcoxon,
    "permutation": permutation,
    "t": t_test,
}


def t_interval(differences: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """d̄ ± t_{n−1, (1+level)/2} s / √n, of at least two differences.

    >>> [round(end, 3) for end in t_interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    from scipy.special import stdtrit

    mean, error = _mean_and_error(differences)
    half = float(stdtrit(len(differences) - 1, (1 + level) / 2)) * error
    return mean - half, mean + half


def holm(p_values: Sequence[float]) -> list[float]:
    """The adjusted p: from the least on, the i-th of m is multiplied by m − i + 1, and none is below another.

    >>> holm([0.04, 0.01, 0.03])
    [0.06, 0.03, 0.06]
    """
    adjusted, least = [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = least
    return adjusted


def least_p(pairs: int) -> float:
    """The least two-sided p that an exact test of so many pairs can give: 2 of the 2ⁿ choices of signs.

    >>> least_p(3), least_p(6)
    (0.25, 0.03125)
    """
    return min(1.0, 2.0 ** (1 - pairs))


def needed_pairs(level: float, comparisons: int = 1) -> int:
    """How many pairs an exact test needs to come below a level after Holm's correction.

    >>> needed_pairs(0.05), needed_pairs(0.05, comparisons=4)
    (6, 8)
    """
    return next(n for n in range(1, 2000) if comparisons * least_p(n) <= level)


def _mean_and_error(differences: Sequence[float]) -> tuple[float, float]:
    return statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(len(differences))
