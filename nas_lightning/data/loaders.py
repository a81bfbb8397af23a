"""Loaders whose place can be saved: Lightning asks them for `state_dict` and tells them the epoch.

They are no `torch.utils.data.DataLoader`, so Lightning leaves their order alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor

from nas_lightning.data.augment import Augment, normalise
from nas_lightning.data.order import AUGMENT, PLAIN, evaluation_rows, rank_and_world, training_rows
from nas_lightning.data.samples import Samples
from nas_lightning.errors import InputError
from nas_lightning.randomness import generator, seed_of

Batch = tuple[Tensor, Tensor]  # (b, c, h, w) floats and (b,) labels
T = TypeVar("T", covariant=True)


class BatchSource(Protocol[T]):
    """What an `EpochLoader` hands out: any batch of any epoch, by its number."""

    def __len__(self) -> int: ...

    def batches(self, epoch: int, start: int, count: int) -> Iterator[T]: ...


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
    >>> from nas_lightning.data.samples import TensorSamples
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

    def batches(self, epoch: int, start: int, count: int) -> Iterator[Batch]:
        """`count` batches from number `start`; past the end of the set comes its next shuffled pass."""
        len(self)  # raises where the set has no full batch
        size, (rank, world) = len(self.samples), rank_and_world()
        draws = list(training_rows(size, self.batch_size, self.seed, epoch, start, count, rank, world))
        read = self.samples.read(draws, random=self.augment is not None)
        for draw, (x, y) in zip(draws, read, strict=True):
            if self.augment is None:
                yield normalise(x, self.mean, self.std), y
                continue
            random = generator(AUGMENT, *draw.key)
            parameters = self.augment.parameters(draw.total, x.shape[2], x.shape[3], random)
            mine = parameters[draw.first : draw.first + len(x)]
            yield self.augment(x, mine, self.mean, self.std), y


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

    def batches(self, epoch: int, start: int, count: int) -> Iterator[dict[str, Batch]]:
        """`{"train": (x, y), "valid": (x, y)}`."""
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

    @property
    def sampler(self) -> EpochLoader[T]:
        """Where Lightning looks for `set_epoch`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next pass. One that a checkpoint broke off goes on, another begins."""
        if epoch != self.epoch:
            self.epoch, self._handed_out, self._resume_at = epoch, 0, 0

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[T]:
        start, self._resume_at = self._resume_at, 0
        self._handed_out = start
        for batch in self.source.batches(self.epoch, start, len(self) - start):
            self._handed_out += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """The epoch, and how many of its batches were handed out."""
        return {"epoch": self.epoch, "batches": self._handed_out, "length": len(self)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was saved."""
        unfinished = 0 < state["batches"] < state["length"]
        if unfinished and state["length"] != len(self):
            raise InputError(
                f"expected epochs of {state['length']} batches to go on within one",
                got=len(self),
                where="resume",
            )
        self.epoch = state["epoch"]
        self._handed_out = self._resume_at = state["batches"] if unfinished else 0


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
            yield normalise(x, self.mean, self.std), y


def plain_batches(source: TrainBatches, count: int, seed: int) -> list[Batch]:
    """`count` shuffled batches without augmentation, the same on every process."""
    size = len(source.samples)
    if source.batch_size > size:
        raise InputError(f"expected a batch of at most {size} samples", got=source.batch_size)
    draws = training_rows(size, source.batch_size, seed_of(PLAIN, seed), 0, 0, count, 0, 1)
    read = source.samples.read(draws, random=False)
    return [(normalise(x, source.mean, source.std), y) for x, y in read]
