"""Loaders, data sets and arrays that people give, as loaders of the parts of their data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from nas_lightning.data.batches import Batch, Reader, as_tensor
from nas_lightning.data.labels import labels_of
from nas_lightning.data.order import SEARCH_SPLIT, stratified_split
from nas_lightning.data.source import DataSource, Feed, sides_of
from nas_lightning.errors import InputError
from nas_lightning.randomness import generator

BATCH_SIZE = 64  # of data sets that nobody says another for


class SourceParts(DataSource):
    """Loaders, data sets or arrays.

    Args:
        train: the training part, or both sides as a dict or `CombinedLoader`.
        valid: the validation part.
        test: the test part.
        reader: how batches, or samples, are read.
        sides: what the two sides are called, where `train` has both.
        batch_size: of data sets.
        balanced: whether samples of data sets are drawn so that classes are equally frequent.
    """

    def __init__(
        self,
        train: Any,
        valid: Any = None,
        test: Any = None,
        *,
        reader: Reader,
        sides: Sequence[str] = ("train", "valid"),
        batch_size: int | None = None,
        balanced: bool = False,
    ) -> None:
        found, self.shortest = sides_of(train, sides)
        self.parts = {"valid": valid, "test": test, **found}
        self.parts = {name: as_dataset(part) for name, part in self.parts.items()}
        self.reader, self.balanced = reader, balanced
        is_set = is_dataset(self.parts["train"])
        self.batch_size = (batch_size or BATCH_SIZE) if is_set else None
        if (batch_size or balanced) and not is_set:
            name = "batch_size" if batch_size else "balanced"
            got = f"a {type(train).__name__}"
            raise InputError(
                f"expected data sets with {name}; a loader has its own", got=got, where="the data"
            )

    def part(self, name: str) -> Feed | None:
        part = self.parts[name]
        if part is None:
            return None
        return self._load(part, name) if is_dataset(part) else Feed(part, self.reader)

    def owners(self) -> list[Any]:
        train = self.parts["train"]
        return [train, getattr(train, "dataset", None)]

    def resize(self, batch_size: int) -> None:
        if self.batch_size is None:
            super().resize(batch_size)
        self.batch_size = batch_size

    def split(self, fraction: float, seed: int) -> tuple[Feed, Feed]:
        whole = self.parts["train"]
        if not is_dataset(whole) or isinstance(whole, IterableDataset):
            return super().split(fraction, seed)
        labels = labels_of(whole)
        alike = torch.zeros(len(whole), dtype=torch.long) if labels is None else labels
        rows = stratified_split(alike, fraction, generator(SEARCH_SPLIT, seed))
        first, second = (self._load(Subset(whole, part.tolist()), "train") for part in rows)
        return first, second

    def _load(self, dataset: Any, part: str) -> Feed:
        assert self.batch_size is not None, "a data set has one"
        collate, train = Collate(self.reader), part != "test"
        if isinstance(dataset, IterableDataset):
            batched = _is_batched(dataset, self.reader)
            size = None if batched else self.batch_size
            loader = DataLoader(dataset, batch_size=size, collate_fn=None if batched else collate)
            return Feed(loader, self.reader if batched else Reader())
        sampler = _balanced_sampler(dataset) if self.balanced and part == "train" else None
        full = train and len(dataset) >= self.batch_size
        return Feed(
            DataLoader(
                dataset,
                self.batch_size,
                shuffle=train and sampler is None,
                sampler=sampler,
                drop_last=full,
                collate_fn=collate,
            ),
            Reader(),
        )


class Collate:
    """Samples as one batch: (inputs, targets), pictures as bytes (c, h, w).

    Args:
        reader: how a sample is read.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __call__(self, samples: Sequence[Any]) -> Batch:
        pairs = [self.reader.pair(sample) for sample in samples]
        return _stack([x for x, _ in pairs], "inputs"), _stack([y for _, y in pairs], "targets")


def is_dataset(data: Any) -> bool:
    """Whether it has samples, which nobody has put into batches yet."""
    if isinstance(data, (Dataset, DataLoader)):
        return isinstance(data, Dataset)
    mapped = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return mapped and not isinstance(data, (list, tuple, Mapping))


def as_dataset(data: Any) -> Any:
    """Images and labels as a pair of arrays or tensors are a data set; the rest is as it was."""
    paired = isinstance(data, (tuple, list)) and len(data) == 2
    if not paired or not all(isinstance(part, (Tensor, np.ndarray)) for part in data):
        return data
    x, y = (torch.as_tensor(part) for part in data)
    if len(x) != len(y):
        got = f"{tuple(x.shape)} and {tuple(y.shape)}"
        raise InputError("expected as many images as labels", got=got, where="the data")
    return TensorDataset(x, y)


def _balanced_sampler(dataset: Any) -> WeightedRandomSampler:
    """Every class is drawn equally often; with replacement, as many as there are."""
    labels = labels_of(dataset)
    if labels is None:
        expected = "expected a data set with its labels as `targets`, which balanced draws need"
        raise InputError(expected, got=type(dataset).__name__, where="the data")
    weights = 1 / torch.bincount(labels).double()
    return WeightedRandomSampler(weights[labels].tolist(), len(labels))


def _is_batched(dataset: Any, reader: Reader) -> bool:
    """Whether a stream's entries are batches already."""
    x, _ = reader.pair(next(iter(dataset)))
    return getattr(x, "ndim", 0) == 4


def _stack(values: Sequence[Any], what: str) -> Tensor:
    tensors = [_picture(value) if hasattr(value, "getbands") else as_tensor(value, what) for value in values]
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) > 1:
        got = " and ".join(map(str, sorted(shapes)[:2]))
        raise InputError(
            f"expected {what} of one shape: resize them", got=got, where="the samples of a batch"
        )
    return torch.stack(tensors)


def _picture(image: Any) -> Tensor:
    """A PIL image as bytes, or whatever its pixels are: (c, h, w)."""
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)
