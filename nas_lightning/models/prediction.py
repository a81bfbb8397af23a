"""Predictions for a folder of images, and their accuracy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image, ImageOps
from torch import Tensor

from nas_lightning.data.files import MOST_PIXELS, Fit, ImageFile, decode, find_images, walk_images
from nas_lightning.errors import InputError
from nas_lightning.models.ensemble import Ensemble, is_ensemble
from nas_lightning.models.evaluation import BINS, calibration_error
from nas_lightning.models.file import describe, load
from nas_lightning.plots.style import COLORS, GRAY, INK, label_axes, tidy
from nas_lightning.runs.facts import Findings
from nas_lightning.tasks import IDENTITY, SIGMOID, SOFTMAX, link_of
from nas_lightning.utils.files import replacing
from nas_lightning.utils.progress import follow
from nas_lightning.utils.tables import Entry, Table
from nas_lightning.utils.text import printable
from nas_lightning.validation import PositiveInt, checked

# Images to predict: a folder of any depth, a tar file, or one file. Folders named like classes are labels.


class Picture(NamedTuple):
    """An image and the folder that may name its class.

    Args:
        file: the file, or the member of a tar file.
        name: the path relative to the source.
        folder: name of the containing folder; empty for the source itself.
    """

    file: ImageFile
    name: str
    folder: str


def list_pictures(source: str | Path) -> list[Picture]:
    """Return the images of a folder or a tar file in natural order, or a single image file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as root:
    ...     for name in ("cats/1.png", "unsorted/2.png", "3.png"):
    ...         Path(root, name).parent.mkdir(exist_ok=True)
    ...         Image.new("RGB", (20, 16)).save(Path(root, name))
    ...     pictures = list_pictures(root)
    >>> [(picture.name, picture.folder) for picture in pictures]
    [('3.png', ''), ('cats/1.png', 'cats'), ('unsorted/2.png', 'unsorted')]
    """
    source = Path(source)
    if source.is_dir():
        found = [
            Picture(ImageFile(path), printable(os.path.relpath(path, source)), folder)
            for path, folder in walk_images(source)
        ]
    elif source.suffix == ".tar":
        listing = find_images(source)
        folders = [listing.classes[label] for label in listing.labels.tolist()]
        found = [
            Picture(file, printable(file.member), folder)
            for file, folder in zip(listing.files, folders, strict=True)
        ]
    elif source.is_file():
        found = [Picture(ImageFile(str(source)), printable(source.name), "")]
    else:
        raise InputError("There is no such image, folder, or .tar file of images", where=source)
    if not found:
        raise InputError("There are no files of images", where=source)
    return found


def read_pixels(file: ImageFile, image: tuple[int, int, int], most_pixels: int = MOST_PIXELS) -> Tensor:
    """Decode, crop, and resize an image to (c, h, w) with values from 0 to 1."""
    channels, height, width = image
    if channels not in (1, 3):
        raise InputError("The network must take images in gray or in color", got=f"{channels} channels")
    picture = decode(file, most_pixels)
    if channels == 1:
        picture = picture.convert("L").convert("RGB")
    return Fit(height, width)(picture)[:channels].float() / 255


def true_classes(pictures: list[Picture], classes: tuple[str, ...]) -> Tensor:
    """Return the class indices of the pictures' folders, −1 if the folder is no class: (n,)."""
    places = {name: place for place, name in enumerate(classes)}
    return torch.tensor([places.get(picture.folder, -1) for picture in pictures])


# Prediction by a trained network or an ensemble.

_OF_SPEED = ("runtime", "optimize")


@dataclass(frozen=True)
class Predictions:
    """Predictions for images, one per row.

    Args:
        names: names of the n images.
        classes: names of the k outputs.
        outputs: class probabilities or values, (n, k); NaN if an image could not be read.
        truth: index of the true class, −1 if unknown, (n,).
        task: name of the task.
        errors: why an image could not be read, by row.
        disagreement: share of pairs of members that predict different classes, (n,); None for one network.

    >>> outputs = torch.tensor([[0.75, 0.25], [0.5, 0.5]])
    >>> found = Predictions(("1.png", "2.png"), ("cat", "dog"), outputs, torch.tensor([0, -1]))
    >>> found.labels, found.confidence.tolist(), found.judged
    (['cat', 'cat'], [0.75, 0.5], tensor([ True, False]))
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    outputs: Tensor
    truth: Tensor
    task: str = "multi_class"
    errors: Mapping[int, str] = field(default_factory=dict)
    disagreement: Tensor | None = None

    @property
    def of_one_class(self) -> bool:
        """Whether the outputs are probabilities of exclusive classes."""
        return link_of(self.task) is SOFTMAX

    @property
    def sound(self) -> Tensor:
        """Which images were read, (n,)."""
        return self.outputs.isfinite().all(dim=1)

    @property
    def judged(self) -> Tensor:
        """Which images were read and have a known class, (n,)."""
        return self.sound & (self.truth >= 0) & self.of_one_class

    @property
    def predicted(self) -> Tensor:
        """Index of the most probable class, −1 if the image could not be read, (n,)."""
        return self.outputs.argmax(dim=1).where(self.sound, -1)

    @property
    def confidence(self) -> Tensor:
        """The largest output, (n,)."""
        return self.outputs.amax(dim=1)

    @property
    def labels(self) -> list[str]:
        """The most probable class of each image, or all labels with a probability of 1/2 or more."""
        if self.of_one_class:
            return [self.classes[place] if place >= 0 else "" for place in self.predicted.tolist()]
        likely = (self.outputs >= 0.5) & (link_of(self.task) is SIGMOID)
        names = [[n for n, true in zip(self.classes, row, strict=True) if true] for row in likely.tolist()]
        return [", ".join(found) for found in names]


class Predictor:
    """Predicts images from files with a trained network or an ensemble.

    Args:
        run: the folder of a training or of an ensemble, or a model file.
        device: the device of the network.
        **loading: arguments of `nas_lightning.load`, such as `runtime="onnx"`.

    >>> from tempfile import TemporaryDirectory
    >>> from nas_lightning import save
    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"channels": 4, "cells": 1}
    >>> genotype = space.sample(torch.Generator().manual_seed(0))
    >>> network = space.network(genotype, in_channels=3, num_classes=2, **sizes)
    >>> with TemporaryDirectory() as run:
    ...     file = f"{run}/model.safetensors"
    ...     _ = save(network, file, space, genotype, sizes, image=(3, 8, 8), classes=("cat", "dog"))
    ...     predictor = Predictor(run)
    >>> predictor(torch.rand(5, 3, 8, 8)).sum(dim=1).round(decimals=4)
    tensor([1., 1., 1., 1., 1.])
    """

    def __init__(self, run: str | Path, device: str = "cpu", **loading: Any) -> None:
        folder, own = Path(run), {name: value for name, value in loading.items() if name not in _OF_SPEED}
        if is_ensemble(folder):
            self.ensemble = Ensemble.load(folder, with_normalization=True, **loading)
            self.about = self.ensemble.descriptions[0]
        else:
            self.about = describe(folder, **own)
            self.ensemble = Ensemble([load(folder, with_normalization=True, **loading)], [self.about])
        self.device = _device(device)
        if self.device.type != "cpu" and (loading.get("optimize") or loading.get("runtime") == "onnx"):
            raise InputError("`optimize` and ONNX Runtime need device=cpu", got=device)
        self.ensemble.eval().to(self.device)

    @checked
    def predict(self, pictures: Sequence[Picture], batch: PositiveInt = 64) -> Predictions:
        """Predict all pictures; unreadable ones become rows with their error."""
        if self.about.dense:
            raise InputError("The network must predict images, not their pixels", got=self.about.task)
        classes = self.about.classes
        outputs = torch.full((len(pictures), len(classes)), torch.nan)
        disagreement = torch.full((len(pictures),), torch.nan)
        errors: dict[int, str] = {}
        for rows, pixels in self.batches(pictures, batch, errors):
            members = self._members(pixels)
            outputs[rows] = members.mean(dim=0)
            disagreement[rows] = _disagreement(members)
        truth = true_classes(list(pictures), classes)
        names = tuple(picture.name for picture in pictures)
        found = Predictions(names, classes, outputs, truth, self.about.task, errors)
        several = len(self.ensemble) > 1 and found.of_one_class
        return replace(found, disagreement=disagreement) if several else found

    def __call__(self, pixels: Tensor) -> Tensor:
        """Predict images with values from 0 to 1: (b, c, h, w) → (b, classes), or (b, classes, h, w)."""
        return self._members(pixels).mean(dim=0)

    def batches(
        self, pictures: Sequence[Picture], batch: int, errors: dict[int, str]
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Yield rows and pixels of readable pictures; write the errors of the others to `errors`."""
        rows: list[int] = []
        pixels: list[Tensor] = []
        for row, picture in enumerate(follow(pictures, "images")):
            try:
                pixels.append(read_pixels(picture.file, self.about.image))
                rows.append(row)
            except InputError as error:
                errors[row] = str(error)
            if len(rows) == batch:
                yield rows, torch.stack(pixels)
                rows, pixels = [], []
        if rows:
            yield rows, torch.stack(pixels)

    @torch.no_grad()
    def _members(self, pixels: Tensor) -> Tensor:
        """Return the members' predictions, (members, b, classes)."""
        return self.ensemble.member_probabilities(pixels.to(self.device)).cpu()


def _disagreement(members: Tensor) -> Tensor:
    """Return the share of pairs of members that predict different classes: (members, b, classes) → (b,).

    With n members, n_c of which predict class c: 1 − Σ_c n_c (n_c − 1) / (n (n − 1)).

    >>> _disagreement(torch.eye(3)[torch.tensor([[0, 1], [0, 1], [2, 1]])])
    tensor([0.6667, 0.0000])
    """
    count = len(members)
    votes = torch.nn.functional.one_hot(members.argmax(dim=-1), members.shape[-1]).sum(dim=0)
    return 1 - (votes * (votes - 1)).sum(dim=-1) / max(1, count * (count - 1))


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()  # fails on the meta device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"The device must be one of this machine: {reason}", got=name, where="device"
        ) from None
    return device


# Scores by class. With N_ab the number of images of class a predicted as class b (the confusion matrix):
#
#     precision_c = N_cc / Σ_a N_ac,   recall_c = N_cc / Σ_b N_cb,   F1_c = 2 N_cc / (Σ_a N_ac + Σ_b N_cb)

MOST_PAIRS = 10
_MEASURES = ("precision", "recall", "F1")


class ClassScores(NamedTuple):
    """Precision, recall, F1, and number of images of each class, (k,) each; 0 for a class without images.

    Args:
        precision: share of images of the class among those predicted as it.
        recall: share of images predicted as the class among those of it.
        f1: the harmonic mean of both.
        support: number of images of the class.

    >>> ClassScores.of(torch.tensor([[3, 1], [0, 4]])).recall
    tensor([0.7500, 1.0000])
    """

    precision: Tensor
    recall: Tensor
    f1: Tensor
    support: Tensor

    @classmethod
    def of(cls, confusion: Tensor) -> ClassScores:
        """Compute the scores from a confusion matrix (true, predicted), (k, k)."""
        right, support, taken = confusion.diagonal(), confusion.sum(dim=1), confusion.sum(dim=0)
        return cls(
            right / taken.clamp(min=1), right / support.clamp(min=1),
            2 * right / (taken + support).clamp(min=1), support,
        )  # fmt: skip


def confusion_matrix(predictions: Predictions) -> Tensor:
    """Return the number of images by (true, predicted) class, (k, k)."""
    judged, size = predictions.judged, len(predictions.classes)
    places = predictions.truth[judged] * size + predictions.predicted[judged]
    return torch.bincount(places, minlength=size**2).view(size, size)


def calibration_of(predictions: Predictions) -> float:
    """Return the expected calibration error over images of known class."""
    judged = predictions.judged
    return float(calibration_error(predictions.outputs[judged][None], predictions.truth[judged]))


def reliability(predictions: Predictions) -> list[tuple[float, float, int]]:
    """Return (mean confidence, accuracy, images) of each non-empty bin of confidence."""
    judged = predictions.judged
    confidence = predictions.confidence[judged]
    right = (predictions.predicted == predictions.truth)[judged].double()
    bins = (confidence * BINS).ceil().clamp(1, BINS)
    inside = [bins == number for number in range(1, BINS + 1)]
    return [(float(confidence[b].mean()), float(right[b].mean()), int(b.sum())) for b in inside if b.any()]


def mistakes(predictions: Predictions, most: int) -> list[int]:
    """Return the rows of wrong predictions, the most confident first."""
    wrong = predictions.judged & (predictions.predicted != predictions.truth)
    confidence = predictions.confidence.where(wrong, -torch.inf)
    return confidence.sort(descending=True, stable=True).indices[: min(most, int(wrong.sum()))].tolist()


def confused_pairs(confusion: Tensor, most: int = MOST_PAIRS) -> list[tuple[int, int]]:
    """Return (true, predicted) of the most frequent confusions."""
    wrong = confusion - confusion.diagonal().diag()
    order = wrong.flatten().sort(descending=True, stable=True).indices[:most].tolist()
    pairs = [divmod(place, len(confusion)) for place in order]
    return [(true, predicted) for true, predicted in pairs if wrong[true, predicted]]


def class_tables(predictions: Predictions) -> list[Table]:
    """Return tables of class scores, of the most confused pairs, and the confusion matrix."""
    confusion, classes = confusion_matrix(predictions), predictions.classes
    scores, images = ClassScores.of(confusion), int(confusion.sum())
    rows: list[list[Entry]] = [
        [name, *values[:-1], int(values[-1])]
        for name, *values in zip(classes, *(column.tolist() for column in scores), strict=True)
    ]
    present = scores.support > 0
    rows.append(["mean of the classes", *(float(column[present].mean()) for column in scores[:3]), images])
    pairs: list[list[Entry]] = [
        [classes[a], classes[b], int(confusion[a, b]), float(confusion[a, b] / confusion[a].sum())]
        for a, b in confused_pairs(confusion)
    ]
    return [
        Table("classes", f"{images:,} images by their class", ["class", *_MEASURES, "images"], rows),
        Table("confused", "Most frequent confusions", ["class", "predicted as", "images", "share"], pairs),
        Table(
            "confusion", "Images by true class (row) and predicted class (column)", ["class", *classes],
            [[name, *row] for name, row in zip(classes, confusion.tolist(), strict=True)], long=True,
        ),
    ]  # fmt: skip


# Masks of a segmentation network. With I_c the number of pixels of class c in both the predicted and the true
# mask, and U_c in at least one of them, over all images with a true mask:
#
#     IoU_c = I_c / U_c

MASKS = "masks"
_MODES = ("1", "L", "P", "I", "I;16")  # images whose values are labels


@dataclass(frozen=True)
class Masks:
    """Predicted masks of images.

    Args:
        names: names of the images.
        classes: names of the k labels.
        masks: label of each pixel, (h, w), by row of readable images.
        counts: pixels of each class in both masks and in at least one, (2, k), by row.
        errors: why an image or its true mask could not be read, by row.

    >>> mask = torch.tensor([[0, 1], [1, 1]])
    >>> found = Masks(("a.png",), ("sky", "sea"), {0: mask}, {0: overlap(mask, mask.fill_diagonal_(1), 2)})
    >>> found.iou.tolist()
    [nan, 1.0]
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    masks: Mapping[int, Tensor]
    counts: Mapping[int, Tensor]
    errors: Mapping[int, str] = field(default_factory=dict)

    @property
    def iou(self) -> Tensor:
        """IoU of each class over all images, (k,); NaN for a class without pixels."""
        both, either = self.pixels
        return both / either

    @property
    def pixels(self) -> Tensor:
        """Pixels of each class in both masks and in at least one, over all images, (2, k)."""
        none = torch.zeros(2, len(self.classes), dtype=torch.int64)
        return torch.stack([none, *self.counts.values()]).sum(dim=0)

    def iou_of(self, row: int) -> float | None:
        """Return the mean IoU over the classes in either mask, None without a true mask."""
        return float((self.counts[row][0] / self.counts[row][1]).nanmean()) if row in self.counts else None


def overlap(predicted: Tensor, truth: Tensor, classes: int) -> Tensor:
    """Count the pixels of each class in both masks and in at least one, without unlabeled ones: (2, k).

    >>> overlap(torch.tensor([[0, 1, 1]]), torch.tensor([[0, 0, 255]]), 2)
    tensor([[1, 0],
            [2, 1]])
    """
    counted = (truth >= 0) & (truth < classes)
    label = torch.arange(classes)[:, None]
    a, b = predicted[counted][None] == label, truth[counted][None] == label
    return torch.stack([(a & b).sum(dim=1), (a | b).sum(dim=1)])


def predict_masks(
    predictor: Predictor, pictures: Sequence[Picture], truth: Path | None, batch: int = 64
) -> Masks:
    """Predict the masks of all pictures, in the network's image size.

    Args:
        predictor: predictor of a segmentation network.
        pictures: the images.
        truth: a folder with true masks of the same names without endings. Default: no comparison.
        batch: batch size.
    """
    classes = predictor.about.classes
    errors: dict[int, str] = {}
    masks: dict[int, Tensor] = {}
    counts: dict[int, Tensor] = {}
    known = {} if truth is None else _by_stem(truth)
    for rows, pixels in predictor.batches(pictures, batch, errors):
        for row, mask in zip(rows, predictor(pixels).argmax(dim=1), strict=True):
            masks[row] = mask
            file = known.get(os.path.splitext(pictures[row].name)[0])
            if file is None:
                continue
            try:
                counts[row] = overlap(mask, read_mask(file, *mask.shape), len(classes))
            except InputError as error:
                errors[row] = str(error)
    return Masks(tuple(picture.name for picture in pictures), classes, masks, counts, errors)


def read_mask(file: Path, height: int, width: int) -> Tensor:
    """Read a mask whose values are labels, cropped and resized like its image: (h, w)."""
    try:
        with Image.open(file) as image:
            if image.mode not in _MODES:
                expected = "A mask must have one channel, whose values are labels"
                raise InputError(expected, got=f"an image of mode {image.mode}", where=file)
            picture = Image.fromarray(np.array(image).astype(np.int32))  # of a palette, the indices
            fitted = ImageOps.fit(picture, (width, height), method=Image.Resampling.NEAREST)
    except InputError:
        raise
    except Exception as error:  # decoders raise all kinds of errors
        raise InputError(f"Cannot read the mask: {error}", where=file) from None
    return torch.from_numpy(np.array(fitted).astype(np.int64))


def colored(mask: Tensor) -> Image.Image:
    """Return an image whose values are the labels, with a palette of colors."""
    from nas_lightning.plots.style import SERIES

    picture = Image.fromarray(mask.to(torch.uint8).numpy())
    colors = [*bytes.fromhex("".join(color.light[1:] for color in SERIES))]
    picture.putpalette((colors * 256)[: 3 * 256])
    return picture


def write_mask(path: Path, mask: Tensor) -> None:
    """Write the mask as a PNG."""
    with replacing(path) as partial:
        colored(mask).save(partial, format="PNG")


def findings_of_masks(found: Masks) -> Findings:
    """Return the IoU by class, empty without true masks."""
    if not found.counts:
        return Findings([])
    rows: list[list[Entry]] = [
        [name, None if value != value else value, int(both), int(either)]
        for name, value, both, either in zip(
            found.classes, found.iou.tolist(), *found.pixels.tolist(), strict=True
        )
    ]
    mean = float(found.iou.nanmean())
    rows.append(["mean of the classes", mean, None, None])
    columns = ["class", "IoU", "pixels in both", "in at least one"]
    title = f"{len(found.counts):,} masks against true ones"
    return Findings([Table("classes", title, columns, rows)], {}, {"iou": mean})


def table_of_masks(found: Masks) -> Table:
    """Return a row per image: the mask's file, IoU, shares of the classes, or the error."""
    rows: list[list[Entry]] = []
    for row, name in enumerate(found.names):
        mask = found.masks.get(row)
        shares: list[float | None] = [None] * len(found.classes)
        if mask is not None:
            counts = torch.bincount(mask.flatten(), minlength=len(found.classes))
            shares = (counts / mask.numel()).tolist()
        file = "" if mask is None else mask_name(row, name)
        rows.append([name, file, found.iou_of(row), *shares, found.errors.get(row, "")])
    return Table(
        "predictions", "", ["file", "mask", "IoU", *(f"share({c})" for c in found.classes), "error"], rows
    )


def mask_name(row: int, name: str) -> str:
    """Return the path of an image's mask relative to the folder of predictions.

    >>> mask_name(3, "../a/b.jpg")
    'masks/00003_.._a_b.jpg.png'
    """
    return f"{MASKS}/{row:05}_{re.sub(r'[^a-zA-Z0-9._-]', '_', name)[-80:]}.png"


def _by_stem(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by relative path without ending."""
    if not folder.is_dir():
        raise InputError("There is no folder of true masks", where=folder)
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder).with_suffix("")): path for path in files}


# Figures: the confusion matrix and the reliability diagram.

_MOST_NUMBERS = 12  # classes up to which squares show their numbers


def draw_confusion(confusion: Tensor, classes: Sequence[str]) -> Figure:
    """Draw the share of each class (row) predicted as each class (column)."""
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
                color = "white" if shares[row, column] > 0.5 else "#22262c"  # on blue, on any page
                axes.text(column, row, f"{count:,}", ha="center", va="center", fontsize=7, color=color)


def draw_reliability(bins: Sequence[tuple[float, float, int]], error: float) -> Figure:
    """Draw accuracy against confidence by bin; a calibrated network is on the diagonal."""
    figure = Figure(figsize=(4.2, 3.6), layout="constrained")
    axes = figure.subplots()
    tidy(axes)
    axes.plot([0, 1], [0, 1], color=GRAY, linewidth=1.2, linestyle=(0, (4, 3)))
    confidence, accuracy, counts = zip(*bins, strict=True)
    most = max(counts)
    sizes = [12 + 120 * count / most for count in counts]
    axes.plot(confidence, accuracy, color=COLORS[0], linewidth=1.2)
    axes.scatter(confidence, accuracy, s=sizes, color=COLORS[0])
    axes.set_xlim(0, 1.02)
    axes.set_ylim(-0.02, 1.02)
    label_axes(axes, f"confidence (calibration error {error:.3f}; larger points, more images)", "accuracy")
    return figure


# Files of predictions: a row per image, tables, and figures.

PREDICTIONS, CSV, PAGE = "predictions", "predictions.csv", "predictions.html"
TEST = f"{PREDICTIONS}/test"  # of a training's test images, in its folder


def findings_of(predictions: Predictions) -> Findings:
    """Return scores, figures, and calibration, empty if no true class is known."""
    judged = predictions.judged
    if not judged.any():
        return Findings([])
    error, confusion = calibration_of(predictions), confusion_matrix(predictions)
    right = (predictions.predicted == predictions.truth)[judged].double()
    drawn = {
        "confusion_matrix": draw_confusion(confusion, predictions.classes),
        "reliability": draw_reliability(reliability(predictions), error),
    }
    numbers = {"accuracy": float(right.mean()), "calibration_error": error}
    return Findings(class_tables(predictions), drawn, numbers)


def table_of(predictions: Predictions) -> Table:
    """Return a row per image: prediction, confidence, all outputs, or the error.

    Outputs that are values, as in regression, have no prediction and confidence.
    """
    of_classes, several = predictions.of_one_class, predictions.disagreement is not None
    named = link_of(predictions.task) is not IDENTITY
    columns = ["file", *["class", "predicted"] * named]
    columns += ["confidence"] * of_classes + ["disagreement"] * several
    labels = predictions.labels
    rows: list[list[Entry]] = []
    for row, name in enumerate(predictions.names):
        place, outputs = int(predictions.truth[row]), predictions.outputs[row].tolist()
        numbers = [max(outputs)] if of_classes else []
        numbers += [] if predictions.disagreement is None else [float(predictions.disagreement[row])]
        error = predictions.errors.get(row, "")
        known: list[float | None] = [None if error else number for number in (*numbers, *outputs)]
        names = [predictions.classes[place] if place >= 0 else "", labels[row]] if named else []
        rows.append([name, *names, *known, error])
    kind = "p" if named else "y"
    outputs_of = [f"{kind}({name})" for name in predictions.classes]  # a class may be called error
    return Table("predictions", "", [*columns, *outputs_of, "error"], rows)
