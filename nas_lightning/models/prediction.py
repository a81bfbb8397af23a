"""Predictions of a folder of images, and how right they are."""

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
from nas_lightning.models.ensemble import FILE_NAME as ENSEMBLE
from nas_lightning.models.ensemble import Ensemble
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

# Images to predict: a folder of any depth, a tar file, or one file; a folder may be named like a class.
#
# >>> from tempfile import TemporaryDirectory
# >>> from PIL import Image
# >>> with TemporaryDirectory() as root:
# ...     for name in ("cats/1.png", "unsorted/2.png", "3.png"):
# ...         Path(root, name).parent.mkdir(exist_ok=True)
# ...         Image.new("RGB", (20, 16)).save(Path(root, name))
# ...     pictures = list_pictures(root)
# >>> [(picture.name, picture.folder) for picture in pictures]
# [('3.png', ''), ('cats/1.png', 'cats'), ('unsorted/2.png', 'unsorted')]


class Picture(NamedTuple):
    """An image and what its place says.

    Args:
        file: where its bytes are.
        name: its path below the folder.
        folder: the name of the folder that it is in; empty for the topmost.
    """

    file: ImageFile
    name: str
    folder: str


def list_pictures(source: str | Path) -> list[Picture]:
    """All images of a folder or a tar file in natural order, or the one that a file is."""
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
        raise InputError(
            "expected an image, or a folder or a .tar file of images", got="nothing", where=source
        )
    if not found:
        raise InputError("expected files of images", got="none", where=source)
    return found


def read_pixels(file: ImageFile, image: tuple[int, int, int], most_pixels: int = MOST_PIXELS) -> Tensor:
    """The picture as a network of such images takes it, values from 0 to 1: (c, h, w); or an `InputError`."""
    channels, height, width = image
    if channels not in (1, 3):
        raise InputError("expected a network for images in gray or in color", got=f"{channels} channels")
    picture = decode(file, most_pixels)
    if channels == 1:
        picture = picture.convert("L").convert("RGB")
    return Fit(height, width)(picture)[:channels].float() / 255


def true_classes(pictures: list[Picture], classes: tuple[str, ...]) -> Tensor:
    """The places of their folders' names in the classes, −1 where no class has it: (n,)."""
    places = {name: place for place, name in enumerate(classes)}
    return torch.tensor([places.get(picture.folder, -1) for picture in pictures])


# A trained network, or an ensemble of them, that takes images as they lie in files.

_OF_SPEED = ("runtime", "optimize")


@dataclass(frozen=True)
class Predictions:
    """What was predicted for images, one a row.

    Args:
        names: of the images: n of them.
        classes: names of the outputs: k of them.
        outputs: probabilities of the classes, or values; NaN where an image could not be read: (n, k).
        truth: the place of its class; −1 where that is not known: (n,).
        task: what the outputs are for.
        errors: why an image could not be read, by its row.
        disagreement: for an ensemble, the share of pairs of members that say different classes: (n,).

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
        """Whether an image has one class, of which the outputs are the probabilities."""
        return link_of(self.task) is SOFTMAX

    @property
    def sound(self) -> Tensor:
        """Which images were read: (n,)."""
        return self.outputs.isfinite().all(dim=1)

    @property
    def judged(self) -> Tensor:
        """Which images were read and have a class that is known: (n,)."""
        return self.sound & (self.truth >= 0) & self.of_one_class

    @property
    def predicted(self) -> Tensor:
        """The place of the most probable class; −1 where an image could not be read: (n,)."""
        return self.outputs.argmax(dim=1).where(self.sound, -1)

    @property
    def confidence(self) -> Tensor:
        """The largest output: (n,)."""
        return self.outputs.amax(dim=1)

    @property
    def labels(self) -> list[str]:
        """The most probable class of each image, or all labels that are as probable as not; empty without."""
        if self.of_one_class:
            return [self.classes[place] if place >= 0 else "" for place in self.predicted.tolist()]
        likely = (self.outputs >= 0.5) & (link_of(self.task) is SIGMOID)
        names = [[n for n, true in zip(self.classes, row, strict=True) if true] for row in likely.tolist()]
        return [", ".join(found) for found in names]


class Predictor:
    """The network of a training's folder, or the members of an ensemble's, ready for images from files.

    Args:
        run: the folder of a training or of an ensemble, or a model's file.
        device: where the network computes.
        **loading: see `nas_lightning.load`, such as `runtime="onnx"`.

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
        if any((folder / place / ENSEMBLE).is_file() for place in (".", "ensemble")):
            self.ensemble = Ensemble.load(folder, with_normalization=True, **loading)
            self.about = self.ensemble.descriptions[0]
        else:
            self.about = describe(folder, **own)
            self.ensemble = Ensemble([load(folder, with_normalization=True, **loading)], [self.about])
        self.device = _device(device)
        if self.device.type != "cpu" and (loading.get("optimize") or loading.get("runtime") == "onnx"):
            raise InputError("expected device=cpu, which optimize and ONNX Runtime are for", got=device)
        self.ensemble.eval().to(self.device)

    @checked
    def predict(self, pictures: Sequence[Picture], batch: PositiveInt = 64) -> Predictions:
        """The outputs for all pictures; one that cannot be read is a row that says why."""
        if self.about.dense:
            raise InputError("expected a network that predicts images, not their pixels", got=self.about.task)
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
        """What the network or its members together say of values from 0 to 1: (b, c, h, w) → (b, classes).

        Of a network of segmentation it is (b, classes, h, w).
        """
        return self._members(pixels).mean(dim=0)

    def batches(
        self, pictures: Sequence[Picture], batch: int, errors: dict[int, str]
    ) -> Iterator[tuple[list[int], Tensor]]:
        """The rows of pictures that can be read and their pixels; `errors` gets the others."""
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
        """What each member says: (members, b, classes)."""
        return self.ensemble.member_probabilities(pixels.to(self.device)).cpu()


def _disagreement(members: Tensor) -> Tensor:
    """The share of pairs of members that predict different classes: (members, b, classes) → (b,).

    Of n members of which n_c predict class c it is 1 − Σ_c n_c (n_c − 1) / (n (n − 1)).

    >>> _disagreement(torch.eye(3)[torch.tensor([[0, 1], [0, 1], [2, 1]])])
    tensor([0.6667, 0.0000])
    """
    count = len(members)
    votes = torch.nn.functional.one_hot(members.argmax(dim=-1), members.shape[-1]).sum(dim=0)
    return 1 - (votes * (votes - 1)).sum(dim=-1) / max(1, count * (count - 1))


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()  # which that of no memory, meta, cannot
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"expected a device of this machine: {reason}", got=name, where="device") from None
    return device


# How right predictions are, class by class.
#
# With N_ab the number of images of class a that were taken for class b (the confusion matrix):
#
#     precision_c = N_cc / Σ_a N_ac,   recall_c = N_cc / Σ_b N_cb,   F1_c = 2 N_cc / (Σ_a N_ac + Σ_b N_cb)

MOST_PAIRS = 10
_MEASURES = ("precision", "recall", "F1")


class ClassScores(NamedTuple):
    """Precision, recall, F1 and the number of images of each class: (k,) each; 0 where there is no image.

    Args:
        precision: the share of images that are of the class, of those taken for it.
        recall: the share of images that were taken for the class, of those of it.
        f1: the harmonic mean of both.
        support: the images of the class.

    >>> ClassScores.of(torch.tensor([[3, 1], [0, 4]])).recall
    tensor([0.7500, 1.0000])
    """

    precision: Tensor
    recall: Tensor
    f1: Tensor
    support: Tensor

    @classmethod
    def of(cls, confusion: Tensor) -> ClassScores:
        """Of a confusion matrix, (true, predicted): (k, k)."""
        right, support, taken = confusion.diagonal(), confusion.sum(dim=1), confusion.sum(dim=0)
        return cls(
            right / taken.clamp(min=1), right / support.clamp(min=1),
            2 * right / (taken + support).clamp(min=1), support,
        )  # fmt: skip


def confusion_matrix(predictions: Predictions) -> Tensor:
    """How many images of each class were taken for each: (true, predicted), (k, k)."""
    judged, size = predictions.judged, len(predictions.classes)
    places = predictions.truth[judged] * size + predictions.predicted[judged]
    return torch.bincount(places, minlength=size**2).view(size, size)


def calibration_of(predictions: Predictions) -> float:
    """The expected calibration error over the images whose class is known."""
    judged = predictions.judged
    return float(calibration_error(predictions.outputs[judged][None], predictions.truth[judged]))


def reliability(predictions: Predictions) -> list[tuple[float, float, int]]:
    """(mean confidence, accuracy, images) of each bin of confidence that has images."""
    judged = predictions.judged
    confidence = predictions.confidence[judged]
    right = (predictions.predicted == predictions.truth)[judged].double()
    bins = (confidence * BINS).ceil().clamp(1, BINS)
    inside = [bins == number for number in range(1, BINS + 1)]
    return [(float(confidence[b].mean()), float(right[b].mean()), int(b.sum())) for b in inside if b.any()]


def mistakes(predictions: Predictions, most: int) -> list[int]:
    """The rows of wrong predictions, the most confident first."""
    wrong = predictions.judged & (predictions.predicted != predictions.truth)
    confidence = predictions.confidence.where(wrong, -torch.inf)
    return confidence.sort(descending=True, stable=True).indices[: min(most, int(wrong.sum()))].tolist()


def confused_pairs(confusion: Tensor, most: int = MOST_PAIRS) -> list[tuple[int, int]]:
    """(true, predicted) of the most frequent confusions, the most frequent first."""
    wrong = confusion - confusion.diagonal().diag()
    order = wrong.flatten().sort(descending=True, stable=True).indices[:most].tolist()
    pairs = [divmod(place, len(confusion)) for place in order]
    return [(true, predicted) for true, predicted in pairs if wrong[true, predicted]]


def class_tables(predictions: Predictions) -> list[Table]:
    """Per class, the confusion matrix, and the pairs that are confused most."""
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
        Table("confused", "What is confused most", ["class", "taken for", "images", "of the class"], pairs),
        Table(
            "confusion", "Images of a class (row) that were taken for another (column)", ["class", *classes],
            [[name, *row] for name, row in zip(classes, confusion.tolist(), strict=True)], long=True,
        ),
    ]  # fmt: skip


# Masks that a network of segmentation predicts, and how far they agree with true ones.
#
# With I_c the number of pixels that are of class c in both masks and U_c of those that are in one of them,
# over all images that have a true mask:
#
#     IoU_c = I_c / U_c

FOLDER = "masks"
_MODES = ("1", "L", "P", "I", "I;16")  # of images whose values are labels


@dataclass(frozen=True)
class Masks:
    """What was predicted for the pixels of images, one an entry.

    Args:
        names: of the images: n of them.
        classes: names of the labels: k of them.
        masks: the label of each pixel, (h, w), by the image's row; none where it could not be read.
        counts: the pixels of each class in both masks, and in one of them, by the image's row: (2, k).
        errors: why an image or its true mask could not be read, by its row.

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
        """Of each class over all images; NaN where none has a pixel of it: (k,)."""
        both, either = self.pixels
        return both / either

    @property
    def pixels(self) -> Tensor:
        """Of each class in both masks and in one of them, over all images: (2, k)."""
        none = torch.zeros(2, len(self.classes), dtype=torch.int64)
        return torch.stack([none, *self.counts.values()]).sum(dim=0)

    def iou_of(self, row: int) -> float | None:
        """The mean over the classes that an image or its prediction has; None without a true mask."""
        return float((self.counts[row][0] / self.counts[row][1]).nanmean()) if row in self.counts else None


def overlap(predicted: Tensor, truth: Tensor, classes: int) -> Tensor:
    """The pixels of each class in both masks and in one of them; those of no class count nowhere: (2, k).

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
    """The masks of all pictures, of the size that the network takes.

    Args:
        predictor: of a network of segmentation.
        pictures: to predict.
        truth: a folder with true masks under the same names, whatever their endings; None: nothing is judged.
        batch: images at a time.
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
    """A mask whose values are labels, cut and resized as its image is: (h, w)."""
    try:
        with Image.open(file) as image:
            if image.mode not in _MODES:
                expected = "expected a mask of one channel, whose values are labels"
                raise InputError(expected, got=f"an image of mode {image.mode}", where=file)
            picture = Image.fromarray(np.array(image).astype(np.int32))  # in a palette, the places in it
            fitted = ImageOps.fit(picture, (width, height), method=Image.Resampling.NEAREST)
    except InputError:
        raise
    except Exception as error:  # decoders raise whatever the broken bytes lead them to
        raise InputError(f"expected a mask that can be read: {error}", where=file) from None
    return torch.from_numpy(np.array(fitted).astype(np.int64))


def colored(mask: Tensor) -> Image.Image:
    """A picture whose values are the labels, each in a color of its own as far as there are such."""
    from nas_lightning.plots.style import SERIES  # and with it matplotlib

    picture = Image.fromarray(mask.to(torch.uint8).numpy())
    colors = [*bytes.fromhex("".join(color.light[1:] for color in SERIES))]
    picture.putpalette((colors * 256)[: 3 * 256])
    return picture


def write_mask(path: Path, mask: Tensor) -> None:
    """The picture as a PNG."""
    with replacing(path) as partial:
        colored(mask).save(partial, format="PNG")


def findings_of_masks(found: Masks) -> Findings:
    """IoU class by class; nothing where no true mask is known."""
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
    columns = ["class", "IoU", "pixels in both", "in one of them"]
    title = f"{len(found.counts):,} masks against true ones"
    return Findings([Table("classes", title, columns, rows)], {}, {"iou": mean})


def table_of_masks(found: Masks) -> Table:
    """A row an image: its mask's file, its IoU, the share of each class, or why it could not be read."""
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
    """Where an image's mask goes, from the folder of the predictions on, whatever its name leads to.

    >>> mask_name(3, "../a/b.jpg")
    'masks/00003_.._a_b.jpg.png'
    """
    return f"{FOLDER}/{row:05}_{re.sub(r'[^a-zA-Z0-9._-]', '_', name)[-80:]}.png"


def _by_stem(folder: Path) -> dict[str, Path]:
    """The files of a folder by their paths below it, without their endings."""
    if not folder.is_dir():
        raise InputError("expected a folder of true masks", got="none", where=folder)
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder).with_suffix("")): path for path in files}


# Pictures of how right predictions are: the confusion matrix, and the reliability diagram.

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
                color = "white" if shares[row, column] > 0.5 else "#22262c"  # on blue, on any page
                axes.text(column, row, f"{count:,}", ha="center", va="center", fontsize=7, color=color)


def draw_reliability(bins: Sequence[tuple[float, float, int]], error: float) -> Figure:
    """Accuracy against confidence, bin by bin; a calibrated network is on the diagonal."""
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


# What is written of predictions: a row an image, and tables and figures of how right they are.

FOLDER_FINDINGS, CSV, PAGE = "predictions", "predictions.csv", "predictions.html"
TEST = f"{FOLDER_FINDINGS}/test"  # what a training says of its test images, below its folder


def findings_of(predictions: Predictions) -> Findings:
    """How right the predictions are; nothing where no class is known."""
    judged = predictions.judged
    if not judged.any():
        return Findings([])
    pass  # MOVED

    error, confusion = calibration_of(predictions), confusion_matrix(predictions)
    right = (predictions.predicted == predictions.truth)[judged].double()
    drawn = {
        "confusion_matrix": draw_confusion(confusion, predictions.classes),
        "reliability": draw_reliability(reliability(predictions), error),
    }
    numbers = {"accuracy": float(right.mean()), "calibration_error": error}
    return Findings(class_tables(predictions), drawn, numbers)


def table_of(predictions: Predictions) -> Table:
    """A row an image: what it was taken for, how surely, every output, or why it could not be read.

    Numbers, as those of a regression, are taken for nothing.
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
