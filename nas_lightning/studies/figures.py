"""Figures of studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from nas_lightning.plots.style import COLORS, FAINT, GRAY, INK, tidy
from nas_lightning.studies.scoring import Values, spearman
from nas_lightning.utils.tables import Estimate

# Pictures of correlations: scores against accuracies, matrices, and lines over settings.

_COLUMNS = 4
Setting = TypeVar("Setting", str, int)


def scatter(scores: Mapping[str, Values], accuracy: Values, label: str) -> Figure:
    """Draw a panel for each metric: the percentile of its score against the accuracy."""
    from scipy.stats import rankdata

    figure, panels = _panels(list(scores), 2.1)
    size = min(max(3.0, 32 / len(accuracy) ** 0.5), 7.0)  # large dots for few architectures
    for (name, values), axes in zip(scores.items(), panels, strict=True):
        place = 100 * (rankdata(values) - 0.5) / len(values)
        axes.plot(place, accuracy, ".", color=COLORS[0], markersize=size, alpha=0.5, markeredgewidth=0)
        _title(axes, f"{name}  ρ {spearman(values, accuracy):.2f}")
    figure.supxlabel("place among the architectures (%; 100 is the largest score)", fontsize=8, color=INK)
    figure.supylabel(label, fontsize=8, color=INK)
    return figure


def against(scores: Mapping[str, tuple[Values, Values]], x_label: str, y_label: str) -> Figure:
    """Draw a panel for each name: the same score in two settings, on logarithmic axes."""
    figure, panels = _panels(list(scores), 2.3)
    for (name, (x, y)), axes in zip(scores.items(), panels, strict=True):
        sound = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
        axes.plot(x[sound], y[sound], ".", color=COLORS[0], markersize=4, alpha=0.6, markeredgewidth=0)
        if sound.any():
            axes.loglog()
            ends = [min(x[sound].min(), y[sound].min()), max(x[sound].max(), y[sound].max())]
            axes.plot(ends, ends, color=GRAY, linewidth=0.8)
            _thin_ticks(axes)
        _title(axes, name)
    figure.supxlabel(x_label, fontsize=8, color=INK)
    figure.supylabel(y_label, fontsize=8, color=INK)
    return figure


def matrix(names: Sequence[str], values: Sequence[Sequence[float]], title: str) -> Figure:
    """Draw a correlation for every pair of names, as colors and numbers."""
    size = 1.6 + 0.42 * len(names)
    figure = Figure(figsize=(size, size), layout="constrained")
    axes = figure.subplots()
    axes.imshow(np.array(values, dtype=float), cmap="RdBu", vmin=-1, vmax=1)
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            text = "–" if np.isnan(value) else f"{value:.2f}".replace("0.", ".").replace("-", "−")
            color = "white" if abs(value) > 0.7 else INK
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=color)
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(colors=INK, labelsize=8, length=0)
    for spine in axes.spines.values():
        spine.set_color(FAINT)
    _title(axes, title)
    return figure


def lines(
    panels: Mapping[str, Mapping[str, Mapping[Setting, Estimate | None]]], label: str, x_label: str = ""
) -> Figure:
    """Draw a panel for each title and a line for each name: {title: {name: {setting: estimate}}}.

    Numeric settings are positions on the axis; others are at even distances.
    """
    figure, axes_of = _panels(list(panels), 2.8)
    for (title, series), axes in zip(panels.items(), axes_of, strict=True):
        for number, (name, points) in enumerate(series.items()):
            known = {setting: e for setting, e in points.items() if e is not None}
            axes.errorbar(
                list(known),
                [e.value for e in known.values()],
                yerr=[e.error for e in known.values()],
                color=COLORS[number % len(COLORS)],
                marker="o",
                markersize=3,
                linewidth=1.4,
                elinewidth=0.8,
                capsize=2,
                label=name,
            )
            if all(isinstance(setting, int) for setting in points):
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _title(axes, title)
    handles = {
        text: handle
        for axes in axes_of
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    _legend(figure, handles, columns=4)
    figure.supxlabel(x_label, fontsize=8, color=INK)
    figure.supylabel(label, fontsize=8, color=INK)
    return figure


def _panels(names: Sequence[str], size: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with an axes for each name, four in a row."""
    columns = min(_COLUMNS, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(1.15 * size * columns, size * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels[len(names) :]:
        axes.remove()
    for axes in panels[: len(names)]:
        tidy(axes)
    return figure, panels[: len(names)]


def _legend(figure: Figure, handles: Mapping[str, Any], columns: int) -> None:
    """Add one legend for all panels, outside of them."""
    figure.legend(
        handles.values(),
        handles,
        loc="outside upper right",
        ncols=columns,
        frameon=False,
        fontsize=7,
        labelcolor=INK,
    )


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=9, fontweight="bold", color=INK)


def overlay(panels: Mapping[str, Mapping[str, Values]], label: str, x_label: str) -> Figure:
    """Draw a panel for each title; its first line is black, the others go from light to dark."""
    figure, axes_of = _panels(list(panels), 2.6)
    for (title, series), axes in zip(panels.items(), axes_of, strict=True):
        for (name, values), color in zip(series.items(), _shades(len(series)), strict=True):
            axes.plot(range(1, len(values) + 1), values, color=color, linewidth=1.3, label=name)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _title(axes, title)
    handles, names = axes_of[0].get_legend_handles_labels()
    _legend(figure, dict(zip(names, handles, strict=True)), columns=min(3, len(panels)))
    figure.supxlabel(x_label, fontsize=8, color=INK)
    figure.supylabel(label, fontsize=8, color=INK)
    return figure


def draw_bars(panels: Mapping[str, Mapping[str, float]], label: str) -> Figure:
    """Draw a panel for each title, with a bar for each name in the colors of `overlay`; NaN is left out."""
    figure, axes_of = _panels(list(panels), 2.6)
    for (title, values), axes in zip(panels.items(), axes_of, strict=True):
        places = np.arange(len(values))[::-1]
        axes.barh(places, np.nan_to_num(list(values.values())), color=_shades(len(values)))
        axes.set_yticks(places, list(values) if axes is axes_of[0] else [""] * len(values), fontsize=7)
        _title(axes, title)
    figure.supxlabel(label, fontsize=8, color=INK)
    return figure


def _thin_ticks(axes: Axes) -> None:
    """Put ticks at 1, 2, and 5 times powers of ten if an axis spans few of them."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        if high / low > 100:
            continue
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=6))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())


def _shades(count: int) -> list[Any]:
    """Return black, then `count - 1` colors of a perceptually ordered map."""
    from matplotlib import colormaps

    return [INK, *colormaps["viridis_r"](np.linspace(0.15, 0.9, max(count - 1, 0)))]


# Pictures of a number over two others: as colors, and as a surface.

_MAP = "viridis"  # perceptually ordered


def heat_map(
    values: Values, rows: Sequence[str], columns: Sequence[str], *, row: str, column: str, label: str
) -> Figure:
    """Draw (rows, columns) as colors and numbers; values that are not finite stay white."""
    size = 1.8 + 0.62 * len(columns), 1.2 + 0.42 * len(rows)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(np.ma.masked_invalid(values), cmap=_MAP, aspect="auto")
    known = values[np.isfinite(values)]
    middle = known.min() + 0.55 * np.ptp(known) if len(known) else 0.0
    for place, value in np.ndenumerate(values):
        if np.isfinite(value):
            color = "white" if value < middle else "black"
            axes.text(place[1], place[0], f"{value:.4g}", ha="center", va="center", fontsize=7, color=color)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    _label(axes, column, row)
    _add_bar(figure, image, label)
    return figure


def draw_contours(grids: Mapping[str, Values], ticks: Values, label: str) -> Figure:
    """Draw a panel for each name: log₁₀ of values over (α, β), with the same colors and levels in all."""
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
    """Draw the same as surfaces."""
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
    """Return the range of finite values; the highest tenth shares one color, so that details stay visible."""
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
