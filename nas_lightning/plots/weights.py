"""How the architecture weights moved during a search: one small panel an edge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from nas_lightning.errors import InputError
from nas_lightning.plots.style import INK, dash_patterns, kind, node_name, op_label, tidy

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
        _panel(axes, title, ops, epochs, scores, styles, labelled=(below not in places, place[1] == 0))
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


def _panel(
    axes: Axes,
    title: str,
    ops: Sequence[str],
    epochs: Sequence[int],
    scores: Sequence[Sequence[float]],
    styles: Mapping[str, Any],
    labelled: tuple[bool, bool],
) -> None:
    axes.set_axis_on()
    tidy(axes)
    axes.tick_params(labelsize=7, labelbottom=labelled[0], labelleft=labelled[1])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=3, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3))
    leader = max(range(len(ops)), key=lambda column: scores[-1][column])
    for column, op in enumerate(ops):
        bold = column == leader
        axes.plot(
            epochs,
            [row[column] for row in scores],
            color=kind(op).colour,
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
        Line2D([], [], color=kind(op).colour, linestyle=style, linewidth=1.8, label=op_label(op))
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
