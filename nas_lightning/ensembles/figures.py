"""How the members of an ensemble differ, as pictures (Shu 2022, thesis, figure 5.4)."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from nas_lightning.ensembles.ensemble import Ensemble, McDropPath, drop_paths
from nas_lightning.ensembles.evaluation import Batch, Evaluation, evaluate, member_errors
from nas_lightning.plots.style import COLOURS, GREY, label_axes, legend_above, tidy

RATE, PASSES = 0.2, 10  # of the map's stochastic predictions; thesis: each architecture ten times


def errors(evaluation: Evaluation) -> Figure:
    """The members' errors beside their mean and the ensemble's."""
    alone = member_errors(evaluation.probabilities, evaluation.labels)
    figure, axes = _axes()
    axes.bar(range(1, len(alone) + 1), (100 * alone).tolist(), color=COLOURS[0], width=0.6)
    for value, label, colour in (
        (float(alone.mean()), "mean of the members", GREY),
        (evaluation.ensemble.error, "ensemble", COLOURS[1]),
    ):
        axes.axhline(100 * value, color=colour, linewidth=1.4, label=f"{label} {100 * value:.2f} %")
    axes.set_xticks(range(1, len(alone) + 1))
    _label(axes, "member", "test error (%)")
    return figure


def agreement(evaluation: Evaluation) -> Figure:
    """How many members are right about an image, and whether the ensemble then is."""
    right = evaluation.probabilities.argmax(dim=-1) == evaluation.labels
    together = evaluation.probabilities.mean(dim=0).argmax(dim=-1) == evaluation.labels
    counts, members = right.sum(dim=0), len(right)
    figure, axes = _axes()
    for label, chosen, colour, aside in (  # side by side, for the axis is logarithmic
        ("right", together, COLOURS[0], -0.2),
        ("wrong", ~together, COLOURS[1], 0.2),
    ):
        images = torch.bincount(counts[chosen], minlength=members + 1)
        places = [number + aside for number in range(members + 1)]
        axes.bar(places, images.tolist(), color=colour, width=0.4, label=f"the ensemble is {label}")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_xticks(range(members + 1))
    _label(axes, "members that are right", "test images")
    return figure


def prediction_map(ensemble: Ensemble, batches: Iterable[Batch], images: int = 500) -> Figure | None:
    """t-SNE of what the members predict for the first images: each plain, and ten times with drop path.

    van der Maaten & Hinton 2008. None where no member has drop path, or the passes do not differ.
    """
    first = list(_up_to(batches, images))
    groups = [_predictions(ensemble, number, first) for number in range(len(ensemble.members))]
    points = torch.cat(groups)
    if len(points) < 5 or len(points.unique(dim=0)) < 5:
        return None
    from sklearn.manifold import TSNE

    perplexity = min(10.0, (len(points) - 1) / 3)
    places = TSNE(perplexity=perplexity, init="random", random_state=0).fit_transform(points.numpy())
    figure, axes = _axes()
    start = 0
    for number, group in enumerate(groups):
        x, y = places[start : start + len(group)].T
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(x[1:], y[1:], "o", color=colour, markersize=4, alpha=0.6, label=f"member {number + 1}")
        axes.plot(x[:1], y[:1], "*", color=colour, markersize=12, markeredgecolor="white")
        start += len(group)
    _label(axes, "t-SNE of predictions: ★ plain, ● with drop path", "")
    axes.set_xticks([])
    axes.set_yticks([])
    return figure


def _predictions(ensemble: Ensemble, number: int, batches: list[Batch]) -> Tensor:
    """(1 + passes, images · classes) of a member, the plain ones first; one row without drop path."""
    member = copy.deepcopy(ensemble.members[number])
    found = [evaluate(Ensemble([member]), batches).probabilities]
    if drop_paths(member):
        found.append(evaluate(McDropPath(member, rate=RATE, passes=PASSES), batches).probabilities)
    return torch.cat(found).flatten(1).float()


def _up_to(batches: Iterable[Batch], images: int) -> Iterable[Batch]:
    for x, y in batches:
        yield x[:images], y[:images]
        images -= len(x)
        if images <= 0:
            return


def _axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axes = figure.subplots()
    tidy(axes)
    return figure, axes


def _label(axes: Axes, x: str, y: str) -> None:
    label_axes(axes, x, y)
    legend_above(axes, 3)
