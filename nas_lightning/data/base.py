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

# What a data set has, once it is found: its images, its classes and the statistics of its channels.


@dataclass(frozen=True)
class Contents:
    """A data set as its `load` returns it.

    Args:
        train: the training images.
        test: the test images.
        classes: the names of the classes, in the order of their labels.
        mean: of each channel, as a fraction of the largest value.
        std: of each channel, as a fraction of the largest value.
    """

    train: Samples
    test: Samples
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def check_contents(contents: Contents, name: str) -> None:
    """Raise for what no data set has."""
    classes = len(contents.classes)
    if classes < 2:
        raise InputError("expected images of at least 2 classes", got=classes, where=name)
    for part, samples in (("training", contents.train), ("test", contents.test)):
        if not len(samples):
            raise InputError(f"expected {part} images", got="none", where=name)
        low, high = int(samples.labels.min()), int(samples.labels.max())
        if low < 0 or high >= classes:
            raise InputError(
                f"expected {part} labels from 0 to {classes - 1} for {classes} classes",
                got=f"labels from {low} to {high}",
                where=name,
            )


# What a data set is: its images, their number of classes, and loaders that resume.
#
# A new one is one file with one final subclass that says where its images come from, and one yaml.

Classes = Annotated[int, at_least(2)]
"""How many classes there are to tell apart."""


class ImageData(pl.LightningDataModule, ABC):
    """A data set of images of one size, with a training and a test part.

    Nothing is read before it is needed: `prepare` reads the training images, `setup` the test images too.

    Args:
        augment: what is done to training images.
        batch_size: images of a step of one process.
        eval_batch_size: images of a step that only evaluates; None: twice as many.
        val_fraction: part of the training images that is held out, for picking things: the test images are
            for the last number only.
        seed: what the order, the augmentation and the held-out part follow from.
        subset: images of either part that are kept, the first of a seeded shuffle, for quick runs; None: all.

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
    """What the targets mean: classes, of which nothing more is to be said."""

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
        """Find the images, raise `InputError` where they do not fit; called once."""

    def fetch(self) -> None:
        """Download the files, for sets that can, if the user asked for it."""

    def prepare(self) -> None:
        """Find the data and read the training images; the second call does nothing."""
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
                f"expected batch_size of at most {len(train)}", got=self.batch_size, where=self.name
            )
        self._val = None if held_out is None else held_out.in_memory()
        self._train = train.in_memory()

    @property
    def contents(self) -> Contents:
        """The whole data set, found and checked."""
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

    # What others ask a data set for

    @property
    def image(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return self.contents.train.image

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes' names, in the order of their labels."""
        return self.contents.classes

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def mean(self) -> tuple[float, ...]:
        """Of each channel, as a fraction of the largest value."""
        return self.contents.mean

    @property
    def std(self) -> tuple[float, ...]:
        """Of each channel, as a fraction of the largest value."""
        return self.contents.std

    @property
    def train(self) -> Samples:
        """The training images, without those held out."""
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
        """Read everything, so that a broken image is found before training and not after it."""
        self.prepare()
        _ = self.test

    def train_dataloader(self) -> EpochLoader[Batch]:
        return EpochLoader(self.batches(self.train))

    def val_dataloader(self) -> EvalLoader | list[EvalLoader]:
        """The held-out part of the training images; an empty list where there is none."""
        self.prepare()
        if self._val is not None:
            return self.evaluation(self._val)
        # Lightning skips validation then, which is meant, and warns that it might not be
        warnings.filterwarnings("ignore", "Total length of `list` across ranks is zero")
        return []

    def test_dataloader(self) -> EvalLoader:
        return self.evaluation(self.test)

    # Parts

    def batches(
        self,
        samples: Samples,
        *,
        seed: int | None = None,
        augment: bool = True,
        batch_size: int | None = None,
    ) -> TrainBatches:
        """Shuffled batches of `samples`, which are some of this set's."""
        return TrainBatches(
            samples,
            batch_size=self.batch_size if batch_size is None else batch_size,
            seed=self.seed if seed is None else seed,
            augment=self.augment if augment else None,
            mean=self.mean,
            std=self.std,
        )

    def evaluation(self, samples: Samples) -> EvalLoader:
        """Every one of `samples` once; labels are never padded, and processes have disjoint shares."""
        return EvalLoader(samples, self.eval_batch_size, self.mean, self.std)

    def train_batches(self, count: int, seed: int = 0, batch_size: int | None = None) -> list[Batch]:
        """`count` fixed batches of training images without augmentation, the same on every process."""
        return self.batches(self.train, batch_size=batch_size).plain(count, seed)

    def search_sides(
        self, train_fraction: float, augment_valid: bool, batch_size: int | None
    ) -> tuple[TrainBatches, TrainBatches]:
        """Batches for the weights and for the architecture; see `SearchData`."""
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
            len(side)  # raises where it has no full batch
        return sides[0], sides[1]

    def pair(self, train: TrainBatches, valid: TrainBatches) -> PairedBatches:
        """Both sides of a search, batch by batch."""
        return PairedBatches(train, valid)


# Data sets with the usual augmentation of small images: a crop after padding, a mirror image, and more.


class SmallImages(ImageData):
    """Base of the sets of small images.

    Args:
        augment: crop and mirror training images.
        crop_padding: pixels around an image before it is cropped to its size.
        rand_augment: magnitude of RandAugment's two operations for training images, e.g. 9; 0: none.
        cutout: side of the square that is cut out of training images, whatever `augment` says.
        **image_data: see `ImageData`.
    """

    mirrors: bool = True
    """Whether the mirror image of an image is one of its class."""

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
