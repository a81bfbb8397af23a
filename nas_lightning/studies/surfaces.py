"""Pictures of a number over two others: as colours, and as a surface."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nas_lightning.plots.style import INK
from nas_lightning.studies.statistics import Values

_MAP = "viridis"  # which every eye can order


def heat_map(
    values: Values, rows: Sequence[str], columns: Sequence[str], *, row: str, column: str, label: str
) -> Figure:
    """(rows, columns) as colours and numbers; what is not finite stays white."""
    size = 1.8 + 0.62 * len(columns), 1.2 + 0.42 * len(rows)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(np.ma.masked_invalid(values), cmap=_MAP, aspect="auto")
    known = values[np.isfinite(values)]
    middle = known.min() + 0.55 * np.ptp(known) if len(known) else 0.0
    for place, value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "white" if value < middle else "black"
            axes.text(place[1], place[0], f"{value:.4g}", ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    _label(axes, column, row)
    bar = figure.colorbar(image, ax=axes)
    bar.set_label(label, fontsize=8, color=INK)
    bar.ax.tick_params(labelsize=7, colors=INK)
    return figure


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=8, color=INK)
    axes.set_ylabel(y, fontsize=8, color=INK)
    axes.tick_params(colors=INK, labelsize=8, length=0)
