"""Pictures of activation search: which activations win in each layer, and which skips stay."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nas_lightning.plots.style import GREY, INK, tidy

COLOURS: Mapping[str, str] = {
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
        bars = {"width": width, "yerr": values.std(axis=0), "error_kw": {"elinewidth": 0.7, "ecolor": GREY}}
        left.bar(places, values.mean(axis=0), color=COLOURS.get(name, GREY), label=name, **bars)
    places = np.arange(1, skips.shape[1] + 1)
    right.errorbar(places, skips.mean(axis=0), yerr=skips.std(axis=0), color="#e69f00", marker="o", capsize=2)
    right.axhline(0.5, color=GREY, linewidth=0.8, linestyle="--")
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
