"""The base of all data sets: images, classes, and loaders that resume."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any

import pytorch_lightning as pl
import torch

from nas_lightning.data.augment import Augment, Magnitude
from nas_lightning.data.batches import Batch
from nas_lightning.data.loaders import EpochLoader, EvalLoader, PairedBatches, Samples, TrainBatches
from nas_lightning.data.order import HOLD_OUT, SEARCH_SPLIT, SUBSET, stratified_split
from nas_lightning.errors import InputError
from nas_lightning.utils.randomness import generator, seed_of
from nas_lightning.validation import NonNegativeInt, PositiveInt, Seed, Share, at_least, checked

# The contents of a data set


@dataclass(frozen=True)
class Contents:
    """The contents of a data set, as its `load` returns them.

    Args:
        train: the training images.
        test: the test images.
        classes: the names of the classes, in the order of their labels.
        mean: of each channel, for pixels from 0 to 1.
        std: of each channel, for pixels from 0 to 1.
    """

    train: Samples
    test: Samples
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def check_contents(contents: Contents, name: str) -> None:
    """Raise unless there are images of two or more classes, with labels in range."""
    classes = len(contents.classes)
    if classes < 2:
        raise InputError("There must be images of at least 2 classes", got=classes, where=name)
    for part, samples in (("training", contents.train), ("test", contents.test)):
        if not len(samples):
            raise InputError(f"There are no {part} images", where=name)
        low, high = int(samples.labels.min()), int(samples.labels.max())
        if low < 0 or high >= classes:
            raise InputError(
                f"The {part} labels must be from 0 to {classes - 1} for {classes} classes",
                got=f"labels from {low} to {high}",
                where=name,
            )


# Data sets

Classes = Annotated[int, at_least(2)]
"""A number of classes."""


class ImageData(pl.LightningDataModule, ABC):
    """A data set of images of one size, with a training and a test part, and loaders that resume.

    Nothing is read before it is needed: `prepare` reads the training images, `setup` also the test images. A
    new data set is a subclass with a name and `load`, and a yaml.

    Args:
        augment: the augmentation of training images.
        batch_size: images per step and process.
        eval_batch_size: images per evaluation step; None: twice the batch size.
        val_fraction: fraction of the training images that is held out for model selection; test images are
            for the final number only.
        seed: determines the order, the augmentation, and the held-out part.
        subset: number of images of each part to keep, the first of a seeded shuffle; None: all.

    >>> from nas_lightning.data.loaders import TensorSamples
    >>> class Points(ImageData):
    ...     name = "points"
    ...
    ...     def load(self):
    ...         images = torch.eye(4, dtype=torch.uint8).view(4, 1, 2, 2) * 255
    ...         points = TensorSamples(images, torch.arange(4))
    ...         return Contents(points, points, ("a", "b", "c", "d"), (0.25,), (0.43,))
    >>> data = Points(augment=Augment(), batch_size=2)
    >>> data.image, data.num_classes, len(data.train_dataloader())
    ((1, 2, 2), 4, 2)
    """

    name: str
    task = None
    """The task; None: classification."""

    @checked
    def __init__(
        self,
        *,
        augment: Augment,
        batch_size: PositiveInt = 64,
        eval_batch_size: PositiveInt | None = None,
        val_fraction: Share = 0.0,
        seed: Seed = 0,
        subset: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.eval_batch_size = 2 * batch_size if eval_batch_size is None else eval_batch_size
        self.augment, self.val_fraction, self.seed, self.subset = augment, val_fraction, seed, subset
        self._contents: Contents | None = None
        self._train: Samples | None = None
        self._val: Samples | None = None
        self._test: Samples | None = None

    @abstractmethod
    def load(self) -> Contents:
        """Find the images; called once. Raise `InputError` if files are missing or wrong."""

    def fetch(self) -> None:
        """Download the files, if the user asked for it."""

    def prepare(self) -> None:
        """Find the data and read the training images, once."""
        if self._train is not None:
            return
        contents = self.contents
        train, held_out = self._take_subset(contents.train), None
        if self.val_fraction:
            random = generator(HOLD_OUT, self.seed)
            rows, others = stratified_split(train.labels, 1 - self.val_fraction, random)
            train, held_out = train.select(rows), train.select(others)
        if self.batch_size > len(train):
            raise InputError(
                f"`batch_size` must be at most {len(train)}", got=self.batch_size, where=self.name
            )
        self._val = None if held_out is None else held_out.in_memory()
        self._train = train.in_memory()

    @property
    def contents(self) -> Contents:
        """The checked contents."""
        if self._contents is None:
            self.fetch()
            contents = self.load()
            check_contents(contents, self.name)
            self._contents = contents
        return self._contents

    def _take_subset(self, samples: Samples) -> Samples:
        if self.subset is None:
            return samples
        return samples.select(
            torch.randperm(len(samples), generator=generator(SUBSET, self.seed))[: self.subset]
        )

    # Properties

    @property
    def image(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return self.contents.train.image

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their labels."""
        return self.contents.classes

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def mean(self) -> tuple[float, ...]:
        """Of each channel, for pixels from 0 to 1."""
        return self.contents.mean

    @property
    def std(self) -> tuple[float, ...]:
        """Of each channel, for pixels from 0 to 1."""
        return self.contents.std

    @property
    def train(self) -> Samples:
        """The training images without the held-out part."""
        self.prepare()
        assert self._train is not None
        return self._train

    @property
    def test(self) -> Samples:
        if self._test is None:
            self._test = self._take_subset(self.contents.test).in_memory()
        return self._test

    # Lightning's hooks

    def prepare_data(self) -> None:
        self.fetch()

    def setup(self, stage: str | None = None) -> None:
        """Read all images, to find broken ones before training."""
        self.prepare()
        _ = self.test

    def train_dataloader(self) -> EpochLoader[Batch]:
        return EpochLoader(self.batches(self.train))

    def val_dataloader(self) -> EvalLoader | list[EvalLoader]:
        """Return a loader of the held-out part; an empty list if there is none."""
        self.prepare()
        if self._val is not None:
            return self.evaluation(self._val)
        # Lightning skips validation for an empty list, which is intended, and warns
        warnings.filterwarnings("ignore", "Total length of `list` across ranks is zero")
        return []

    def test_dataloader(self) -> EvalLoader:
        return self.evaluation(self.test)

    # Batches

    def batches(
        self,
        samples: Samples,
        *,
        seed: int | None = None,
        augment: bool = True,
        batch_size: int | None = None,
    ) -> TrainBatches:
        """Return shuffled batches of samples of this set."""
        return TrainBatches(
            samples,
            batch_size=self.batch_size if batch_size is None else batch_size,
            seed=self.seed if seed is None else seed,
            augment=self.augment if augment else None,
            mean=self.mean,
            std=self.std,
        )

    def evaluation(self, samples: Samples) -> EvalLoader:
        """Return a loader of every sample once, without padding; processes have disjoint shares."""
        return EvalLoader(samples, self.eval_batch_size, self.mean, self.std)

    def train_batches(self, count: int, seed: int = 0, batch_size: int | None = None) -> list[Batch]:
        """Return `count` fixed batches of training images, not augmented, the same on every process."""
        return self.batches(self.train, batch_size=batch_size).plain(count, seed)

    def search_sides(
        self, train_fraction: float, augment_valid: bool, batch_size: int | None
    ) -> tuple[TrainBatches, TrainBatches]:
        """Return batches for the weights and for the architecture; see `SearchData`."""
        everything = torch.arange(len(self.train))
        train, valid = everything, everything
        if train_fraction < 1:
            random = generator(SEARCH_SPLIT, self.seed)
            train, valid = stratified_split(self.train.labels, train_fraction, random)
        sides = [
            self.batches(
                self.train.select(rows),
                seed=seed_of(self.seed, number),
                augment=augment,
                batch_size=batch_size,
            )
            for number, (rows, augment) in enumerate([(train, True), (valid, augment_valid)])
        ]
        for side in sides:
            len(side)  # raises if there is no full batch
        return sides[0], sides[1]

    def pair(self, train: TrainBatches, valid: TrainBatches) -> PairedBatches:
        """Return pairs of batches of both sides of a search."""
        return PairedBatches(train, valid)


class SmallImages(ImageData):
    """Base of the data sets of small images, with their usual augmentation.

    Args:
        augment: crop and mirror training images.
        crop_padding: pixels added around an image before it is cropped to its size.
        rand_augment: magnitude of RandAugment's two operations for training images, e.g. 9; 0: none.
        cutout: side of the square that is erased in training images, independent of `augment`.
        **image_data: see `ImageData`.
    """

    mirrors: bool = True
    """Whether the mirror image of an image belongs to the same class."""

    @checked
    def __init__(
        self,
        *,
        augment: bool = True,
        crop_padding: NonNegativeInt = 4,
        rand_augment: Magnitude = 0,
        cutout: NonNegativeInt = 0,
        **image_data: Any,
    ) -> None:
        whole = Augment(crop_padding, self.mirrors, cutout, rand_augment)
        super().__init__(augment=whole if augment else Augment(cutout=cutout), **image_data)
