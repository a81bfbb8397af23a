"""Pictures of how right predictions are: the confusion matrix, and the reliability diagram."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from nas_lightning.plots.style import COLOURS, GREY, INK, label_axes, tidy

_MOST_NUMBERS = 12  # classes up to which a square has its number written in it


def draw_confusion(confusion: Tensor, classes: Sequence[str]) -> Figure:
    """The share of each class (row) that was taken for each (column), with the numbers of images."""
    shares = confusion / confusion.sum(dim=1, keepdim=True).clamp(min=1)
    side = min(8.0, 2.2 + 0.32 * len(classes))
    figure = Figure(figsize=(side, side), layout="constrained")
    axes = figure.subplots()
    axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1)
    if len(classes) <= _MOST_NUMBERS:
        _write_numbers(axes, confusion, shares)
    ticks = range(len(classes))
    names = [name if len(name) <= 16 else f"{name[:15]}…" for name in classes]
    size = 8 if len(classes) <= 20 else 5
    axes.set_xticks(
        ticks, names, rotation=60, ha="right", rotation_mode="anchor", fontsize=size, parse_math=False
    )
    axes.set_yticks(ticks, names, fontsize=size, parse_math=False)
    axes.tick_params(colors=INK, length=0)
    axes.spines[:].set_visible(False)
    label_axes(axes, "predicted", "class")
    return figure


def _write_numbers(axes: Axes, confusion: Tensor, shares: Tensor) -> None:
    for row, counts in enumerate(confusion.tolist()):
        for column, count in enumerate(counts):
            if count:
                colour = "white" if shares[row, column] > 0.5 else "#22262c"  # on blue, on any page
                axes.text(column, row, f"{count:,}", ha="center", va="center", fontsize=7, color=colour)


def draw_reliability(bins: Sequence[tuple[float, float, int]], error: float) -> Figure:
    """Accuracy against confidence, bin by bin; a calibrated network is on the diagonal."""
    figure = Figure(figsize=(4.2, 3.6), layout="constrained")
    axes = figure.subplots()
    tidy(axes)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1.2, linestyle=(0, (4, 3)))
    confidence, accuracy, counts = zip(*bins, strict=True)
    most = max(counts)
    sizes = [12 + 120 * count / most for count in counts]
    axes.plot(confidence, accuracy, color=COLOURS[0], linewidth=1.2)
    axes.scatter(confidence, accuracy, s=sizes, color=COLOURS[0])
    axes.set_xlim(0, 1.02)
    axes.set_ylim(-0.02, 1.02)
    label_axes(axes, f"confidence (calibration error {error:.3f}; larger points, more images)", "accuracy")
    return figure
