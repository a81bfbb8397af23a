"""The data of a search: two disjoint parts of the training images, never the test images."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Protocol

import pytorch_lightning as pl
import torch
from torch import Tensor

from nas_lightning.data.base import ImageData
from nas_lightning.data.batches import Batch, check_images, is_read, read_batch
from nas_lightning.data.external import ExternalData
from nas_lightning.data.labels import class_labels
from nas_lightning.data.loaders import EpochLoader
from nas_lightning.errors import InputError
from nas_lightning.validation import PositiveInt, above, at_most, checked


class Side(Protocol):
    """The batches of one side of a search, for the weights or for the architecture.

    The methods return batches that are the same on every process and, for our data sets, not augmented unless
    asked for.
    """

    @property
    def images(self) -> int:
        """The number of samples."""

    def __len__(self) -> int:
        """The batches of one process in a pass; raises TypeError if unknown."""

    def plain(self, count: int, seed: int = 0) -> list[Batch]:
        """Return `count` batches."""

    def plain_images(self, count: int, seed: int = 0) -> Batch:
        """Return one batch of `count` samples, or of all if there are fewer."""

    def shuffled_pass(
        self, epoch: int, batch_size: int, seed: int, *, augment: bool = False
    ) -> Iterator[Batch]:
        """Yield one pass in the order of the epoch."""

    def whole_pass(self) -> Iterator[Batch]:
        """Yield every sample once."""


class SearchData(pl.LightningDataModule):
    """Batches `{"train": (x, y), "valid": (x, y)}` for the weights and for the architecture.

    An epoch is one pass over the larger side. Accepts one of our data sets, whose training images are split;
    any `LightningDataModule`, whose training and validation loaders are the sides; two loaders; two data
    sets, or one that is split; arrays; a `CombinedLoader`.

    Args:
        data: the data set, the data module, or the data for the weights.
        valid: the data for the architecture, if `data` is a loader, a data set, or arrays.
        train_fraction: fraction of the training images for the weights; the others are for the architecture.
            1: single-level, both sides are the whole training set in different orders. Data with a validation
            part are not split; a data module or loader without one suits searches that read training images
            only, such as NASI and those without training.
        augment_valid: augment the architecture's side like training images, as published code does.
        batch_size: images per step and process; None: the data set's.
        **external_options: options of `ExternalData`, such as `num_classes`, `inputs`, and `sides`.

    >>> from nas_lightning.data import Digits
    >>> search = SearchData(Digits(batch_size=32), train_fraction=0.7)
    >>> [side.images for side in search.sides], len(search.train_dataloader())
    ([1007, 431], 31)
    """

    @checked
    def __init__(
        self,
        data: Any,
        valid: Any = None,
        train_fraction: Annotated[float, above(0), at_most(1)] = 0.5,
        augment_valid: bool = False,
        batch_size: PositiveInt | None = None,
        **external_options: Any,
    ) -> None:
        super().__init__()
        self.data = as_data(data, valid, **external_options)
        self.train_fraction, self.augment_valid = train_fraction, augment_valid
        self._batch_size = batch_size
        self._sides: tuple[Any, Any] | None = None
        self._valid_count: int | None = None

    @property
    def batch_size(self) -> int:
        """Images per step and process."""
        return self.data.batch_size if self._batch_size is None else self._batch_size

    @batch_size.setter
    def batch_size(self, size: int) -> None:
        if isinstance(self.data, ExternalData) and size != self.data.batch_size:
            self.data.batch_size = size  # raises for loaders
        self._batch_size, self._sides, self._valid_count = size, None, None

    @property
    def sides(self) -> tuple[Any, Any]:
        """Batches for the weights and for the architecture, each a `Side`."""
        if self._sides is None:
            settings = (self.train_fraction, self.augment_valid, self._batch_size)
            self._sides = self.data.search_sides(*settings)
        return self._sides

    @property
    def train(self) -> Any:
        return self.sides[0]

    @property
    def valid(self) -> Any:
        if self.sides[1] is None:
            raise _no_validation()
        return self.sides[1]

    @property
    def valid_count(self) -> int:
        """The batches of one process in a pass over the architecture's side; counted if unknown."""
        if self._valid_count is None:
            try:
                self._valid_count = len(self.valid)
            except TypeError:
                self._valid_count = sum(1 for _ in self.valid.whole_pass())
        return self._valid_count

    def check_valid(self) -> None:
        """Raise if external data have no side for the architecture."""
        if isinstance(self.data, ExternalData):
            _ = self.valid

    def to_send(self) -> SearchData:
        """Return the same data without the trainer, for another process."""
        sent, sent.data = copy.copy(self), copy.copy(self.data)
        sent.trainer = sent.data.trainer = sent._sides = None
        return sent

    # Properties of the data set

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
        """The names of the classes, in the order of their labels."""
        return self.data.classes

    @property
    def task(self) -> Any:
        """The task; None: classification."""
        return self.data.task

    # Lightning's hooks

    def prepare_data(self) -> None:
        self.data.trainer = self.trainer
        self.data.prepare_data()

    def setup(self, stage: str | None = None) -> None:
        """Read the training images and split them; test images are not read."""
        self.data.trainer = self.trainer
        _ = self.sides

    def train_dataloader(self) -> EpochLoader[dict[str, Batch]]:
        return EpochLoader(self.data.pair(*self.sides))

    # Fixed batches without augmentation, for metrics and for batch-norm statistics

    def train_batches(self, count: int, seed: int = 0) -> list[Batch]:
        """Return `count` batches of the weights' side, the same on every process."""
        batches: list[Batch] = self.train.plain(count, seed)
        return batches

    def valid_batches(self, count: int, seed: int = 0) -> list[Batch]:
        """Return `count` batches of the architecture's side, the same on every process."""
        batches: list[Batch] = self.valid.plain(count, seed)
        return batches


def as_data(data: Any, valid: Any = None, test: Any = None, **options: Any) -> Any:
    """Return our data sets unchanged, and other data as `ExternalData` with these options."""
    if isinstance(data, SearchData):
        raise InputError("The data is a SearchData already", got=type(data).__name__)
    if not isinstance(data, (ImageData, ExternalData)):
        return ExternalData(data, valid, test, **options)
    extra = [name for name, value in {"valid": valid, "test": test, **options}.items() if value is not None]
    if extra:
        expected = "This data takes no further arguments"
        raise InputError(expected, got=", ".join(extra), where=type(data).__name__)
    return data


def _no_validation() -> InputError:
    return InputError(
        "The architecture needs a validation part: a val_dataloader, SearchData(train, valid), "
        "or train_fraction=1 to use the training part for both",
        got="none",
        where="the data",
    )


def read_sides(
    batch: Any,
    dtype: torch.dtype,
    targets: Callable[[Tensor], Tensor] = class_labels,
    needed: Sequence[str] = ("train", "valid"),
) -> Mapping[str, Batch]:
    """Return both sides as (x, y), also if loaders were combined without `SearchData`."""
    if isinstance(batch, Mapping) and [*batch] == ["train"] and "valid" in needed:
        raise _no_validation()
    if not isinstance(batch, Mapping) or any(batch.get(name) is None for name in needed):
        got = ", ".join(map(str, batch)) if isinstance(batch, Mapping) else type(batch).__name__
        expected = "Batches must have the sides 'train' and 'valid': wrap the data in SearchData(…)"
        raise InputError(expected, got=got, where="the training data")
    return {name: side if is_read(side) else _read_side(side, dtype, targets) for name, side in batch.items()}


def _read_side(side: Any, dtype: torch.dtype, targets: Callable[[Tensor], Tensor]) -> Batch:
    x, y = read_batch(side)
    check_images(x, y)
    return x.to(dtype), targets(y)


def check_search_data(data: Any, where: str) -> None:
    """Raise unless a strategy's data are a `SearchData`, with fixed batches of both sides."""
    if not callable(getattr(data, "valid_batches", None)):
        expected = "Pass the SearchData also to trainer.fit"
        raise InputError(expected, got=type(data).__name__, where=where)
