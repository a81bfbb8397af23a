"""Masks that a network of segmentation predicts, and how far they agree with true ones.

With I_c the number of pixels that are of class c in both masks and U_c of those that are in one of them, over
all images that have a true mask:

    IoU_c = I_c / U_c
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.files import replacing
from nas_lightning.predictions.pictures import Picture
from nas_lightning.predictions.predictor import Predictor
from nas_lightning.runs.findings import Findings
from nas_lightning.tables import Entry, Table

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


def coloured(mask: Tensor) -> Image.Image:
    """A picture whose values are the labels, each in a colour of its own as far as there are such."""
    from nas_lightning.plots.style import SERIES  # and with it matplotlib

    picture = Image.fromarray(mask.to(torch.uint8).numpy())
    colours = [*bytes.fromhex("".join(colour.light[1:] for colour in SERIES))]
    picture.putpalette((colours * 256)[: 3 * 256])
    return picture


def write_mask(path: Path, mask: Tensor) -> None:
    """The picture as a PNG."""
    with replacing(path) as partial:
        coloured(mask).save(partial, format="PNG")


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
