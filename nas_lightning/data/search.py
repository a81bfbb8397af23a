"""A data set as a search uses it: its training images in two disjoint parts, and never its test images."""

from __future__ import annotations

from typing import Annotated

import pytorch_lightning as pl
import torch

from nas_lightning.checks import PositiveInt, above, at_most, checked
from nas_lightning.data.base import ImageData
from nas_lightning.data.loaders import Batch, EpochLoader, PairedBatches, TrainBatches, plain_batches
from nas_lightning.data.order import SEARCH_SPLIT, stratified_split
from nas_lightning.randomness import generator, seed_of


class SearchData(pl.LightningDataModule):
    """Batches `{"train": (x, y), "valid": (x, y)}` for the weights and for the architecture.

    An epoch is one pass over the larger side.

    Args:
        data: the data set.
        train_fraction: part of the training images that is for the weights, the others are for the
            architecture; 1 stands for a single level: both sides are the whole training set, in different
            orders.
        augment_valid: treat the validation side like training images, as published code does.
        batch_size: images of a step of one process; None: the data set's.

    >>> from nas_lightning.data import Digits
    >>> search = SearchData(Digits(batch_size=32), train_fraction=0.7)
    >>> [len(side.samples) for side in search.sides], len(search.train_dataloader())
    ([1007, 431], 31)
    """

    @checked
    def __init__(
        self,
        data: ImageData,
        train_fraction: Annotated[float, above(0), at_most(1)] = 0.5,
        augment_valid: bool = False,
        batch_size: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        self.data, self.train_fraction, self.augment_valid = data, train_fraction, augment_valid
        self.batch_size = data.batch_size if batch_size is None else batch_size
        self._sides: tuple[TrainBatches, TrainBatches] | None = None

    @property
    def sides(self) -> tuple[TrainBatches, TrainBatches]:
        """Batches for the weights and for the architecture."""
        if self._sides is None:
            samples = self.data.train
            everything = torch.arange(len(samples))
            train, valid = everything, everything
            if self.train_fraction < 1:
                random = generator(SEARCH_SPLIT, self.data.seed)
                train, valid = stratified_split(samples.labels, self.train_fraction, random)
            sides = [
                self.data.batches(
                    samples.select(rows),
                    seed=seed_of(self.data.seed, number),
                    augment=augment,
                    batch_size=self.batch_size,
                )
                for number, (rows, augment) in enumerate([(train, True), (valid, self.augment_valid)])
            ]
            for side in sides:
                len(side)  # raises where it has no full batch
            self._sides = (sides[0], sides[1])
        return self._sides

    @property
    def train(self) -> TrainBatches:
        return self.sides[0]

    @property
    def valid(self) -> TrainBatches:
        return self.sides[1]

    # What the data set says of itself

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.data.name

    @property
    def image(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return self.data.image

    @property
    def num_classes(self) -> int:
        return self.data.num_classes

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes' names, in the order of their labels."""
        return self.data.classes

    # Lightning's hooks

    def prepare_data(self) -> None:
        self.data.fetch()

    def setup(self, stage: str | None = None) -> None:
        """Read the training images and split them; the test images stay where they are."""
        _ = self.sides

    def train_dataloader(self) -> EpochLoader[dict[str, Batch]]:
        return EpochLoader(PairedBatches(*self.sides))

    # Fixed batches without augmentation, for metrics and for batch-norm statistics

    def train_batches(self, count: int, seed: int = 0) -> list[Batch]:
        """`count` batches of the weights' side, the same on every process."""
        return plain_batches(self.train, count, seed)

    def valid_batches(self, count: int, seed: int = 0) -> list[Batch]:
        """`count` batches of the architecture's side, the same on every process."""
        return plain_batches(self.valid, count, seed)
