"""Correlations between two scores of the same architectures, with the bootstrap's standard errors.

−∞, the score of a network that no input reaches, is a rank like any other: the last.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nas_lightning.tables import Estimate

Values = NDArray[np.float64]
Statistic = Callable[[Values, Values], float]


def spearman(x: Values, y: Values) -> float:
    """Spearman's ρ: Pearson's correlation of the ranks, where equal values share their mean rank.

    >>> spearman(np.array([1.0, 2.0, 30.0]), np.array([-np.inf, 0.0, 1.0]))
    1.0
    """
    from scipy.stats import rankdata

    return _linear(rankdata(x), rankdata(y))


def kendall(x: Values, y: Values) -> float:
    """Kendall's τ_b: concordant minus discordant pairs, as a share of those without ties.

    >>> round(kendall(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])), 3)
    0.333
    """
    from scipy.stats import kendalltau

    return float(kendalltau(x, y).statistic) if _varies(x) and _varies(y) else np.nan


def pearson(x: Values, y: Values) -> float:
    """Pearson's correlation, of the architectures for which both values are finite."""
    finite = np.isfinite(x) & np.isfinite(y)
    return _linear(x[finite], y[finite])


def estimate(
    statistic: Statistic, x: ArrayLike, y: ArrayLike, *, resamples: int = 200, seed: int = 0
) -> Estimate | None:
    """The statistic and its standard error: its deviation over samples drawn from the sample (Efron 1979).

    None where there is no correlation to speak of, because one of the two does not vary. The resamples follow
    from the seed and the number of architectures, so all estimates of a study share them.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    value = statistic(x, y)
    random = np.random.default_rng(seed)
    rows = random.integers(len(x), size=(resamples, len(x)))
    drawn = np.array([statistic(x[row], y[row]) for row in rows])
    drawn = drawn[np.isfinite(drawn)]
    if not np.isfinite(value) or len(drawn) < 2:
        return None
    return Estimate(value, float(drawn.std(ddof=1)))


def mean_estimate(values: ArrayLike) -> Estimate:
    """The mean of a sample and its standard error, which is 0 for a single value.

    >>> mean_estimate([1.0, 3.0])
    Estimate(value=2.0, error=1.0)
    """
    sample = np.asarray(values, dtype=np.float64)
    error = sample.std(ddof=1) / np.sqrt(len(sample)) if len(sample) > 1 else 0.0
    return Estimate(float(sample.mean()), float(error))


def _varies(x: Values) -> bool:
    return len(x) > 1 and bool((x != x[0]).any())


def _linear(x: Values, y: Values) -> float:
    if not (_varies(x) and _varies(y)):
        return np.nan
    with np.errstate(over="ignore"):
        x, y = x / np.abs(x).max(), y / np.abs(y).max()  # Synflow's squares are no float64
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1, 1))
