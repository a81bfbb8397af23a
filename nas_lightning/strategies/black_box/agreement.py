"""Whether the metrics of a pool agree with themselves: the same architectures with two draws of weights.

A metric whose order changes with the draw orders nothing, and no accuracy is needed to see it. Agreement is
no praise: the gradient's norm agrees with itself everywhere, and points the wrong way in some spaces.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence

from nas_lightning.metrics.base import Metric
from nas_lightning.progress import OutOfTimeError

LEAST = 0.5
"""Spearman's ρ below which a metric is said to be noise: of jacov on DARTS cells it is 0.3 to 0.4."""


Scored = Mapping[str, Mapping[str, float]]


def correlate_again(
    scored: Scored,
    metrics: Mapping[str, Metric],
    count: int,
    score: Callable[[list[str], Mapping[str, Metric]], Sequence[Mapping[str, float]]],
) -> dict[str, float] | None:
    """Of the first `count`, scored with other weights, once that costs a quarter of all scores at most."""
    drawn = {name: metric for name, metric in metrics.items() if not metric.counts_only}
    if not 0 < 4 * count <= len(scored) or not drawn:
        return None
    first = list(scored)[:count]
    again = score(first, drawn)
    if len(again) < count:
        raise OutOfTimeError
    found = self_correlations([scored[notation] for notation in first], again)
    warn_of_noise(found, count)
    return found


def self_correlations(
    first: Sequence[Mapping[str, float]], second: Sequence[Mapping[str, float]]
) -> dict[str, float]:
    """Spearman's ρ between two draws, by metric; without metrics that are the same for all architectures.

    >>> draws = [{"a": 1.0, "b": 1.0}, {"a": 2.0, "b": 2.0}], [{"a": 5.0, "b": 9.0}, {"a": 6.0, "b": 8.0}]
    >>> self_correlations(*draws)
    {'a': 1.0, 'b': -1.0}
    """
    from scipy.stats import rankdata

    correlations = {}
    for name in second[0]:
        ranks = [rankdata([row[name] for row in rows]) for rows in (first, second)]
        x, y = (values - values.mean() for values in ranks)
        size = math.sqrt((x @ x) * (y @ y))
        if size > 0:
            correlations[name] = float(x @ y / size)
    return correlations


def warn_of_noise(correlations: Mapping[str, float], count: int) -> None:
    """Name the metrics that do not agree with themselves."""
    noisy = [f"{name} {rho:.2f}" for name, rho in correlations.items() if rho < LEAST]
    if noisy:
        warnings.warn(
            f"metrics disagree with themselves: Spearman's correlation between two draws of {count} "
            f"architectures' weights is below {LEAST} for {', '.join(noisy)}. Leave them out, or score "
            "larger networks (network.channels, network.cells) on more images (strategy.images)",
            stacklevel=2,
        )
