"""The user's data: data modules, loaders, data sets, and arrays."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import CombinedLoader, rank_zero_only
from pytorch_lightning.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from nas_lightning.data.batches import Batch, Reader, check_images, check_layout, collate, is_picture
from nas_lightning.data.labels import Classes, Targets, class_names_of, declared_classes, labels_of
from nas_lightning.data.loaders import EpochLoader, SharedBatches
from nas_lightning.data.order import SEARCH_SPLIT, stratified_split
from nas_lightning.data.streams import PairedStreams, Stream
from nas_lightning.errors import InputError
from nas_lightning.utils.randomness import generator, seed_of
from nas_lightning.validation import PositiveInt, Seed, checked

# Sources of data

VALID = ("valid", "val", "validation")


class Feed(NamedTuple):
    """A loader and the function that reads its batches.

    Args:
        loader: any iterable.
        read: batch → (inputs, targets).
    """

    loader: Any
    read: Callable[[Any], Batch]


class DataSource(ABC):
    """The training, validation, and test parts of external data."""

    shortest = False
    """Whether the shorter of two sides ends an epoch."""
    batch_size: int | None = None
    """Of data sets; None for loaders."""

    @abstractmethod
    def part(self, name: str) -> Feed | None:
        """Return `train`, `valid` or `test`; None if there is none."""

    @abstractmethod
    def owners(self) -> list[Any]:
        """Return the objects that may know the classes."""

    def split(self, fraction: float, seed: int) -> tuple[Feed, Feed] | None:
        """Split the training part into two sides; None if it cannot be split."""
        return None

    def resize(self, batch_size: int) -> None:
        """Change the batch size, or raise."""
        raise InputError(
            "`batch_size` can be set for data sets, or for a data module with that attribute",
            got=batch_size,
            where="batch_size",
        )

    def prepare(self) -> None:  # noqa: B027
        """Prepare the data, once; see `LightningDataModule.prepare_data`."""

    def setup(self, stage: str) -> None:  # noqa: B027
        """Set up the parts of `fit` or `test`."""


class ModuleSource(DataSource):
    """A `LightningDataModule`, of which only Lightning's interface is used.

    Args:
        module: the user's module.
        reader: of its batches.
        sides: the names of the two sides, if its training loader has both.
        owner: the `ExternalData` that wraps it and has the trainer.
    """

    def __init__(
        self, module: pl.LightningDataModule, reader: Reader, sides: Sequence[str], owner: Any = None
    ) -> None:
        self.module, self.reader, self.sides, self.owner = module, reader, sides, owner
        self._ready: set[str] = set()
        self._parts: dict[str, Any] = {}

    def part(self, name: str) -> Feed | None:
        loader = self._sides().get(name) if name != "test" else self._ask("test")
        return None if loader is None else Feed(loader, self._read)

    def owners(self) -> list[Any]:
        return [self.module, getattr(self._sides()["train"], "dataset", None)]

    def resize(self, batch_size: int) -> None:
        owners: list[Any] = [self.module, self.module.hparams]
        owners = [owner for owner in owners if hasattr(owner, "batch_size")]
        for owner in owners:
            owner.batch_size = batch_size
        if not owners:
            super().resize(batch_size)
        self._parts = {}

    def prepare(self) -> None:
        if "prepared" not in self._ready:
            with self._with_trainer():
                self.module.prepare_data()
            self._ready.add("prepared")

    def setup(self, stage: str) -> None:
        if stage not in self._ready:
            with self._with_trainer():
                self.module.setup(stage)
            self._ready.add(stage)

    @contextmanager
    def _with_trainer(self) -> Iterator[None]:
        """Set the module's trainer, as Lightning would; explain the error if it needs one too early."""
        if self.owner is not None and self.owner.trainer is not None:
            self.module.trainer = self.owner.trainer
        try:
            yield
        except AttributeError as error:
            if self.module.trainer is not None or "NoneType" not in str(error):
                raise
            expected = "The data module needs a trainer: pass image=… and num_classes=…"
            raise InputError(expected, got=str(error), where=type(self.module).__name__) from error

    def _sides(self) -> dict[str, Any]:
        if "train" not in self._parts:
            train = self._ask("train")
            if train is None:
                raise InputError("There must be a train_dataloader", where=type(self.module).__name__)
            found, self.shortest = sides_of(train, self.sides)
            self._parts = found if "valid" in found else {**found, "valid": self._ask("val")}
        return self._parts

    def _ask(self, part: str) -> Any:
        """Return the loader of a part, also if it is the only one of a list."""
        self.prepare()
        self.setup("test" if part == "test" else "fit")
        try:
            with self._with_trainer():
                loader = getattr(self.module, f"{part}_dataloader")()
        except MisconfigurationException:  # the hook is not implemented
            return None
        if part != "train" and isinstance(loader, (list, tuple)) and not loader:
            return None
        if not is_list_of_loaders(loader):
            return loader
        if len(loader) > 1:
            where = f"{type(self.module).__name__}.{part}_dataloader"
            both = ", or a dict of both sides of a search" if part == "train" else ""
            raise InputError(
                f"There must be a single loader{both}", got=f"{len(loader)} of them", where=where
            )
        return loader[0]

    def _read(self, batch: Any) -> Batch:
        """Read a batch after the module's batch transfer hooks."""
        batch = self.module.on_before_batch_transfer(batch, 0)
        return self.reader(self.module.on_after_batch_transfer(batch, 0))


def is_list_of_loaders(loaders: Any) -> bool:
    """Return whether these are several loaders instead of the batches of one.

    >>> is_list_of_loaders([range(3), range(4)]), is_list_of_loaders([("x", "y"), ("x", "y")])
    (True, False)
    """
    if not isinstance(loaders, (list, tuple)) or not loaders:
        return False
    of_batches = (tuple, list, Mapping, Tensor, np.ndarray)
    return all(hasattr(entry, "__iter__") and not isinstance(entry, of_batches) for entry in loaders)


def sides_of(loaders: Any, names: Sequence[str]) -> tuple[dict[str, Any], bool]:
    """Return `train`, `valid` if there are both, and whether the shorter ends an epoch."""
    # CombinedLoader has no public attribute for its mode
    shortest = isinstance(loaders, CombinedLoader) and loaders._mode == "min_size"
    both = loaders.iterables if isinstance(loaders, CombinedLoader) else loaders
    if isinstance(loaders, CombinedLoader) and isinstance(both, (list, tuple)):
        both = dict(zip(names, both, strict=False))
    if not isinstance(both, Mapping):
        return {"train": both}, shortest
    first, second = names
    usual = VALID if second == "valid" else (second,)
    chosen = [name for name in usual if name in both]
    if first not in both or not chosen:
        expected = f"Batches must have the sides {first!r} and {second!r}; for other names pass sides=(…, …)"
        raise InputError(expected, got=", ".join(map(str, both)) or "none", where="the data")
    return {"train": both[first], "valid": both[chosen[0]]}, shortest


BATCH_SIZE = 64  # default for data sets


class PartsSource(DataSource):
    """Loaders, data sets, or arrays.

    Args:
        train: the training part, or both sides as a dict or `CombinedLoader`.
        valid: the validation part.
        test: the test part.
        reader: of batches, or samples.
        sides: the names of the two sides, if `train` has both.
        batch_size: of data sets.
        balanced: draw samples of data sets so that classes are equally frequent.
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
                f"`{name}` needs data sets; a loader defines it itself", got=got, where="the data"
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

    def split(self, fraction: float, seed: int) -> tuple[Feed, Feed] | None:
        whole = self.parts["train"]
        if not is_dataset(whole) or isinstance(whole, IterableDataset):
            return super().split(fraction, seed)
        labels = labels_of(whole)
        strata = torch.zeros(len(whole), dtype=torch.long) if labels is None else labels
        rows = stratified_split(strata, fraction, generator(SEARCH_SPLIT, seed))
        first, second = (self._load(Subset(whole, part.tolist()), "train") for part in rows)
        return first, second

    def _load(self, dataset: Any, part: str) -> Feed:
        assert self.batch_size is not None, "data sets have a batch size"
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
    """A list of samples as a data set.

    Args:
        samples: pairs of an image and a label, in any supported form.
    """

    def __init__(self, samples: Sequence[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


def check_form(data: Any) -> None:
    """Raise for objects that are not data."""
    if data is None:
        raise InputError("Pass a data module, loaders, data sets, or arrays", where="the data")
    if isinstance(data, (str, Path)):
        expected = "Pass images and labels; for a folder use ImageFolder(root)"
        raise InputError(expected, got=data, where="the data")
    if hasattr(data, "columns") and not isinstance(data, Dataset):
        expected = "For a table pass a torch.utils.data.Dataset that opens its images"
        raise InputError(expected, got=type(data).__name__, where="the data")
    if is_list_of_loaders(data):
        expected = "Pass loaders one by one, SearchData(train, valid), or a dict of both sides"
        raise InputError(expected, got=f"a list of {len(data)}", where="the data")


def check_not_empty(parts: Mapping[str, Any]) -> None:
    """Raise for a data set without samples."""
    for name, part in parts.items():
        if is_dataset(part) and not isinstance(part, IterableDataset) and len(part) == 0:
            raise InputError("There must be at least one sample", where=f"the {name} part")


def as_samples(data: Any, reader: Reader) -> Any:
    """Convert a list of samples to a data set; return other data unchanged."""
    listed = isinstance(data, (list, tuple)) and len(data) > 0 and _is_sample(data[0], reader)
    return SampleList(data) if listed else data


def _is_sample(entry: Any, reader: Reader) -> bool:
    try:
        x, _ = reader.pair(entry)
    except InputError:
        return False
    return is_picture(x) or getattr(x, "ndim", 0) == 3


def is_dataset(data: Any) -> bool:
    """Return whether it has samples that are not yet batched."""
    if isinstance(data, (Dataset, DataLoader)):
        return isinstance(data, Dataset)
    mapped = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return mapped and not isinstance(data, (list, tuple, Mapping))


def as_pair(data: Any, reader: Reader) -> Any:
    """Convert named arrays, such as from `np.load`, to a pair; return other data unchanged."""
    if not isinstance(data, Mapping) or reader.convert is not None:
        return data
    try:
        pair = reader.pair(data)
    except InputError:  # both sides of a search
        return data
    return pair if all(isinstance(part, (Tensor, np.ndarray)) for part in pair) else data


def as_dataset(data: Any) -> Any:
    """Convert a pair of arrays or tensors to a data set; return other data unchanged."""
    paired = isinstance(data, (tuple, list)) and len(data) == 2
    if not paired or not all(isinstance(part, (Tensor, np.ndarray)) for part in data):
        return data
    x, y = (torch.as_tensor(part) for part in data)
    if len(x) != len(y):
        got = f"{tuple(x.shape)} and {tuple(y.shape)}"
        raise InputError("There must be as many images as labels", got=got, where="the data")
    return TensorDataset(x, y)


def _balanced_sampler(dataset: Any) -> WeightedRandomSampler:
    """Return a sampler that draws every class equally often, with replacement."""
    labels = labels_of(dataset)
    if labels is None:
        expected = "balanced=True needs a data set with its labels as `targets`"
        raise InputError(expected, got=type(dataset).__name__, where="the data")
    weights = 1 / torch.bincount(labels).double()
    return WeightedRandomSampler(weights[labels].tolist(), len(labels))


def _is_batched(dataset: Any, reader: Reader) -> bool:
    """Return whether the entries of a stream are batches."""
    x, _ = reader.pair(next(iter(dataset)))
    return getattr(x, "ndim", 0) == 4


# The data module


class ExternalData(pl.LightningDataModule):
    """Any `LightningDataModule`, loaders, data sets, or arrays, for searches and trainings.

    Batches may be tuples, of which the first two entries are used, dicts, named tuples, or data classes.
    Bytes are converted to floats from 0 to 1, other numbers to floats; nothing is normalized or augmented.

    Args:
        data: a data module; or the training part: a loader, a data set, a pair of arrays, or a dict or
            `CombinedLoader` with both sides of a search.
        valid, test: these parts, if `data` is not a module.
        batch_size: of data sets and arrays, 64 by default; sets the attribute of a module that has one.
        image: (channels, height, width); None: that of the first batch.
        num_classes, classes: number and names of the classes; None: from the data, else from the labels.
        inputs, targets: their names in dicts; None: `image`, `pixel_values`, `label`, and similar ones.
        reader: batch → (inputs, targets), instead of names.
        sides: the names of the two sides of a search, if `data` has both.
        epoch_batches: number of batches after which a pass ends, for loaders without an end.
        balanced: draw samples of data sets so that all classes are equally frequent.
        name: in reports; None: the name of the class of `data`.
        seed: determines all that the loaders draw.
        task: the task, see `nas_lightning.tasks`; None: classification.

    >>> import torch
    >>> data = ExternalData((torch.zeros(100, 5, 8, 8, dtype=torch.uint8), torch.arange(100) % 3))
    >>> data.image, data.num_classes
    ((5, 8, 8), 3)
    """

    @checked
    def __init__(
        self,
        data: Any,
        valid: Any = None,
        test: Any = None,
        *,
        batch_size: PositiveInt | None = None,
        image: tuple[PositiveInt, PositiveInt, PositiveInt] | None = None,
        num_classes: PositiveInt | None = None,
        classes: Sequence[str] | None = None,
        inputs: str | int | None = None,
        targets: str | int | None = None,
        reader: Callable[[Any], tuple[Any, Any]] | None = None,
        sides: Sequence[str] = ("train", "valid"),
        epoch_batches: PositiveInt | None = None,
        balanced: bool = False,
        name: str | None = None,
        seed: Seed = 0,
        task: Targets | None = None,
    ) -> None:
        super().__init__()
        self.task = task
        read = Reader(inputs, targets, reader, classes)
        if isinstance(data, pl.LightningDataModule):
            if valid is not None or test is not None or balanced:
                expected = "A data module takes no further parts"
                raise InputError(expected, got=type(data).__name__, where="ExternalData")
            self.source: DataSource = ModuleSource(data, read, sides, owner=self)
        else:
            self.source = PartsSource(
                data, valid, test, reader=read, sides=sides, batch_size=batch_size, balanced=balanced
            )
        self._image, self.seed, self.epoch_batches = image, seed, epoch_batches
        self._classes = tuple(classes) if classes else None
        self._num_classes, self._name = num_classes, name or type(data).__name__.lower()
        self._counted_by = ""  # the origin of the number of classes, for messages
        self._streams: dict[str, Stream | None] = {}
        self._first: Batch | None = None
        if isinstance(data, pl.LightningDataModule) and batch_size is not None:
            self.batch_size = batch_size

    # Properties

    @property
    def name(self) -> str:  # type: ignore[override]
        return self._name

    @property
    def meaning(self) -> Targets:
        """The task, classification by default."""
        return self.task or Classes()

    @property
    def image(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        if self._image is None:
            channels, height, width = self.first[0].shape[1:]
            self._image = (channels, height, width)
        return (self._image[0], self._image[1], self._image[2])

    @property
    def num_classes(self) -> int:
        if self._num_classes is None:
            declared = declared_classes(self.source.owners()) if self.meaning.of_classes else None
            self._num_classes = len(self._classes or ()) or declared
        if self._num_classes is None:
            self._counted_by = ", as in the first batch; pass num_classes=…"
            self._num_classes = max(self.meaning.least, self.meaning.count(self.first[1]))
        return self._num_classes

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their labels; their numbers if unknown."""
        if self._classes is None:
            names = class_names_of(*self.source.owners())
            usable = names is not None and len(names) == self.num_classes
            self._classes = names if usable else tuple(map(str, range(self.num_classes)))
        return self._classes  # type: ignore[return-value]

    @property
    def mean(self) -> tuple[float, ...]:
        """Zero: images are not normalized."""
        return (0.0,) * self.image[0]

    @property
    def std(self) -> tuple[float, ...]:
        """One: images are not normalized."""
        return (1.0,) * self.image[0]

    @property
    def first(self) -> Batch:
        """The first batch of the training part."""
        if self._first is None:
            feed = self._part("train")
            assert feed is not None, "there is a training part"
            stream = Stream(feed.loader, feed.read, self.seed, self.name)
            x, y = next(stream.once())
            check_images(x, y)
            check_layout(x, self._image)
            self._first = x, self.meaning.targets(y)
        return self._first

    @property
    def batch_size(self) -> int:
        """Of the training part."""
        return self.source.batch_size or len(self.first[0])

    @batch_size.setter
    def batch_size(self, size: int) -> None:
        self.source.resize(size)
        self._streams, self._first = {}, None

    # Streams of batches

    def stream(self, part: str) -> Stream | None:
        """Return the batches of `train`, `valid` or `test`; None if there is no such part."""
        if part not in self._streams:
            feed = self._part(part)
            self._streams[part] = None if feed is None else self._stream(feed, part)
        return self._streams[part]

    def every_batch(self, part: str) -> list[Batch]:
        """Return all batches of a part, the same on every process."""
        stream = self.stream(part)
        if stream is None:
            raise InputError(f"There is no {part} part", where=self.name)
        return list(stream.whole_pass())

    def search_sides(
        self, train_fraction: float, augment_valid: bool, batch_size: int | None
    ) -> tuple[Stream, Stream | None]:
        """Return batches for the weights and for the architecture: the validation part, or a split.

        The second is None if there is neither; searches that do not read it work.
        """
        if augment_valid:
            raise InputError(
                "`augment_valid` must be false for external data", got=True, where="augment_valid"
            )
        if batch_size is not None and batch_size != self.batch_size:
            self.batch_size = batch_size
        train, valid = self._part("train"), self._part("valid")
        assert train is not None, "there is a training part"
        if valid is None and train_fraction < 1:
            train, valid = self.source.split(train_fraction, self.seed) or (train, None)
        elif valid is None:
            valid = train
        sides = (self._stream(train, "train"), None if valid is None else self._stream(valid, "valid"))
        for side in sides:
            if side is not None:
                next(side.once())  # raises for invalid data
        return sides

    def pair(self, train: Stream, valid: Stream | None) -> PairedStreams:
        """Return pairs of batches of both sides of a search."""
        return PairedStreams(train, valid, shortest=self.source.shortest)

    def _stream(self, feed: Feed, part: str) -> Stream:
        def read(batch: Any) -> Batch:
            return self._check(*feed.read(batch))

        where, seed = f"the {part} part of {self.name}", seed_of(self.seed, *part.encode())
        return Stream(feed.loader, read, seed, where, self.epoch_batches)

    def _check(self, x: Any, y: Any) -> Batch:
        check_images(x, y, self.image)
        targets = self.meaning.targets(y)
        self.meaning.check(targets, self.num_classes, self._counted_by)
        return x, targets

    # Lightning's hooks

    def prepare_data(self) -> None:
        self.source.prepare()

    def setup(self, stage: str | None = None) -> None:
        """Read the first batches, to find invalid data before training."""
        if rank_zero_only.rank == 0:  # type: ignore[attr-defined]
            self.source.prepare()
        for part in ("train", "valid") if stage in (None, "fit", "validate") else ("test",):
            stream = self.stream(part)
            if stream is not None:
                next(stream.once())

    def train_dataloader(self) -> EpochLoader[Batch]:
        stream = self.stream("train")
        assert stream is not None, "there is a training part"
        return EpochLoader(stream)

    def val_dataloader(self) -> Any:
        return self._evaluation("valid")

    def test_dataloader(self) -> Any:
        return self._evaluation("test")

    def _evaluation(self, part: str) -> Any:
        stream = self.stream(part)
        if stream is not None:
            return SharedBatches(stream)
        warnings.filterwarnings("ignore", "Total length of `list` across ranks is zero")
        return []

    def _part(self, name: str) -> Feed | None:
        if name == "train" and rank_zero_only.rank == 0:  # type: ignore[attr-defined]
            self.source.prepare()
        return self.source.part(name)
