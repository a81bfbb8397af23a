"""t(A) against accuracies: in bins, and conditioned on t ≤ ν (Y. Shu's thesis, 2022, fig. 6.3, table 6.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from nas_lightning.metrics import GradNorm
from nas_lightning.metrics.base import Metric
from nas_lightning.plots.style import COLOURS, GREY, INK, tidy
from nas_lightning.studies.statistics import Values, estimate, kendall, mean_estimate, spearman
from nas_lightning.tables import Entry, Estimate, Table

TRACE: Mapping[str, Metric] = {"norm": GradNorm(per_layer=False)}
"""‖b⁻¹ Σ ∇L‖, whose square is t."""

SHARES = (0.25, 0.5, 0.75, 0.9, 1.0)
_BINS = "As many cells in each bin; the mean of accuracies ± its standard error, their deviation, the best"
_CONDITIONED = "ν is a quantile of t; the correlation is of those cells alone whose t is not above it"


class Bin(NamedTuple):
    """Cells of a similar t.

    Args:
        t: their mean.
        values: their accuracies.
        mean: of these.

    >>> Bin(1.0, np.array([90.0, 92.0]), mean_estimate([90.0, 92.0])).best
    92.0
    """

    t: float
    values: Values
    mean: Estimate

    @property
    def deviation(self) -> float:
        """Of the accuracies, 0 for a single one."""
        return float(self.values.std(ddof=1)) if len(self.values) > 1 else 0.0

    @property
    def best(self) -> float:
        """The largest of them."""
        return float(self.values.max())


def bins_of(
    norms: Values, accuracy: Values, *, bins: int, what: str, resamples: int, seed: int
) -> tuple[list[Table], dict[str, Figure]]:
    """Two tables and a figure; cells that no input reaches, whose norm is −∞, have t = 0."""
    t = np.clip(norms, 0, None) ** 2
    found = [
        Bin(float(t[part].mean()), accuracy[part], mean_estimate(accuracy[part]))
        for part in np.array_split(np.argsort(t, kind="stable"), bins)
    ]
    rows: list[list[Entry]] = [
        [number, len(one.values), one.t, one.mean, one.deviation, one.best]
        for number, one in enumerate(found, 1)
    ]
    columns = ["bin", "cells", "mean t", "accuracy", "deviation", "best"]
    binned = Table("bins", f"Accuracy (%) by bins of t(A): {what}", columns, rows, _BINS)
    conditioned = [conditioned_row(t, accuracy, share, resamples, seed) for share in SHARES]
    columns = ["cells with the smallest t", "cells", "ν", "Spearman", "Kendall"]
    title = f"t(A) against accuracy, conditioned on t ≤ ν: {what}"
    return [binned, Table("conditioned", title, columns, conditioned, _CONDITIONED)], {
        "bins": _picture(found)
    }


def conditioned_row(t: Values, accuracy: Values, share: float, resamples: int, seed: int) -> list[Entry]:
    """A share of the cells, and the correlations of those that have the smallest t.

    >>> t, accuracy = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0, 0.0])
    >>> conditioned_row(t, accuracy, 0.75, resamples=20, seed=0)[:3]
    ['75%', 3, 3.25]
    """
    nu = float(np.quantile(t, share))
    kept = t <= nu
    found = [
        estimate(s, t[kept], accuracy[kept], resamples=resamples, seed=seed) for s in (spearman, kendall)
    ]
    return [f"{share:.0%}", int(kept.sum()), nu, *found]


def _picture(bins: Sequence[Bin]) -> Figure:
    t, means = np.array([one.t for one in bins]), [one.mean.value for one in bins]
    figure = Figure(figsize=(3.6, 2.6), layout="constrained")
    axes = figure.subplots()
    style: dict[str, Any] = {"color": COLOURS[0], "marker": "o", "markersize": 4, "capsize": 2}
    axes.errorbar(t, means, yerr=[one.deviation / 2 for one in bins], label="mean ± ½ deviation", **style)
    axes.plot(t, [one.best for one in bins], color=GREY, marker="^", markersize=4, label="best")
    if (t > 0).all():
        axes.set_xscale("log")
    axes.set_xlabel("mean t(A) of a bin", fontsize=8, color=INK)
    axes.set_ylabel("accuracy (%)", fontsize=8, color=INK)
    axes.legend(frameon=False, fontsize=7, labelcolor=INK)
    tidy(axes)
    return figure
