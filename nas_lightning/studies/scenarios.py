"""The four scenarios of the thesis' table 7.5: a metric alone, with HNAS' trade-off, with κ, and with both.

`nas_lightning.objectives.trade_off` has the formula. Its μ and ν are searched on a grid that suits metrics
from 10⁻² to 10³⁰: √ν at the quantiles of the metric, μ = 10^c with c in `EXPONENTS`, where HNAS searches, in
the unit in which both terms are as large as each other for the median architecture. So a pair (c, quantile)
means the same in another setting, whatever the scale that the metric has there.

The best of a grid on the architectures that it was chosen on is what the authors report, and flatters. So
beside it stands the mean over halves: the parameters chosen on one half, the correlation on the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nas_lightning.objectives.trade_off import EXPONENTS, trade_off
from nas_lightning.studies.statistics import Statistic, Values

Rows = NDArray[np.int64]


class Parameters(NamedTuple):
    """μ and ν on scales that all metrics share.

    Args:
        exponent: c of μ = 10^c.
        quantile: of the metric, where √ν is.
    """

    exponent: float
    quantile: float


GRID = [
    Parameters(c, q) for c in np.linspace(*EXPONENTS, 11).tolist() for q in np.linspace(0, 1, 21).tolist()
]


class TradeOffObjective:
    """A metric and κ of some architectures, in HNAS' objective.

    Args:
        metric: larger is better, (n,).
        kappa: (n,); None leaves the condition number out.
        power: of F(x) = |x|^power.

    >>> metric, kappa = np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])
    >>> int(TradeOffObjective(metric, kappa).with_kappa().argmax())
    2
    """

    def __init__(self, metric: Values, kappa: Values | None = None, power: float = 2.0) -> None:
        values = torch.as_tensor(metric, dtype=torch.float64)
        self.kappa = torch.ones_like(values) if kappa is None else torch.as_tensor(kappa, dtype=torch.float64)
        self.sound = torch.isfinite(values) & (values > 0) & torch.isfinite(self.kappa)
        self.unit = float(values[self.sound].max()) if bool(self.sound.any()) else 1.0
        self.metric, self.power = values / self.unit, power  # Synflow's powers are no float64

    def with_kappa(self) -> Values:
        """−κ/M, larger is better: (n,)."""
        return self._minus_trade_off(0.0, 0.0)

    def scores(self, parameters: Parameters) -> Values:
        """Minus the objective, so that larger is better: (n,)."""
        return self._minus_trade_off(*self._scales(parameters))

    def best(self, accuracy: Values, rows: Rows | None = None) -> Parameters:
        """Of the grid, what has the largest Spearman correlation with the accuracy (on some of the rows)."""
        from scipy.stats import rankdata

        chosen = np.arange(len(accuracy)) if rows is None else rows
        ranks = _centre(rankdata(self._on_grid[:, chosen], axis=1))  # (g, n)
        found = ranks @ _centre(rankdata(accuracy[chosen])[None])[0]
        return GRID[int(np.argmax(np.nan_to_num(found, nan=-np.inf)))]

    def raw(self, parameters: Parameters) -> tuple[float, float]:
        """μ and ν of the formula for the metric as it is."""
        mu, nu = self._scales(parameters)
        return mu / self.unit ** (1 + 2 * self.power), nu * self.unit**2

    def held_out(
        self, accuracy: Values, statistics: Sequence[Statistic], splits: int, seed: int = 0
    ) -> list[float]:
        """Means on halves whose parameters were chosen on the other half, both ways of random splits."""
        found = []
        for chosen_on, reported_on in _halves(len(accuracy), splits, seed):
            scores = self.scores(self.best(accuracy, chosen_on))
            found.append([statistic(scores[reported_on], accuracy[reported_on]) for statistic in statistics])
        return np.mean(found, axis=0).tolist()

    @cached_property
    def _on_grid(self) -> Values:
        """The scores for all parameters of the grid, (g, n)."""
        mu, nu = torch.tensor([self._scales(p) for p in GRID], dtype=torch.float64).T[:, :, None]  # (g, 1)
        return self._minus_trade_off(mu, nu)

    def _scales(self, parameters: Parameters) -> tuple[float, float]:
        """μ and ν for the metric in units of its largest value."""
        metric, kappa = self.metric[self.sound], self.kappa[self.sound]
        if not len(metric):
            return 1.0, 0.0
        nu = float(torch.quantile(metric, parameters.quantile)) ** 2
        first = float((kappa / metric).median())
        second = float(((metric.square() - nu).abs() ** self.power).median())
        return 10**parameters.exponent * first / second if second else 0.0, nu

    def _minus_trade_off(self, mu: Tensor | float, nu: Tensor | float) -> Values:
        return -trade_off(self.kappa, self.metric, mu, nu, self.power).numpy()


def _halves(count: int, splits: int, seed: int) -> Iterator[tuple[Rows, Rows]]:
    random = np.random.default_rng(seed)
    for _ in range(splits):
        one, other = np.array_split(random.permutation(count), 2)
        yield one, other
        yield other, one


def _centre(ranks: Values) -> Values:
    """Rows with mean 0 and length 1; NaN where a row does not vary."""
    ranks = ranks - ranks.mean(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return ranks / np.linalg.norm(ranks, axis=-1, keepdims=True)
