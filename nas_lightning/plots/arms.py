"""Pictures of a comparison: every seed as a dot, and mean ranks with what is not told apart."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nas_lightning.plots.style import COLOURS, FAINT, GREY, INK, label_axes, tidy

_ROW = 0.28  # inches


def draw_seeds(values: Mapping[str, Mapping[str, Sequence[float]]], metric: str) -> Figure:
    """A panel a data set, a row an arm: its values as dots, their mean as a line.

    Args:
        values: data set → arm → one value a seed.
        metric: below the axis.
    """
    arms = list(dict.fromkeys(arm for of_set in values.values() for arm in of_set))
    figure = Figure(figsize=(1.2 + 2.6 * len(values), 0.9 + _ROW * len(arms)), layout="constrained")
    panels = figure.subplots(1, len(values), sharey=True, squeeze=False)[0]
    for axes, (data, of_set) in zip(panels, values.items(), strict=True):
        for row, arm in enumerate(arms):
            seeds = of_set.get(arm, ())
            axes.plot(seeds, [row] * len(seeds), "o", color=COLOURS[0], alpha=0.55, markersize=4, mew=0)
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
    """Mean ranks on an axis, the best on the left; a bar joins those that are not told apart (Demšar 2006).

    Args:
        ranks: the mean rank of each arm.
        difference: the critical one, drawn above.
        cliques: the groups that a bar joins.
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
        axes.plot([ranks[arm], ranks[arm], edge], [0, row, row], color=GREY, linewidth=0.9)
        axes.text(
            edge, row, f" {arm} {ranks[arm]:.2f} ", ha="right" if left else "left", va="center", fontsize=8
        )
    for number, clique in enumerate(cliques):
        ends = [ranks[clique[0]] - 0.04, ranks[clique[-1]] + 0.04]
        axes.plot(ends, [-0.35 * (number + 1)] * 2, color=COLOURS[1], linewidth=3, solid_capstyle="butt")
    return figure


def _draw_axis(axes: Axes, end: int) -> None:
    axes.plot([1, end], [0, 0], color=INK, linewidth=1)
    for tick in range(1, end + 1):
        axes.plot([tick, tick], [0, 0.12], color=INK, linewidth=1)
        axes.plot([tick, tick], [0, -0.05], color=FAINT, linewidth=0.6)
        axes.text(tick, 0.2, str(tick), ha="center", fontsize=8, color=INK)
