"""Pictures of a number over two others: as colours, and as a surface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    _add_bar(figure, image, label)
    return figure


def draw_contours(grids: Mapping[str, Values], ticks: Values, label: str) -> Figure:
    """One panel a name, (α, β) as log₁₀ of a value, colours and lines alike in all; ends are the ticks'."""
    found = {name: _logarithms(values) for name, values in grids.items()}
    low, high = _range(found)
    figure = Figure(figsize=(2.2 * len(grids) + 0.9, 2.5), layout="constrained")
    panels = figure.subplots(1, len(grids), squeeze=False, sharey=True).flat
    for (name, values), axes in zip(found.items(), panels, strict=True):
        scale: dict[str, Any] = {"vmin": low, "vmax": high}
        image = axes.pcolormesh(ticks, ticks, values.T, cmap=_MAP, shading="nearest", **scale)
        if min(values.shape) > 1 and high > low:
            levels = np.linspace(low, high, 12)
            axes.contour(ticks, ticks, values.T, levels=levels, colors="white", linewidths=0.5)
        axes.set_aspect("equal")
        axes.set_title(name, loc="left", fontsize=8, fontweight="bold", color=INK)
        _label(axes, "α", "β" if axes.get_subplotspec().is_first_col() else "")
    _add_bar(figure, image, f"log₁₀ {label}")
    return figure


def draw_surfaces(grids: Mapping[str, Values], ticks: Values, label: str) -> Figure:
    """The same as heights."""
    found = {name: _logarithms(values) for name, values in grids.items()}
    low, high = _range(found)
    figure = Figure(figsize=(2.6 * len(grids) + 0.4, 2.7), layout="constrained")
    first, second = np.meshgrid(ticks, ticks, indexing="ij")
    for number, (name, values) in enumerate(found.items(), 1):
        axes: Any = figure.add_subplot(1, len(grids), number, projection="3d")
        axes.plot_surface(
            first, second, np.minimum(values, high), cmap=_MAP, vmin=low, vmax=high, linewidth=0
        )
        axes.set_zlim(low, high if high > low else low + 1)
        axes.set_title(name, fontsize=8, fontweight="bold", color=INK)
        axes.set_xlabel("α", fontsize=8, color=INK, labelpad=-8)
        axes.set_ylabel("β", fontsize=8, color=INK, labelpad=-8)
        axes.set_xticks([ticks[0], 0, ticks[-1]])
        axes.set_yticks([ticks[0], 0, ticks[-1]])
        axes.tick_params(labelsize=6, colors=INK, pad=-3)
    figure.supylabel(f"log₁₀ {label}", fontsize=8, color=INK)
    return figure


def _logarithms(values: Values) -> Values:
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log10(values)
    return np.where(np.isfinite(found), found, np.nan)


def _range(grids: Mapping[str, Values]) -> tuple[float, float]:
    """Of all that is finite; the highest tenth has one colour, so that corners do not hide the rest."""
    known = np.concatenate([values[np.isfinite(values)] for values in grids.values()])
    return (float(known.min()), float(np.quantile(known, 0.9))) if len(known) else (0.0, 1.0)


def _add_bar(figure: Figure, image: Any, label: str) -> None:
    bar = figure.colorbar(image, ax=figure.axes)
    bar.set_label(label, fontsize=8, color=INK)
    bar.ax.tick_params(labelsize=7, colors=INK)


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=8, color=INK)
    axes.set_ylabel(y, fontsize=8, color=INK)
    axes.tick_params(colors=INK, labelsize=8, length=0)
