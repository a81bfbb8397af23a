"""Loaders, data sets and arrays that people give, as loaders of the parts of their data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
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

from nas_lightning.data.batches import Reader, collate
from nas_lightning.data.labels import labels_of
from nas_lightning.data.order import SEARCH_SPLIT, stratified_split
from nas_lightning.data.source import DataSource, Feed, is_list_of_loaders, sides_of
from nas_lightning.data.stacking import is_picture
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
        check_form(train)
        found, self.shortest = sides_of(as_pair(train, reader), sides)
        self.parts = {"valid": as_pair(valid, reader), "test": as_pair(test, reader), **found}
        self.parts = {name: as_samples(as_dataset(part), reader) for name, part in self.parts.items()}
        check_not_empty(self.parts)
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
        join, train = partial(collate, reader=self.reader), part != "test"
        if isinstance(dataset, IterableDataset):
            batched = _is_batched(dataset, self.reader)
            size = None if batched else self.batch_size
            loader = DataLoader(dataset, batch_size=size, collate_fn=None if batched else join)
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
                collate_fn=join,
            ),
            Reader(),
        )


class SampleList(Dataset[Any]):
    """Samples in a list as a data set.

    Args:
        samples: each an image with its label, in whatever form.
    """

    def __init__(self, samples: Sequence[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


def check_form(data: Any) -> None:
    """Raise for what holds no images."""
    if data is None:
        raise InputError("expected a data module, loaders, data sets or arrays", got="none", where="the data")
    if isinstance(data, (str, Path)):
        expected = "expected images and labels, which ImageFolder(root) has of a folder"
        raise InputError(expected, got=data, where="the data")
    if hasattr(data, "columns") and not isinstance(data, Dataset):
        expected = "expected a data set that opens the images of a table, a torch.utils.data.Dataset"
        raise InputError(expected, got=type(data).__name__, where="the data")
    if is_list_of_loaders(data):
        expected = "expected loaders one by one, SearchData(train, valid), or a dict of both sides"
        raise InputError(expected, got=f"a list of {len(data)}", where="the data")


def check_not_empty(parts: Mapping[str, Any]) -> None:
    """Raise for a data set without samples."""
    for name, part in parts.items():
        if is_dataset(part) and not isinstance(part, IterableDataset) and len(part) == 0:
            raise InputError("expected at least one sample", got="none", where=f"the {name} part")


def as_samples(data: Any, reader: Reader) -> Any:
    """A list of samples, and of no batches, as a data set; the rest is as it was."""
    listed = isinstance(data, (list, tuple)) and len(data) > 0 and _is_sample(data[0], reader)
    return SampleList(data) if listed else data


def _is_sample(entry: Any, reader: Reader) -> bool:
    try:
        x, _ = reader.pair(entry)
    except InputError:
        return False
    return is_picture(x) or getattr(x, "ndim", 0) == 3


def is_dataset(data: Any) -> bool:
    """Whether it has samples, which nobody has put into batches yet."""
    if isinstance(data, (Dataset, DataLoader)):
        return isinstance(data, Dataset)
    mapped = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return mapped and not isinstance(data, (list, tuple, Mapping))


def as_pair(data: Any, reader: Reader) -> Any:
    """Arrays by name, as `np.load` gives them of a file, as a pair; the rest is as it was."""
    if not isinstance(data, Mapping) or reader.convert is not None:
        return data
    try:
        pair = reader.pair(data)
    except InputError:  # the sides of a search
        return data
    return pair if all(isinstance(part, (Tensor, np.ndarray)) for part in pair) else data


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
