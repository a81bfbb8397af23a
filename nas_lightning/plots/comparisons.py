"""Figures of comparisons: seeds, critical differences, and activations."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nas_lightning.plots.style import COLORS, FAINT, GRAY, INK, label_axes, tidy

_ROW = 0.28  # inches


def draw_seeds(values: Mapping[str, Mapping[str, Sequence[float]]], metric: str) -> Figure:
    """Draw a panel for each data set and a row for each arm: values as dots, their mean as a line.

    Args:
        values: {data set: {arm: values of the seeds}}.
        metric: the label of the axis.
    """
    arms = list(dict.fromkeys(arm for of_set in values.values() for arm in of_set))
    figure = Figure(figsize=(1.2 + 2.6 * len(values), 0.9 + _ROW * len(arms)), layout="constrained")
    panels = figure.subplots(1, len(values), sharey=True, squeeze=False)[0]
    for axes, (data, of_set) in zip(panels, values.items(), strict=True):
        for row, arm in enumerate(arms):
            seeds = of_set.get(arm, ())
            axes.plot(seeds, [row] * len(seeds), "o", color=COLORS[0], alpha=0.55, markersize=4, mew=0)
            if seeds:
                axes.plot([statistics.fmean(seeds)] * 2, [row - 0.3, row + 0.3], color=INK, linewidth=1.4)
        axes.set_title(data, fontsize=9, color=INK, loc="left")
        tidy(axes)
        label_axes(axes, metric, "")
    panels[0].set_yticks(range(len(arms)), arms, fontsize=8)
    panels[0].set_ylim(len(arms) - 0.5, -0.5)
    return figure


def draw_critical_difference(
    ranks: Mapping[str, float], difference: float, cliques: Sequence[Sequence[str]]
) -> Figure:
    """Draw mean ranks on an axis, the best on the left; bars connect ranks without a significant difference.

    After Demšar, Statistical comparisons of classifiers over multiple data sets (JMLR 7, 2006).

    Args:
        ranks: the mean rank of each arm.
        difference: the critical difference, drawn above.
        cliques: the groups that bars connect.
    """
    ordered = sorted(ranks, key=lambda arm: ranks[arm])
    half = (len(ordered) + 1) // 2
    figure = Figure(figsize=(6.2, 1.5 + _ROW * half + 0.12 * len(cliques)), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    end, lines = len(ordered), 0.35 * len(cliques)
    axes.set_xlim(1 - 0.45 * end, end + 0.45 * end)
    axes.set_ylim(-(lines + half + 0.7), 1.7)
    _draw_axis(axes, end)
    axes.plot([1, 1 + difference], [1.1, 1.1], color=INK, linewidth=1.4, marker="|", markersize=6)
    axes.text(1 + difference / 2, 1.25, f"critical difference {difference:.2f}", ha="center", fontsize=8)
    for place, arm in enumerate(ordered):
        left = place < half
        row = -(lines + 0.7 + (place if left else len(ordered) - 1 - place))
        edge = 1 - 0.05 * end if left else end + 0.05 * end
        axes.plot([ranks[arm], ranks[arm], edge], [0, row, row], color=GRAY, linewidth=0.9)
        axes.text(
            edge, row, f" {arm} {ranks[arm]:.2f} ", ha="right" if left else "left", va="center", fontsize=8
        )
    for number, clique in enumerate(cliques):
        ends = [ranks[clique[0]] - 0.04, ranks[clique[-1]] + 0.04]
        axes.plot(ends, [-0.35 * (number + 1)] * 2, color=COLORS[1], linewidth=3, solid_capstyle="butt")
    return figure


def _draw_axis(axes: Axes, end: int) -> None:
    axes.plot([1, end], [0, 0], color=INK, linewidth=1)
    for tick in range(1, end + 1):
        axes.plot([tick, tick], [0, 0.12], color=INK, linewidth=1)
        axes.plot([tick, tick], [0, -0.05], color=FAINT, linewidth=0.6)
        axes.text(tick, 0.2, str(tick), ha="center", fontsize=8, color=INK)


ACTIVATION_COLORS: Mapping[str, str] = {
    "relu": "#0072b2",
    "leaky_relu": "#56b4e9",
    "sigmoid": "#009e73",
    "tanh": "#d55e00",
    "swish": "#cc79a7",
}
"""Colors of activations in all pictures."""


def draw_activations(shares: Mapping[str, NDArray[np.float64]], skips: NDArray[np.float64]) -> Figure:
    """Draw the result of a search for activations as figure 1 of Zhu et al. 2022 (arXiv:2209.07238).

    Bars and points are means over searches with their standard deviations.

    Args:
        shares: {activation: shares of shape (searches, layers)}.
        skips: weights of the skips, of shape (searches, layers − 1).
    """
    figure = Figure(figsize=(9.0, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    width = 0.8 / len(shares)
    for number, (name, values) in enumerate(shares.items()):
        places = np.arange(1, values.shape[1] + 1) + width * (number - (len(shares) - 1) / 2)
        bars = {"width": width, "yerr": values.std(axis=0), "error_kw": {"elinewidth": 0.7, "ecolor": GRAY}}
        left.bar(places, values.mean(axis=0), color=ACTIVATION_COLORS.get(name, GRAY), label=name, **bars)
    places = np.arange(1, skips.shape[1] + 1)
    right.errorbar(places, skips.mean(axis=0), yerr=skips.std(axis=0), color="#e69f00", marker="o", capsize=2)
    right.axhline(0.5, color=GRAY, linewidth=0.8, linestyle="--")
    right.set_ylim(-0.02, 1.02)
    for axes, title, label in (
        (left, "Probability of each activation", "layer l"),
        (right, "Weight α of the skips; kept above ½", "skip l, round layer l + 1"),
    ):
        tidy(axes)
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)
        axes.set_xlabel(label, fontsize=8, color=INK)
    left.set_xticks(np.arange(1, next(iter(shares.values())).shape[1] + 1))
    right.set_xticks(places)
    figure.legend(frameon=False, fontsize=8, labelcolor=INK, ncols=len(shares), loc="outside lower left")
    return figure
