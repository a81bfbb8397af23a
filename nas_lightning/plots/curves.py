"""Pictures of a run: curves, architecture weights, fronts, comparisons."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.plots.cells import draw_genotype
from nas_lightning.plots.style import COLORS as STYLE_COLORS
from nas_lightning.plots.style import (
    FAINT,
    GRAY,
    INK,
    dash_patterns,
    kind,
    label_axes,
    legend_above,
    node_name,
    op_label,
    save,
    tidy,
)
from nas_lightning.utils.text import split_score

# Losses, accuracies and entropies over the epochs of a run.

_PANELS = {"loss": r"(.+)_loss", "accuracy": r"(.+)_accuracy", "entropy": r"entropy/(.+)"}
_COLORS = {
    "train": "#0072b2",
    "valid": "#d55e00",
    "val": "#d55e00",
    "normal": "#0072b2",
    "reduce": "#d55e00",
}
_MORE = ("#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def draw_curves(rows: Iterable[Mapping[str, float]]) -> Figure:
    """`*_loss`, `*_accuracy`, `entropy/*` and the task's scores over epochs.

    A row holds the values it has: {"epoch": 3, "train_loss": 1.2}. Test results are left out: they are one
    number each.
    """
    panels = by_panel(rows)
    figure = Figure(figsize=(3.6 * len(panels), 2.7), layout="constrained")
    subplots = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, lines) in zip(subplots, panels.items(), strict=True):
        _panel(axes, title, lines)
    return figure


def by_panel(rows: Iterable[Mapping[str, float]]) -> dict[str, dict[str, dict[int, float]]]:
    """{panel: {line: {epoch: value}}}; raises where there is no line.

    >>> by_panel([{"epoch": 0, "train_loss": 2.0, "valid_loss": 3.0, "lr": 0.1}])
    {'loss': {'train': {0: 2.0}, 'valid': {0: 3.0}}}
    >>> by_panel([{"epoch": 0, "train_r2": 0.2, "test_r2": 0.1}])
    {'r2': {'train': {0: 0.2}}}
    """
    series = by_epoch(rows)
    panels: dict[str, dict[str, dict[int, float]]] = {}
    for title, pattern in _PANELS.items():
        for name, values in series.items():
            match = re.fullmatch(pattern, name)
            if match and match[1] != "test":
                panels.setdefault(title, {})[match[1]] = values
    for name, values in series.items():
        score = split_score(name)
        if score and score[0] != "test":
            panels.setdefault(score[1], {})[score[0]] = values
    if not panels:
        raise InputError(
            "expected losses or accuracies of at least one epoch", got=", ".join(series) or "none"
        )
    return panels


def by_epoch(rows: Iterable[Mapping[str, float]]) -> dict[str, dict[int, float]]:
    """The last value of every metric in every epoch: {name: {epoch: value}}.

    >>> by_epoch([{"epoch": 0, "train_loss": 2.0}, {"epoch": 0, "train_loss": 1.5}])
    {'train_loss': {0: 1.5}}
    """
    series: dict[str, dict[int, float]] = {}
    for row in rows:
        for name, value in row.items():
            if "epoch" in row and name not in ("step", "epoch"):
                series.setdefault(name, {})[int(row["epoch"])] = value
    return series


def _panel(axes: Axes, title: str, lines: Mapping[str, Mapping[int, float]]) -> None:
    tidy(axes)
    more = iter(_MORE * len(lines))
    for name, values in lines.items():
        marker = "o" if len(values) < 12 else ""
        color = _COLORS.get(name) or next(more)
        epochs = [epoch + 1 for epoch in values]
        axes.plot(
            epochs,
            list(values.values()),
            color=color,
            linewidth=1.6,
            marker=marker,
            markersize=3,
            label=name,
        )
    axes.set_title(title.capitalize(), loc="left", fontsize=10, fontweight="bold", color=INK)
    axes.set_xlabel("epoch", fontsize=8, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
    axes.ticklabel_format(axis="y", useOffset=False)
    if title == "entropy":  # a share of its maximum
        axes.set_ylim(0, 1.05)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)


# How the architecture weights moved during a search: one small panel an edge.

PANEL = (1.45, 1.1)
WIDTH_OF_TITLE = 4.0


def draw_weights(history: Sequence[Mapping[str, Any]], group: str) -> Figure:
    """The score of every operation on every edge of `group` over the epochs of a `history.jsonl`.

    Where the decisions belong to nodes, a panel is a node, and its candidates operations or nodes.

    An entry holds {"epoch", "groups": {name: {"edges", "ops", "scores"}}} with scores of (edges, ops). The
    operation that leads on an edge in the end is drawn bold and named. Panels stand by target (rows) and
    source (columns) where the cell fills such a table, and otherwise in reading order.
    """
    entries = [entry for entry in history if group in entry["groups"]]
    if not entries:
        raise InputError(
            f"expected a history with scores of the group {group!r}", got=f"{len(history)} entries"
        )
    last = entries[-1]["groups"][group]
    edges, ops = [tuple(edge) for edge in last["edges"]], last["ops"]
    inputs = min(target for *_, target in edges)
    rows, columns, places = _grid(edges)
    width = max(columns * PANEL[0] + 0.5, WIDTH_OF_TITLE)
    figure = Figure(figsize=(width, rows * PANEL[1] + 0.9), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    epochs = [entry["epoch"] + 1 for entry in entries]
    styles = dict(zip(ops, _line_styles(ops), strict=True))
    for row in panels:
        for axes in row:
            axes.set_axis_off()
    for index, (edge, place) in enumerate(zip(edges, places, strict=True)):
        axes = panels[place]
        below = (place[0] + 1, place[1])
        scores = [entry["groups"][group]["scores"][index] for entry in entries]  # (epochs, ops)
        title = " → ".join(node_name(node, inputs) for node in edge) if len(edge) == 2 else f"node {edge[0]}"
        _panel_weights(axes, title, ops, epochs, scores, styles, labeled=(below not in places, place[1] == 0))
    _legend(figure, styles, columns)
    figure.suptitle(
        f"Weights of the {group} group", x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK
    )
    return figure


def _grid(edges: Sequence[tuple[int, ...]]) -> tuple[int, int, list[tuple[int, int]]]:
    """Rows, columns and the place of every edge."""
    targets = sorted({edge[-1] for edge in edges})
    sources = sorted({edge[0] for edge in edges})
    pairs = all(len(edge) == 2 for edge in edges)
    if pairs and len(set(edges)) == len(edges) and 2 * len(edges) >= len(targets) * len(sources):
        return len(targets), len(sources), [(targets.index(e[1]), sources.index(e[0])) for e in edges]
    columns = math.ceil(math.sqrt(len(edges)))
    return math.ceil(len(edges) / columns), columns, [divmod(i, columns) for i in range(len(edges))]


def _line_styles(ops: Sequence[str]) -> list[Any]:
    """As matplotlib has them."""
    return [(0, pattern) if pattern else "-" for pattern in dash_patterns(ops)]


def _panel_weights(
    axes: Axes,
    title: str,
    ops: Sequence[str],
    epochs: Sequence[int],
    scores: Sequence[Sequence[float]],
    styles: Mapping[str, Any],
    labeled: tuple[bool, bool],
) -> None:
    axes.set_axis_on()
    tidy(axes)
    axes.tick_params(labelsize=7, labelbottom=labeled[0], labelleft=labeled[1])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=3, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3))
    leader = max(range(len(ops)), key=lambda column: scores[-1][column])
    for column, op in enumerate(ops):
        bold = column == leader
        axes.plot(
            epochs,
            [row[column] for row in scores],
            color=kind(op).color,
            linestyle=styles[op],
            linewidth=2.0 if bold else 1.0,
            alpha=1.0 if bold else 0.75,
            marker="o" if len(epochs) == 1 else "",
            markersize=3,
            zorder=3 if bold else 2,
        )
    axes.set_title(f"{title}   {op_label(ops[leader])}", fontsize=7.5, color=INK, pad=2)


def _legend(figure: Figure, styles: Mapping[str, Any], columns: int) -> None:
    handles = [
        Line2D([], [], color=kind(op).color, linestyle=style, linewidth=1.8, label=op_label(op))
        for op, style in styles.items()
    ]
    rows = math.ceil(len(handles) / (columns + 1))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=math.ceil(len(handles) / rows),
        frameon=False,
        fontsize=7.5,
        labelcolor=INK,
        handlelength=2.4,
        columnspacing=1.2,
    )


# A front of several objectives: the first against each of the others.

_FRONT, _KNEE = "#0072b2", "#d55e00"
_SIZE = 3.2  # inches


def draw_front(
    looked_at: Mapping[str, Sequence[float]], front: Mapping[str, Sequence[float]], knee: int
) -> Figure:
    """A panel for each objective but the first, whose values stand from below.

    Args:
        looked_at: objectives of all candidates, by name.
        front: those of the front.
        knee: which of the front's is marked.
    """
    first, *others = front
    figure = Figure(figsize=(1.2 * _SIZE * len(others), _SIZE), layout="constrained")
    panels = figure.subplots(1, len(others), squeeze=False)[0]
    for axes, name in zip(panels, others, strict=True):
        _draw_panel(axes, looked_at, front, (name, first), knee)
    legend_above(panels[0], 3)
    return figure


def _draw_panel(
    axes: Axes,
    looked_at: Mapping[str, Sequence[float]],
    front: Mapping[str, Sequence[float]],
    names: tuple[str, str],
    knee: int,
) -> None:
    x, y = names
    tidy(axes)
    axes.scatter(looked_at[x], looked_at[y], s=8, color=GRAY, linewidths=0, label="looked at")
    axes.plot(front[x], front[y], "o", color=_FRONT, markersize=4, label="front")
    axes.plot(front[x][knee], front[y][knee], "D", color=_KNEE, markersize=7, label="knee")
    label_axes(axes, x.replace("_", " "), y.replace("_", " "))


# Pictures of a comparison: every seed as a dot, and mean ranks with what is not told apart.

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
            axes.plot(seeds, [row] * len(seeds), "o", color=STYLE_COLORS[0], alpha=0.55, markersize=4, mew=0)
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
        axes.plot([ranks[arm], ranks[arm], edge], [0, row, row], color=GRAY, linewidth=0.9)
        axes.text(
            edge, row, f" {arm} {ranks[arm]:.2f} ", ha="right" if left else "left", va="center", fontsize=8
        )
    for number, clique in enumerate(cliques):
        ends = [ranks[clique[0]] - 0.04, ranks[clique[-1]] + 0.04]
        axes.plot(ends, [-0.35 * (number + 1)] * 2, color=STYLE_COLORS[1], linewidth=3, solid_capstyle="butt")
    return figure


def _draw_axis(axes: Axes, end: int) -> None:
    axes.plot([1, end], [0, 0], color=INK, linewidth=1)
    for tick in range(1, end + 1):
        axes.plot([tick, tick], [0, 0.12], color=INK, linewidth=1)
        axes.plot([tick, tick], [0, -0.05], color=FAINT, linewidth=0.6)
        axes.text(tick, 0.2, str(tick), ha="center", fontsize=8, color=INK)


# Pictures of activation search: which activations win in each layer, and which skips stay.

COLORS: Mapping[str, str] = {
    "relu": "#0072b2",
    "leaky_relu": "#56b4e9",
    "sigmoid": "#009e73",
    "tanh": "#d55e00",
    "swish": "#cc79a7",
}
"""Of the activations, in every picture."""


def draw_activations(shares: Mapping[str, NDArray[np.float64]], skips: NDArray[np.float64]) -> Figure:
    """Shares of (searches, layers) by activation, and the skips' weights of (searches, layers − 1).

    Means over the searches, with their standard deviation; as figure 1 of Zhu et al. 2022 (arXiv:2209.07238).
    """
    figure = Figure(figsize=(9.0, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    width = 0.8 / len(shares)
    for number, (name, values) in enumerate(shares.items()):
        places = np.arange(1, values.shape[1] + 1) + width * (number - (len(shares) - 1) / 2)
        bars = {"width": width, "yerr": values.std(axis=0), "error_kw": {"elinewidth": 0.7, "ecolor": GRAY}}
        left.bar(places, values.mean(axis=0), color=COLORS.get(name, GRAY), label=name, **bars)
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


# The figures in a run's folder, by name: `genotype` (or `genotype_1`, …), `weights_<group>`, `curves`.


def save_genotypes(genotypes: Sequence[Genotype], folder: Path) -> list[Path]:
    """One figure a genotype that has cells; returns the SVG files."""
    numbers = [f"_{number}" for number in range(1, len(genotypes) + 1)] if len(genotypes) > 1 else [""]
    return [
        save(draw_genotype(genotype), folder / f"genotype{number}")[0]
        for genotype, number in zip(genotypes, numbers, strict=True)
        if genotype.cells
    ]


def save_weights(history: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """One figure for every group that has scores; returns the SVG files."""
    groups = history[-1]["groups"] if history else {}
    return [save(draw_weights(history, group), folder / f"weights_{group}")[0] for group in groups]


def save_curves(rows: Iterable[Mapping[str, float]], folder: Path) -> Path:
    """Losses and accuracies; returns the SVG file."""
    return save(draw_curves(rows), folder / "curves")[0]
