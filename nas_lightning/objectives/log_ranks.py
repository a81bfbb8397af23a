"""Architectures ranked by several training-free metrics at once, without a parameter.

AZ-NAS (Lee & Ham 2024, arXiv:2403.19232) adds the logarithms of an architecture's relative ranks,

    s(A) = Σ_m log(rank_m(A) / n),   rank 1 … n, n for the best,

so that units do not matter, and being among the worst in one respect costs more than being best in another
earns. It combines one metric for each thing that an architecture must do. Here these are

    synflow   signals get through: what all paths together pass, whatever the data
    jacov     samples are told apart: their input gradients are not correlated
    flops     there is something to compute with

None of them needs a kernel. They were the best of all sets of up to four of our metrics on 206 cells of
NAS-Bench-201, by their true CIFAR-10 accuracies; `python -m nas_lightning.measure.training_free`
measures how they rank the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.counts import Flops
from nas_lightning.metrics.jacov import Jacov
from nas_lightning.metrics.synflow import Synflow

COMBINED: Mapping[str, Metric] = {"synflow": Synflow(), "jacov": Jacov(), "flops": Flops()}
"""What architectures are ranked by unless another metric is named."""


def log_ranks(pool: Sequence[Mapping[str, float]], metrics: Mapping[str, Metric] = COMBINED) -> list[float]:
    """s(A) of each architecture of the pool: ≤ 0, larger is better; equal values share their mean rank.

    An architecture with the worst value of any metric (a degenerate network, a singular kernel) gets −∞ and
    takes no rank from others. With a single metric the order is that of its values.

    >>> from nas_lightning.metrics import Flops, NTKCondition
    >>> metrics = {"flops": Flops(), "kappa": NTKCondition()}
    >>> pool = [{"flops": 1, "kappa": 30}, {"flops": 2, "kappa": 10}, {"flops": 3, "kappa": math.inf}]
    >>> [round(score, 3) for score in log_ranks(pool, metrics)]
    [-1.386, 0.0, -inf]
    """
    from scipy.stats import rankdata

    oriented = [[metric.orient(row[name]) for name, metric in metrics.items()] for row in pool]
    sound = [index for index, values in enumerate(oriented) if all(value > -math.inf for value in values)]
    scores = [-math.inf] * len(pool)
    for index in sound:
        scores[index] = 0.0
    for column in range(len(metrics)):
        ranks = rankdata([oriented[index][column] for index in sound])
        for index, rank in zip(sound, ranks, strict=True):
            scores[index] += math.log(rank / len(sound))
    return scores
