"""Evaluation of ensembles: error, calibration, and disagreement."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F
from torchmetrics.functional.classification import multiclass_calibration_error

from nas_lightning.data.augment import normalize
from nas_lightning.data.base import ImageData
from nas_lightning.data.external import ExternalData
from nas_lightning.data.loaders import EvalLoader, Samples
from nas_lightning.data.order import evaluation_rows
from nas_lightning.errors import InputError
from nas_lightning.models.ensemble import Ensemble, McDropPath, drop_paths
from nas_lightning.objectives.inherited import averaged_loss
from nas_lightning.plots.style import COLORS, GRAY, label_axes, legend_above, tidy
from nas_lightning.tasks import Task
from nas_lightning.utils.progress import follow
from nas_lightning.utils.tables import Entry, Table

# Error, calibration, and diversity of an ensemble.
#
# Every function takes the members' class probabilities, (members, images, classes), and the labels,
# (images,); the ensemble predicts their mean (Shu 2022, thesis, sections 5.2 and 5.4.4).
#
# >>> probabilities = torch.tensor([[[0.9, 0.1], [0.6, 0.4]], [[0.4, 0.6], [0.1, 0.9]]])
# >>> labels = torch.tensor([0, 1])
# >>> member_errors(probabilities, labels), ensemble_error(probabilities, labels)
# (tensor([0.5000, 0.5000]), tensor(0.))
# >>> disagreement(probabilities), oracle_error(probabilities, labels)
# (tensor(1.), tensor(0.))

Batch = tuple[Tensor, Tensor]
BINS = 15  # of the calibration error, as in Guo et al. 2017


def member_errors(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return each member's error, (members,); their mean is the ATE."""
    return (probabilities.argmax(dim=-1) != labels).to(torch.get_default_dtype()).mean(dim=1)


def ensemble_error(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the error of the averaged prediction, ()."""
    return member_errors(probabilities.mean(dim=0, keepdim=True), labels)[0]


def oracle_error(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the share of images that every member gets wrong, ()."""
    wrong = probabilities.argmax(dim=-1) != labels
    return wrong.all(dim=0).to(torch.get_default_dtype()).mean()


def disagreement(probabilities: Tensor) -> Tensor:
    """Return the PPD, the share of images on which two members disagree, averaged over pairs: ().

    Fort et al. 2019 (arXiv:1912.02757), not divided by the error; 0 for a single member.
    """
    predicted = probabilities.argmax(dim=-1)  # (members, images)
    pairs = [(a != b).to(torch.get_default_dtype()).mean() for a, b in combinations(predicted, 2)]
    return torch.stack(pairs).mean() if pairs else torch.zeros(())


def brier_score(probabilities: Tensor, labels: Tensor) -> Tensor:
    """1/m Σ_x Σ_c (p_c(x) − [c = y])² of the averaged prediction (Brier 1950), from 0 to 2: ()."""
    mean = probabilities.mean(dim=0)
    return (mean - F.one_hot(labels, mean.shape[1])).square().sum(dim=1).mean()


def calibration_error(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The expected calibration error of the averaged prediction (Guo et al. 2017, arXiv:1706.04599): ().

    Σ_b |B_b|/m |accuracy(B_b) − confidence(B_b)| over 15 bins of equal width.
    """
    mean = probabilities.mean(dim=0)
    return multiclass_calibration_error(mean, labels, mean.shape[1], n_bins=BINS, norm="l1")


@dataclass(frozen=True)
class Quality:
    """Error and calibration of a prediction.

    Args:
        error: share of wrong predictions.
        nll: mean of −ln p of the true class.
        brier: mean of Σ_k (p_k − y_k)².
        calibration_error: mean distance of confidence and accuracy.

    >>> Quality.of(torch.tensor([[[0.75, 0.25], [0.5, 0.5]]]), torch.tensor([0, 0])).brier
    0.3125
    """

    error: float
    nll: float
    brier: float
    calibration_error: float

    @classmethod
    def of(cls, probabilities: Tensor, labels: Tensor) -> Quality:
        """Return those of the averaged prediction."""
        measures = (ensemble_error, averaged_loss, brier_score, calibration_error)
        return cls(*(float(measure(probabilities, labels)) for measure in measures))


@dataclass(frozen=True)
class Evaluation:
    """Predictions of an ensemble on some images, and their quality.

    Args:
        probabilities: (members, images, classes).
        labels: (images,).
    """

    probabilities: Tensor
    labels: Tensor

    @property
    def members(self) -> list[Quality]:
        """The quality of each member."""
        return [Quality.of(alone[None], self.labels) for alone in self.probabilities]

    @property
    def ensemble(self) -> Quality:
        """The quality of the ensemble."""
        return Quality.of(self.probabilities, self.labels)

    def numbers(self) -> Mapping[str, float]:
        """Return the ensemble's quality and the comparison of its members, by name."""
        errors = member_errors(self.probabilities, self.labels)
        return {
            **vars(self.ensemble),
            "ate": float(errors.mean()),
            "best_member_error": float(errors.min()),
            "ppd": float(disagreement(self.probabilities)),
            "oracle_error": float(oracle_error(self.probabilities, self.labels)),
        }


def every_test_batch(data: ImageData | ExternalData) -> list[Batch]:
    """Return all test images, normalized, in every process."""
    if isinstance(data, ExternalData):
        return data.every_batch("test")
    return _batches(data, data.test, data.mean, data.std)


def every_held_out_batch(data: ImageData | ExternalData) -> list[Batch]:
    """Return all held-out training images, normalized, in every process."""
    check_held_out(data)
    if isinstance(data, ExternalData):
        return data.every_batch("valid")
    loader = data.val_dataloader()
    assert isinstance(loader, EvalLoader)
    return _batches(data, loader.samples, data.mean, data.std)


def check_held_out(data: ImageData | ExternalData) -> None:
    """Raise unless training images are held out."""
    if isinstance(data, ExternalData):
        data.every_batch("valid")
    elif not data.val_fraction:
        raise InputError(
            "Selecting members needs held-out images, such as dataset.val_fraction=0.1",
            got=data.val_fraction,
            where="dataset.val_fraction",
        )


def pixel_batches(data: ImageData, images: int | None = None) -> list[Batch]:
    """Return the first test images (default: all) with values from 0 to 1."""
    first = data.test if images is None else data.test.select(torch.arange(min(images, len(data.test))))
    channels = data.image[0]
    return _batches(data, first, (0.0,) * channels, (1.0,) * channels)


def _batches(
    data: ImageData, samples: Samples, mean: tuple[float, ...], std: tuple[float, ...]
) -> list[Batch]:
    draws = evaluation_rows(len(samples), data.eval_batch_size, 0, 1)
    return [(normalize(x, mean, std), y) for x, y in samples.read(draws, random=False)]


def check_images(ensemble: Ensemble, data: ImageData | ExternalData) -> None:
    """Raise unless the images are of the kind that the members were trained on."""
    description = ensemble.descriptions[0]
    for what in ("image", "classes", "mean", "std"):
        if getattr(description, what) != tuple(getattr(data, what)):
            raise InputError(
                f"The members were trained on images with {what} {getattr(description, what)}",
                got=getattr(data, what),
                where="dataset",
            )


@torch.no_grad()
def evaluate(ensemble: Ensemble, batches: Iterable[Batch]) -> Evaluation:
    """Predict all images of (x, y) batches, normalized as the members expect, in eval mode."""
    parameter = next(ensemble.parameters())
    was_training = ensemble.training
    ensemble.eval()
    found = [
        (ensemble.member_probabilities(x.to(parameter)).cpu().double(), y.cpu())
        for x, y in follow(batches, "batches")
    ]
    ensemble.train(was_training)
    if not found:
        raise InputError("There must be at least one batch")
    probabilities, labels = zip(*found, strict=True)
    return Evaluation(torch.cat(probabilities, dim=1), torch.cat(labels))


# Ensembles of other tasks than classification: the task's metrics.


@dataclass(frozen=True)
class Scores:
    """The loss and the task's metrics, by name.

    Args:
        members: those of each member.
        together: those of the averaged prediction.
    """

    members: tuple[Mapping[str, float], ...]
    together: Mapping[str, float]

    def table(self, images: str) -> Table:
        """Return a row for each member and one for the ensemble."""
        rows: list[list[Entry]] = [
            [f"member {number}", *alone.values()] for number, alone in enumerate(self.members, 1)
        ]
        title = f"{len(rows)} members, alone and together, on the test images of {images}"
        return Table("ensemble", title, ["", *self.together], [*rows, ["ensemble", *self.together.values()]])


@torch.no_grad()
def evaluate_task(ensemble: Ensemble, batches: Iterable[Batch], task: Task) -> Scores:
    """Evaluate the ensemble on all images of (x, y) batches, in eval mode."""
    parameter = next(ensemble.parameters())
    was_training = ensemble.training
    ensemble.eval()
    sums: list[_Sum] = []
    for x, y in batches:
        outputs = ensemble.member_logits(x.to(parameter)).cpu()  # (members, b, outputs, …)
        sums = sums or [_Sum(task, outputs.shape[2]) for _ in range(len(outputs) + 1)]
        for sum_, z in zip(sums, [*outputs, ensemble.link.combine(outputs)], strict=True):
            sum_.add(z, y.cpu())
    ensemble.train(was_training)
    if not sums:
        raise InputError("There must be at least one batch")
    *members, together = [sum_.values() for sum_ in sums]
    return Scores(tuple(members), together)


class _Sum:
    """Accumulates loss and metrics over batches."""

    def __init__(self, task: Task, outputs: int) -> None:
        self.task, self.loss, self.images = task, 0.0, 0
        self.metrics = task.metrics(outputs)

    def add(self, z: Tensor, y: Tensor) -> None:
        self.loss += float(self.task.evaluation_loss(z, y)) * len(y)
        self.images += len(y)
        for metric in self.metrics.values():
            metric.update(self.task.predictions(z), y)

    def values(self) -> dict[str, float]:
        values = {name: float(metric.compute()) for name, metric in self.metrics.items()}
        return {"loss": self.loss / self.images, **values}


# Figures (Shu 2022, thesis, figure 5.4).

RATE, PASSES = 0.2, 10  # of the stochastic predictions in the map; the thesis has ten of each


def errors(evaluation: Evaluation) -> Figure:
    """Draw the members' errors, their mean, and the ensemble's error."""
    alone = member_errors(evaluation.probabilities, evaluation.labels)
    figure, axes = _axes()
    axes.bar(range(1, len(alone) + 1), (100 * alone).tolist(), color=COLORS[0], width=0.6)
    for value, label, color in (
        (float(alone.mean()), "mean of the members", GRAY),
        (evaluation.ensemble.error, "ensemble", COLORS[1]),
    ):
        axes.axhline(100 * value, color=color, linewidth=1.4, label=f"{label} {100 * value:.2f} %")
    axes.set_xticks(range(1, len(alone) + 1))
    _label(axes, "member", "test error (%)")
    return figure


def agreement(evaluation: Evaluation) -> Figure:
    """Draw how many members are right about an image, and whether the ensemble is."""
    right = evaluation.probabilities.argmax(dim=-1) == evaluation.labels
    together = evaluation.probabilities.mean(dim=0).argmax(dim=-1) == evaluation.labels
    counts, members = right.sum(dim=0), len(right)
    figure, axes = _axes()
    for label, chosen, color, aside in (  # side by side, since the axis is logarithmic
        ("right", together, COLORS[0], -0.2),
        ("wrong", ~together, COLORS[1], 0.2),
    ):
        images = torch.bincount(counts[chosen], minlength=members + 1)
        places = [number + aside for number in range(members + 1)]
        axes.bar(places, images.tolist(), color=color, width=0.4, label=f"the ensemble is {label}")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_xticks(range(members + 1))
    _label(axes, "members that are right", "test images")
    return figure


def prediction_map(ensemble: Ensemble, batches: Iterable[Batch], images: int = 500) -> Figure | None:
    """Draw a t-SNE of predictions: each member plain, and ten times with drop path.

    Returns None if no member has drop path or the predictions do not differ.
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
        color = COLORS[number % len(COLORS)]
        axes.plot(x[1:], y[1:], "o", color=color, markersize=4, alpha=0.6, label=f"member {number + 1}")
        axes.plot(x[:1], y[:1], "*", color=color, markersize=12, markeredgecolor="white")
        start += len(group)
    _label(axes, "t-SNE of predictions: ★ plain, ● with drop path", "")
    axes.set_xticks([])
    axes.set_yticks([])
    return figure


def _predictions(ensemble: Ensemble, number: int, batches: list[Batch]) -> Tensor:
    """Return (1 + passes, images · classes), the plain ones first; one row without drop path."""
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
