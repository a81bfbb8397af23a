"""Architectures ranked by training-free metrics, and HNAS' trade-off."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.metrics import Expressivity, Meco, Metric, Params, Swap, Synflow, Trainability, Zen
from nas_lightning.spaces.base import SearchSpace

# Rankings by several training-free metrics.
#
# AZ-NAS (Lee & Ham 2024, arXiv:2403.19232) adds the logarithms of an architecture's relative ranks,
#
#     s(A) = Σ_m log(rank_m(A) / n),   rank 1 … n, n for the best,
#
# so that units do not matter, and a very bad rank costs more than a very good one earns. Each metric stands
# for another property:
#
#     params         capacity
#     meco           diversity of a layer's channels
#     expressivity   features of the blocks use all their dimensions
#     trainability   blocks preserve the norm of gradients
#     zen            sensitivity to the input
#     swap           units distinguish samples
#
# None of them needs labels, and each alone is worse than counting parameters in some space. The choice is
# described in `docs/training_free.md` and repeated by `analyze.py study=ranking`.

COMBINED: Mapping[str, Metric] = {
    "params": Params(),
    "meco": Meco(),
    "expressivity": Expressivity(),
    "trainability": Trainability(),
    "zen": Zen(),
    "swap": Swap(),
}
"""The default ranking of cells."""

AT_THE_TOP: Mapping[str, Metric] = {name: COMBINED[name] for name in ("params", "meco", "zen", "swap")}
"""For searches that evaluate the top of a ranking: worse overall, better among the first dozens."""

TO_WEIGH: Mapping[str, Metric] = {"zen": COMBINED["zen"], "synflow": Synflow()}
"""For RoBoT, which learns weights from a dozen evaluations, enough for two metrics: zen is good everywhere,
synflow the best metric in one space and the worst in another."""

COUNTED: Mapping[str, Metric] = {"params": COMBINED["params"]}
"""For spaces with a choice of depth, which the other metrics reward too much."""

NAMED = {"default": COMBINED, "top": AT_THE_TOP, "to_weigh": TO_WEIGH, "params": COUNTED}
MetricsChoice = Mapping[str, Metric] | Literal["default", "top", "to_weigh", "params"]
"""Metrics by column name, or the name of a set."""


def named_metrics(choice: MetricsChoice) -> Mapping[str, Metric]:
    """Return the metrics of a named set, or the given ones.

    >>> list(named_metrics("top"))
    ['params', 'meco', 'zen', 'swap']
    """
    if isinstance(choice, str):
        return NAMED[choice]
    for name, metric in choice.items():
        if not isinstance(metric, Metric):
            raise InputError("The value must be a metric", got=metric, where=f"strategy.metrics.{name}")
    return choice


def metrics_of(
    space: SearchSpace, choice: MetricsChoice | None, otherwise: MetricsChoice
) -> Mapping[str, Metric]:
    """Return the chosen metrics, else those of the space, else those of the search.

    >>> from nas_lightning.spaces import NasBench201, ResNet
    >>> list(metrics_of(ResNet(), None, "top")), list(metrics_of(NasBench201(), None, "top"))
    (['params'], ['params', 'meco', 'zen', 'swap'])
    """
    word: Any = space.ranked_by or otherwise
    return named_metrics(word if choice is None else choice)


def log_ranks(
    pool: Sequence[Mapping[str, float]],
    metrics: Mapping[str, Metric] = COMBINED,
    weights: Mapping[str, float] | None = None,
) -> list[float]:
    """Return s(A) ≤ 0 of each architecture of the pool; equal values share their mean rank.

    An architecture with the worst value of any metric (a degenerate network, a singular kernel) gets −∞ and
    is not ranked. With weights it is Σ_m w_m log(rank_m(A) / n).

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
    for column, name in enumerate(metrics):
        weight = 1.0 if weights is None else weights[name]
        ranks = rankdata([oriented[index][column] for index in sound])
        for index, rank in zip(sound, ranks, strict=True):
            scores[index] += weight * math.log(rank / len(sound))
    return scores


# HNAS' objective, of a training-free metric and the kernel's condition number (thesis, equation 7.7).
#
#     κ(A)/M(A) + μ F(M²(A) − ν),    F(x) = |x|^power
#
# is minimized over architectures A; M is any metric for which larger is better, and positive. It is the
# bound of corollary 7.2 on the generalization error: the first term falls as M grows, the second penalizes
# the distance of M from √ν, where training and generalization are in balance. The thesis has F(x) =
# |x|^{2t}, so `power` = 2 for t = 1; the authors' code has |x|.

EXPONENTS = (-1.0, 4.0)
"""c of μ = 10^c, in the unit in which both terms have the same median. For the kernel's trace, whose square
is a thousand times κ/M, it is about what the public code (shuyao95/HNAS) has without a unit, c ∈ [−4, 1]."""


def trade_off(
    kappa: Tensor, metric: Tensor, mu: Tensor | float, nu: Tensor | float, power: float = 2.0
) -> Tensor:
    """Return κ/M + μ |M² − ν|^power; +∞ where M is not positive and finite or κ is infinite.

    All arguments broadcast: κ and M of shape (n,) with μ and ν of shape (g, 1) evaluate a grid.

    >>> kappa, metric = torch.tensor([10.0, 12.0, torch.inf]), torch.tensor([2.0, 4.0, -torch.inf])
    >>> trade_off(kappa, metric, mu=0.5, nu=5.0)
    tensor([ 5.5000, 63.5000,     inf])
    """
    value = kappa / metric + mu * (metric.square() - nu).abs() ** power
    return torch.where((metric > 0) & metric.isfinite() & kappa.isfinite(), value, torch.inf)
