"""A front of several objectives: the first against each of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nas_lightning.plots.style import GREY, label_axes, legend_above, tidy

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
    axes.scatter(looked_at[x], looked_at[y], s=8, color=GREY, linewidths=0, label="looked at")
    axes.plot(front[x], front[y], "o", color=_FRONT, markersize=4, label="front")
    axes.plot(front[x][knee], front[y][knee], "D", color=_KNEE, markersize=7, label="knee")
    label_axes(axes, x.replace("_", " "), y.replace("_", " "))
