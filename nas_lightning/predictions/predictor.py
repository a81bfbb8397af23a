"""A trained network, or an ensemble of them, that takes images as they lie in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.ensembles.ensemble import FILE_NAME as ENSEMBLE
from nas_lightning.ensembles.ensemble import Ensemble
from nas_lightning.errors import InputError
from nas_lightning.models.file import describe, load
from nas_lightning.predictions.pictures import Picture, read_pixels, true_classes
from nas_lightning.progress import follow
from nas_lightning.tasks.base import link_of
from nas_lightning.tasks.links import SIGMOID, SOFTMAX

_OF_SPEED = ("runtime", "optimise")


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
            self.ensemble = Ensemble.load(folder, with_normalisation=True, **loading)
            self.about = self.ensemble.descriptions[0]
        else:
            self.about = describe(folder, **own)
            self.ensemble = Ensemble([load(folder, with_normalisation=True, **loading)], [self.about])
        self.device = _device(device)
        if self.device.type != "cpu" and (loading.get("optimise") or loading.get("runtime") == "onnx"):
            raise InputError("expected device=cpu, which optimise and ONNX Runtime are for", got=device)
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
