"""Losses, accuracies and entropies over the epochs of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from nas_lightning.errors import InputError
from nas_lightning.plots.style import INK, tidy
from nas_lightning.text import split_score

_PANELS = {"loss": r"(.+)_loss", "accuracy": r"(.+)_accuracy", "entropy": r"entropy/(.+)"}
_COLOURS = {
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
        colour = _COLOURS.get(name) or next(more)
        epochs = [epoch + 1 for epoch in values]
        axes.plot(
            epochs,
            list(values.values()),
            color=colour,
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
