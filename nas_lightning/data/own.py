"""A user's own data as this package's parts ask for it, with facts from arguments or from the first batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.checks import PositiveInt, Seed, checked
from nas_lightning.data.batches import Batch, Reader, check_images, check_layout
from nas_lightning.data.evaluation import SharedBatches
from nas_lightning.data.labels import Classes, Targets, class_names_of, declared_classes
from nas_lightning.data.loaders import EpochLoader
from nas_lightning.data.source import DataSource, Feed, SourceModule
from nas_lightning.data.source_parts import SourceParts
from nas_lightning.data.streams import PairedStreams, Stream
from nas_lightning.errors import InputError
from nas_lightning.randomness import seed_of


class OwnData(pl.LightningDataModule):
    """Any `LightningDataModule`, loaders, data sets or arrays, for searches and trainings.

    Batches may be tuples, of which the first two count, dicts, named tuples or data classes. Bytes become
    floats from 0 to 1, other numbers floats as they are; nothing is normalised or augmented.

    Args:
        data: a data module; or the training part: a loader, a data set, a pair of arrays, or a dict or
            `CombinedLoader` with both sides of a search.
        valid, test: those parts, where `data` is not a module.
        batch_size: of data sets and arrays, 64 by default; a module's own, where it has such an attribute.
        image: (channels, height, width); None: as the first batch has it.
        num_classes, classes: how many, and their names; None: as the data says, else as the labels at hand.
        inputs, targets: their names in dicts; None: `image`, `pixel_values`, `label` or the like.
        reader: (what the loader gives) → (inputs, targets), where those two do not say it.
        sides: what the two sides of a search are called, where `data` has both.
        epoch_batches: after how many batches a pass over a loader ends, such as over one without an end.
        balanced: draw samples of data sets so that all classes are equally frequent.
        name: what reports call it; None: the name of its class.
        seed: what the loaders' draws follow from.
        task: what the targets mean, one of `nas_lightning.tasks`; None: classes.

    >>> import torch
    >>> data = OwnData((torch.zeros(100, 5, 8, 8, dtype=torch.uint8), torch.arange(100) % 3))
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
                expected = "expected a data module alone, which has its parts"
                raise InputError(expected, got=type(data).__name__, where="OwnData")
            self.source: DataSource = SourceModule(data, read, sides, owner=self)
        else:
            self.source = SourceParts(
                data, valid, test, reader=read, sides=sides, batch_size=batch_size, balanced=balanced
            )
        self._image, self.seed, self.epoch_batches = image, seed, epoch_batches
        self._classes = tuple(classes) if classes else None
        self._num_classes, self._name = num_classes, name or type(data).__name__.lower()
        self._counted_by = ""  # who has counted the classes
        self._streams: dict[str, Stream | None] = {}
        self._first: Batch | None = None
        if isinstance(data, pl.LightningDataModule) and batch_size is not None:
            self.batch_size = batch_size

    # What others ask a data set for

    @property
    def name(self) -> str:  # type: ignore[override]
        return self._name

    @property
    def meaning(self) -> Targets:
        """The task, or that there are classes."""
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
            told = declared_classes(self.source.owners()) if self.meaning.of_classes else None
            self._num_classes = len(self._classes or ()) or told
        if self._num_classes is None:  # nobody says it
            self._counted_by = ", as the first batch has; num_classes=… says how many"
            self._num_classes = max(self.meaning.least, self.meaning.count(self.first[1]))
        return self._num_classes

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes' names, in the order of their labels; their numbers where nobody says them."""
        if self._classes is None:
            names = class_names_of(*self.source.owners())
            usable = names is not None and len(names) == self.num_classes
            self._classes = names if usable else tuple(map(str, range(self.num_classes)))
        return self._classes  # type: ignore[return-value]

    @property
    def mean(self) -> tuple[float, ...]:
        """None is taken off: images come to networks as their user's loaders give them."""
        return (0.0,) * self.image[0]

    @property
    def std(self) -> tuple[float, ...]:
        """None is divided by."""
        return (1.0,) * self.image[0]

    @property
    def first(self) -> Batch:
        """The first batch of the training part, as it is, but for its form."""
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
        """Batches of `train`, `valid` or `test` as they are read; None where there is none."""
        if part not in self._streams:
            feed = self._part(part)
            self._streams[part] = None if feed is None else self._stream(feed, part)
        return self._streams[part]

    def every_batch(self, part: str) -> list[Batch]:
        """All batches of a part, on whichever process this is."""
        stream = self.stream(part)
        if stream is None:
            raise InputError(f"expected a {part} part", got="none", where=self.name)
        return list(stream.whole_pass())

    def search_sides(
        self, train_fraction: float, augment_valid: bool, batch_size: int | None
    ) -> tuple[Stream, Stream]:
        """Batches for the weights and for the architecture: its validation part, or a share."""
        if augment_valid:
            raise InputError("expected false for data that is not ours", got=True, where="augment_valid")
        if batch_size is not None and batch_size != self.batch_size:
            self.batch_size = batch_size
        train, valid = self._part("train"), self._part("valid")
        assert train is not None, "there is a training part"
        if valid is None and train_fraction < 1:
            train, valid = self.source.split(train_fraction, self.seed)
        sides = (self._stream(train, "train"), self._stream(valid or train, "valid"))
        for side in sides:
            next(side.once())  # raises for what does not fit
        return sides

    def pair(self, train: Stream, valid: Stream) -> PairedStreams:
        """Both sides of a search, batch by batch."""
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
        """Look at the first batches, so that what does not fit is said before training."""
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
