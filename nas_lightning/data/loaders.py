"""Loaders whose position is saved and restored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from nas_lightning.data.augment import Augment, normalize
from nas_lightning.data.batches import Batch
from nas_lightning.data.order import AUGMENT, PLAIN, BatchRows, evaluation_rows, rank_and_world, training_rows
from nas_lightning.data.streams import Stream
from nas_lightning.errors import InputError
from nas_lightning.utils.randomness import generator, seed_of

# Labeled images that draws are read from; `files.py` has the ones that stay on disk.


class Samples(ABC):
    """Images as bytes, all of one shape, and their labels."""

    labels: Tensor  # (n,)
    image: tuple[int, int, int]

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, row: int) -> str:
        """What an image is called: its file's name, where it has one."""
        return f"image {row}"

    @abstractmethod
    def select(self, rows: Tensor) -> Samples:
        """The samples of these rows, in this order; images are shared, not copied."""

    @abstractmethod
    def read(self, draws: Iterable[BatchRows], *, random: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """(b, c, h, w) bytes and (b,) labels of each draw; `random` for images that are augmented as read."""

    def in_memory(self) -> Samples:
        """The same samples, ready to be drawn from without further reading where that is possible."""
        return self


class TensorSamples(Samples):
    """Images in memory: (n, c, h, w) bytes.

    Args:
        images: bytes: (n, c, h, w).
        labels: of the chosen rows: (rows,).
        rows: which of the images; None: all.
        names: of all images; None: their numbers.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        rows: Tensor | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """`labels` are those of the chosen `rows` of the images; by default of all."""
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


# Loaders that only evaluate: every sample once, and each process has its share.


class EvalLoader:
    """Every sample exactly once, in order and without augmentation; each process reads its own share.

    Args:
        samples: some of a data set.
        batch_size: images of a batch of one process.
        mean: of each channel, as a fraction of the largest value.
        std: of each channel, as a fraction of the largest value.
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
    """Every batch of a pass once; of several processes each has its share of every batch.

    Args:
        stream: whose batches.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __len__(self) -> int:
        """Raises TypeError where nobody knows."""
        return len(self.stream) * rank_and_world()[1]

    def __iter__(self) -> Iterator[Batch]:
        rank, world = rank_and_world()
        for x, y in self.stream.once():
            yield x[rank::world], y[rank::world]


# Loaders whose place can be saved: Lightning asks them for `state_dict` and tells them the epoch.
#
# They are no `torch.utils.data.DataLoader`, so Lightning leaves their order alone.

T = TypeVar("T", covariant=True)


class BatchSource(Protocol[T]):
    """What an `EpochLoader` hands out: any batch of any epoch, by its number."""

    def __len__(self) -> int:
        """Raises TypeError where nobody knows."""

    def batches(self, epoch: int, start: int, count: int | None = None) -> Iterator[T]:
        """`count` batches from number `start`; None: to the end of the epoch."""


class TrainBatches:
    """Shuffled, augmented batches of one set; the last incomplete one is dropped.

    Args:
        samples: some of a data set.
        batch_size: images of a batch of one process.
        seed: what the order and the augmentation follow from.
        augment: what is done to a batch; None: nothing.
        mean: of each channel, as a fraction of the largest value.
        std: of each channel, as a fraction of the largest value.

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
            raise InputError(
                f"expected a batch of at most {len(self.samples)} samples", got=total, where=where
            )
        return len(self.samples) // total

    @property
    def images(self) -> int:
        """How many samples there are."""
        return len(self.samples)

    def batches(self, epoch: int, start: int, count: int | None = None) -> Iterator[Batch]:
        """`count` batches from number `start`; past the end of the set comes its next shuffled pass."""
        left = len(self) - start  # raises where the set has no full batch
        count = left if count is None else count
        size, (rank, world) = len(self.samples), rank_and_world()
        draws = list(training_rows(size, self.batch_size, self.seed, epoch, start, count, rank, world))
        read = self.samples.read(draws, random=self.augment is not None)
        for draw, (x, y) in zip(draws, read, strict=True):
            if self.augment is None:
                yield normalize(x, self.mean, self.std), y
                continue
            random = generator(AUGMENT, *draw.key)
            parameters = self.augment.parameters(draw.total, x.shape[2], x.shape[3], random)
            mine = parameters[draw.first : draw.first + len(x)]
            yield self.augment(x, mine, self.mean, self.std), y

    # Without augmentation, the same on every process

    def plain(self, count: int, seed: int = 0) -> list[Batch]:
        """`count` shuffled batches."""
        size = len(self.samples)
        if self.batch_size > size:
            raise InputError(f"expected a batch of at most {size} samples", got=self.batch_size)
        draws = training_rows(size, self.batch_size, seed_of(PLAIN, seed), 0, 0, count, 0, 1)
        return list(self._read(draws))

    def plain_images(self, count: int, seed: int = 0) -> Batch:
        """One batch of so many samples; fewer where there are fewer."""
        size = min(count, len(self.samples))
        draws = training_rows(len(self.samples), size, seed_of(PLAIN, seed), 0, 0, 1, 0, 1)
        return next(self._read(draws))

    def shuffled_pass(self, epoch: int, batch_size: int, seed: int) -> Iterator[Batch]:
        """Full batches of one pass, smaller ones where there are not as many samples."""
        size = len(self.samples)
        batch = min(batch_size, size)
        return self._read(training_rows(size, batch, seed, epoch, 0, size // batch, 0, 1))

    def whole_pass(self) -> Iterator[Batch]:
        """Every sample once, in order."""
        size = len(self.samples)
        return self._read(evaluation_rows(size, min(256, size), 0, 1))

    def _read(self, draws: Iterable[BatchRows]) -> Iterator[Batch]:
        for x, y in self.samples.read(list(draws), random=False):
            yield normalize(x, self.mean, self.std), y


class PairedBatches:
    """Two sources side by side; as many batches as the longer has, the shorter is reshuffled and goes on.

    Args:
        train: batches for the weights.
        valid: batches for the architecture.
    """

    def __init__(self, train: BatchSource[Batch], valid: BatchSource[Batch]) -> None:
        self.train, self.valid = train, valid

    def __len__(self) -> int:
        return max(len(self.train), len(self.valid))

    def batches(self, epoch: int, start: int, count: int | None = None) -> Iterator[dict[str, Batch]]:
        """`{"train": (x, y), "valid": (x, y)}`."""
        count = len(self) - start if count is None else count
        sides = (side.batches(epoch, start, count) for side in (self.train, self.valid))
        for train, valid in zip(*sides, strict=True):
            yield {"train": train, "valid": valid}


class EpochLoader(Generic[T]):
    """One epoch after the other of a source, from the place where a checkpoint left off.

    Lightning calls `set_epoch` through `sampler`, after it has asked for the iterator: the iterator therefore
    looks at the epoch when its first batch is asked for.

    Args:
        source: what gives any batch of any epoch by its number.
    """

    batch_sampler = None  # Lightning looks for one wherever there is a `sampler`

    def __init__(self, source: BatchSource[T]) -> None:
        self.source = source
        self.epoch = 0
        self._handed_out = 0
        self._resume_at = 0
        self._ended = False
        self._counted: int | None = None  # batches of an epoch whose length nobody else knows

    @property
    def sampler(self) -> EpochLoader[T]:
        """Where Lightning looks for `set_epoch`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next pass. One that a checkpoint broke off goes on, another begins."""
        if epoch != self.epoch:
            self.epoch, self._handed_out, self._resume_at = epoch, 0, 0

    def __len__(self) -> int:
        """Raises TypeError where nobody knows."""
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
        """The batches of an epoch; None where nobody knows."""
        try:
            return len(self)
        except TypeError:
            return None

    def state_dict(self) -> dict[str, int | None]:
        """The epoch, and how many of its batches were handed out and used."""
        length, ahead = self.length, 0
        if length is None and self._ended:
            length = self._handed_out
        elif length is None:
            ahead = min(self._handed_out, 1)  # Lightning looks for a next one
        return {"epoch": self.epoch, "batches": self._handed_out - ahead, "length": length}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was saved."""
        length = state["length"]
        if self.length is None and state["batches"] == length:
            self._counted = length
        unfinished = state["batches"] > 0 and (length is None or state["batches"] < length)
        if unfinished and length != self.length:
            raise InputError(
                f"expected epochs of {length} batches to go on within one",
                got=self.length,
                where="resume",
            )
        self.epoch = state["epoch"]
        self._handed_out = self._resume_at = state["batches"] if unfinished else 0
