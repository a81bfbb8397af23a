"""Samples, and loaders whose position is part of checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from nas_lightning.data.augment import Augment, normalize
from nas_lightning.data.batches import Batch
from nas_lightning.data.order import AUGMENT, PLAIN, BatchRows, evaluation_rows, training_rows
from nas_lightning.data.streams import Stream
from nas_lightning.errors import InputError
from nas_lightning.utils.processes import rank_and_world
from nas_lightning.utils.randomness import generator, seed_of

# Samples; those on disk are in `files.py`


class Samples(ABC):
    """Labeled images as bytes, all of one shape."""

    labels: Tensor  # (n,)
    image: tuple[int, int, int]

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, row: int) -> str:
        """Return the name of an image for messages: that of its file, if it has one."""
        return f"image {row}"

    @abstractmethod
    def select(self, rows: Tensor) -> Samples:
        """Return the samples of these rows, in this order; images are shared, not copied."""

    @abstractmethod
    def read(self, draws: Iterable[BatchRows], *, random: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (b, c, h, w) bytes and (b,) labels of each batch; `random`: augmented while reading."""

    def in_memory(self) -> Samples:
        """Return the same samples in memory, if they fit."""
        return self


class TensorSamples(Samples):
    """Images in memory: (n, c, h, w) bytes.

    Args:
        images: bytes: (n, c, h, w).
        labels: of the selected rows: (rows,).
        rows: selected images; None: all.
        names: of all images; None: their numbers.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        rows: Tensor | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.images, self.names = images, names
        self.labels = labels.long()
        self.rows = torch.arange(len(images)) if rows is None else rows
        _, channels, height, width = images.shape
        self.image = (channels, height, width)

    def name(self, row: int) -> str:
        return super().name(row) if self.names is None else self.names[int(self.rows[row])]

    def select(self, rows: Tensor) -> TensorSamples:
        return TensorSamples(self.images, self.labels[rows], self.rows[rows], self.names)

    def read(self, draws: Iterable[BatchRows], *, random: bool) -> Iterator[tuple[Tensor, Tensor]]:
        for draw in draws:
            yield self.images.index_select(0, self.rows[draw.rows]), self.labels[draw.rows]


# Evaluation


class EvalLoader:
    """Every sample exactly once, in order and without augmentation; each process reads its share.

    Args:
        samples: of a data set.
        batch_size: images per batch and process.
        mean: of each channel, for pixels from 0 to 1.
        std: of each channel, for pixels from 0 to 1.
    """

    def __init__(
        self, samples: Samples, batch_size: int, mean: tuple[float, ...], std: tuple[float, ...]
    ) -> None:
        self.samples, self.batch_size, self.mean, self.std = samples, batch_size, mean, std

    def __len__(self) -> int:
        return len(evaluation_rows(len(self.samples), self.batch_size, *rank_and_world()))

    def __iter__(self) -> Iterator[Batch]:
        draws = evaluation_rows(len(self.samples), self.batch_size, *rank_and_world())
        for x, y in self.samples.read(draws, random=False):
            yield normalize(x, self.mean, self.std), y


class SharedBatches:
    """Every batch of a pass once; each process has its share of every batch.

    Args:
        stream: of batches.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __len__(self) -> int:
        """Raises TypeError if the length is unknown."""
        return len(self.stream) * rank_and_world()[1]

    def __iter__(self) -> Iterator[Batch]:
        rank, world = rank_and_world()
        for x, y in self.stream.once():
            yield x[rank::world], y[rank::world]


# Training
#
# These loaders are not `torch.utils.data.DataLoader`s, so Lightning does not replace their samplers. It saves
# their `state_dict` and calls `set_epoch`.

T = TypeVar("T", covariant=True)


class BatchSource(Protocol[T]):
    """The batches of an `EpochLoader`: any batch of any epoch, by its number."""

    def __len__(self) -> int:
        """Raises TypeError if the length is unknown."""

    def batches(self, epoch: int, start: int, count: int | None = None) -> Iterator[T]:
        """Yield `count` batches from number `start`; None: to the end of the epoch."""


class TrainBatches:
    """Shuffled, augmented batches of one set; the last incomplete one is dropped.

    Args:
        samples: of a data set.
        batch_size: images per batch and process.
        seed: determines the order and the augmentation.
        augment: the augmentation of a batch; None: none.
        mean: of each channel, for pixels from 0 to 1.
        std: of each channel, for pixels from 0 to 1.

    >>> import torch
    >>> from nas_lightning.data.loaders import TensorSamples
    >>> samples = TensorSamples(torch.zeros(10, 1, 2, 2, dtype=torch.uint8), torch.arange(10))
    >>> source = TrainBatches(samples, batch_size=4, seed=0, augment=None, mean=(0.0,), std=(1.0,))
    >>> len(source), [len(y) for _, y in source.batches(epoch=0, start=0, count=2)]
    (2, [4, 4])
    """

    def __init__(
        self,
        samples: Samples,
        *,
        batch_size: int,
        seed: int,
        augment: Augment | None,
        mean: tuple[float, ...],
        std: tuple[float, ...],
    ) -> None:
        self.samples, self.batch_size, self.seed = samples, batch_size, seed
        self.augment, self.mean, self.std = augment, mean, std

    def __len__(self) -> int:
        _, world = rank_and_world()
        total = self.batch_size * world
        if total > len(self.samples):
            where = f"{world} × batch_size" if world > 1 else "batch_size"
            raise InputError(f"A batch can have at most {len(self.samples)} samples", got=total, where=where)
        return len(self.samples) // total

    @property
    def images(self) -> int:
        """The number of samples."""
        return len(self.samples)

    def batches(self, epoch: int, start: int, count: int | None = None) -> Iterator[Batch]:
        """Yield `count` batches from number `start`; after the last one, the next shuffled pass begins."""
        left = len(self) - start  # raises if there is no full batch
        count = left if count is None else count
        size, (rank, world) = len(self.samples), rank_and_world()
        draws = training_rows(size, self.batch_size, self.seed, epoch, start, count, rank, world)
        return self._read(draws) if self.augment is None else self._read_augmented(draws, self.augment)

    # Batches that are the same on every process

    def plain(self, count: int, seed: int = 0) -> list[Batch]:
        """Return `count` shuffled batches."""
        size = len(self.samples)
        if self.batch_size > size:
            raise InputError(f"A batch can have at most {size} samples", got=self.batch_size)
        draws = training_rows(size, self.batch_size, seed_of(PLAIN, seed), 0, 0, count, 0, 1)
        return list(self._read(draws))

    def plain_images(self, count: int, seed: int = 0) -> Batch:
        """Return one batch of `count` samples, or of all if there are fewer."""
        size = min(count, len(self.samples))
        draws = training_rows(len(self.samples), size, seed_of(PLAIN, seed), 0, 0, 1, 0, 1)
        return next(self._read(draws))

    def shuffled_pass(
        self, epoch: int, batch_size: int, seed: int, *, augment: bool = False
    ) -> Iterator[Batch]:
        """Yield the full batches of one pass, smaller ones if there are fewer samples."""
        size = len(self.samples)
        batch = min(batch_size, size)
        draws = training_rows(size, batch, seed, epoch, 0, size // batch, 0, 1)
        augmentation = self.augment if augment else None
        return self._read(draws) if augmentation is None else self._read_augmented(draws, augmentation)

    def whole_pass(self) -> Iterator[Batch]:
        """Yield every sample once, in order."""
        size = len(self.samples)
        return self._read(evaluation_rows(size, min(256, size), 0, 1))

    def _read(self, draws: Iterable[BatchRows]) -> Iterator[Batch]:
        for x, y in self.samples.read(list(draws), random=False):
            yield normalize(x, self.mean, self.std), y

    def _read_augmented(self, draws: Iterable[BatchRows], augment: Augment) -> Iterator[Batch]:
        draws = list(draws)
        for draw, (x, y) in zip(draws, self.samples.read(draws, random=True), strict=True):
            random = generator(AUGMENT, *draw.key)
            parameters = augment.parameters(draw.total, x.shape[2], x.shape[3], random)
            mine = parameters[draw.first : draw.first + len(x)]
            yield augment(x, mine, self.mean, self.std), y


class PairedBatches:
    """Pairs of batches of two sources, as many as the longer has; the shorter is reshuffled and repeated.

    Args:
        train: batches for the weights.
        valid: batches for the architecture.
    """

    def __init__(self, train: BatchSource[Batch], valid: BatchSource[Batch]) -> None:
        self.train, self.valid = train, valid

    def __len__(self) -> int:
        return max(len(self.train), len(self.valid))

    def batches(self, epoch: int, start: int, count: int | None = None) -> Iterator[dict[str, Batch]]:
        """Yield `{"train": (x, y), "valid": (x, y)}`."""
        count = len(self) - start if count is None else count
        sides = (side.batches(epoch, start, count) for side in (self.train, self.valid))
        for train, valid in zip(*sides, strict=True):
            yield {"train": train, "valid": valid}


class EpochLoader(Generic[T]):
    """The epochs of a source, one per pass, resumed at the position in a checkpoint.

    Lightning calls `set_epoch` through `sampler`, after it has created the iterator; therefore the iterator
    reads the epoch when its first batch is requested.

    Args:
        source: of batches by epoch and number.
    """

    batch_sampler = None  # Lightning expects it if there is a `sampler`

    def __init__(self, source: BatchSource[T]) -> None:
        self.source = source
        self.epoch = 0
        self._handed_out = 0
        self._resume_at = 0
        self._ended = False
        self._counted: int | None = None  # batches of an epoch, if the source does not know its length

    @property
    def sampler(self) -> EpochLoader[T]:
        """The object whose `set_epoch` Lightning calls."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass; that of a restored checkpoint resumes, another one starts anew."""
        if epoch != self.epoch:
            self.epoch, self._handed_out, self._resume_at = epoch, 0, 0

    def __len__(self) -> int:
        """Raises TypeError if the length is unknown."""
        return len(self.source) if self._counted is None else self._counted

    def __iter__(self) -> Iterator[T]:
        start, self._resume_at = self._resume_at, 0
        self._handed_out, self._ended = start, False
        left = None if self.length is None else self.length - start
        for batch in self.source.batches(self.epoch, start, left):
            self._handed_out += 1
            yield batch
        self._ended = True

    @property
    def length(self) -> int | None:
        """The batches of an epoch; None if unknown."""
        try:
            return len(self)
        except TypeError:
            return None

    def state_dict(self) -> dict[str, int | None]:
        """Return the epoch and the number of its batches that were used."""
        length, prefetched = self.length, 0
        if length is None and self._ended:
            length = self._handed_out
        elif length is None:
            prefetched = min(self._handed_out, 1)  # Lightning fetches one batch ahead
        return {"epoch": self.epoch, "batches": self._handed_out - prefetched, "length": length}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at the position in `state`."""
        length = state["length"]
        if self.length is None and state["batches"] == length:
            self._counted = length
        unfinished = state["batches"] > 0 and (length is None or state["batches"] < length)
        if unfinished and length != self.length:
            raise InputError(
                f"To resume within an epoch, it must have {length} batches",
                got=self.length,
                where="resume",
            )
        self.epoch = state["epoch"]
        self._handed_out = self._resume_at = state["batches"] if unfinished else 0
