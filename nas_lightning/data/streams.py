"""A user's own loader as a stream of batches that depends only on the seed, the epoch, and the pass."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DistributedSampler, SequentialSampler

from nas_lightning.data.batches import Batch
from nas_lightning.data.order import rank_and_world
from nas_lightning.errors import InputError
from nas_lightning.utils.randomness import seed_of

# The generators that a stranger's loader draws from, at a place of its own.
#
# Whatever a loader draws (its order, a sampler's choice, random crops) comes from the global generators of
# torch, NumPy and Python. A seed decides here where they stand while it works: what training draws in between
# changes nothing, and a run that was stopped goes on with the batch that came next.


class OwnRandomness:
    """The global generators at a place of their own, which goes on where it was left.

    Args:
        seed: where it begins.

    >>> own = OwnRandomness(0)
    >>> with own():
    ...     first = torch.rand(())
    >>> _ = torch.rand(())
    >>> with own():
    ...     second = torch.rand(())
    >>> torch.equal(torch.stack([first, second]), torch.rand(2, generator=torch.Generator().manual_seed(0)))
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.place: tuple[Any, ...] | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        outside = _place()
        _go_to(_start(self.seed) if self.place is None else self.place)
        try:
            yield
        finally:
            self.place = _place()
            _go_to(outside)


def _place() -> tuple[Any, ...]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _go_to(place: tuple[Any, ...]) -> None:
    torch.set_rng_state(place[0])
    np.random.set_state(place[1])
    random.setstate(place[2])


def _start(seed: int) -> tuple[Any, ...]:
    numpys = np.random.RandomState(seed % 2**32).get_state()
    return torch.Generator().manual_seed(seed).get_state(), numpys, random.Random(seed).getstate()


# A stranger's loader as a stream of batches that a seed, the epoch and the number of the pass decide.

Read = Callable[[Any], Batch]
PASS, FIXED, LOOK = range(20, 23)  # what a pass is for, the first part of its key


class Stream:
    """One pass after the other over a loader; of several processes each has every so many-th batch.

    Args:
        loader: whatever can be iterated over anew; with a `DistributedSampler` it deals out batches itself.
        read: what becomes of a batch.
        seed: what all that the loader draws follows from.
        where: what the loader is, for messages.
        most: batches after which a pass ends, such as one over a stream without an end; None: all.

    >>> batches = [(torch.zeros(2, 1), torch.zeros(2)), (torch.ones(2, 1), torch.ones(2))]
    >>> stream = Stream(batches, read=tuple, seed=0)
    >>> len(stream), [int(y[0]) for _, y in stream.batches(epoch=0, start=1, count=2)]
    (2, [1, 0])
    """

    def __init__(
        self,
        loader: Iterable[Any],
        read: Read,
        seed: int,
        where: str = "the loader",
        most: int | None = None,
    ) -> None:
        if isinstance(loader, Iterator) or not hasattr(loader, "__iter__"):
            expected = "expected a loader to pass over more than once, such as a DataLoader or a list"
            raise InputError(expected, got=type(loader).__name__, where=where)
        self.loader, self.read, self.seed, self.where, self.most = loader, read, seed, where, most
        self._seeds = [(own, own.initial_seed()) for own in generators_of(loader)]

    def __len__(self) -> int:
        """The batches of a pass of one process; raises TypeError where nobody knows."""
        try:
            batches = len(self.loader) // self._shares()[1]  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):
            if self.most is None:
                raise TypeError(f"nobody knows the length of {self.where}") from None
            return self.most
        return batches if self.most is None else min(self.most, batches)

    @property
    def images(self) -> int:
        """How many samples a pass has, of all processes; they are counted where nobody knows."""
        for part in ("sampler", "dataset"):
            sized, world = getattr(self.loader, part, None), rank_and_world()[1] // self._shares()[1]
            if self.most is None and part == "sampler" and type(sized) is SequentialSampler:
                continue  # what a loader with a batch sampler has
            try:
                whole = len(sized)  # type: ignore[arg-type]
            except (TypeError, NotImplementedError):
                continue
            if self.most is None:
                return whole * (world if isinstance(sized, DistributedSampler) else 1)
        return sum(len(y) for _, y in self.once())

    def batches(self, epoch: int, start: int, count: int | None = None) -> Iterator[Batch]:
        """`count` batches from number `start`, pass after pass; None: what is left of the first pass."""
        passes = Passes(self, epoch)
        number = 0
        while number < start + count if count is not None else not passes.completed:
            batch = next(passes)
            if number >= start:
                yield batch
            number += 1

    def one_pass(self, *key: int) -> Iterator[Batch]:
        """The batches that this process has of a pass that the key and the seed decide."""
        rank, world = self._shares()
        for group in _groups(self._raw(*key, most=None if self.most is None else world * self.most), world):
            yield self.read(group[rank])

    def once(self, *key: int) -> Iterator[Batch]:
        """All batches of one pass, the same on every process."""
        return map(self.read, self._raw(*(key or (LOOK,)), most=self.most))

    def plain(self, count: int, seed: int = 0) -> list[Batch]:
        """`count` batches, the same on every process and whenever they are asked for."""
        found: list[Batch] = []
        for number in range(count):  # passes, of one batch at least
            found += islice(self.once(FIXED, seed, number), count - len(found))
        return found

    def plain_images(self, count: int, seed: int = 0) -> Batch:
        """So many samples as one batch, no two the same even where a sampler repeats them."""
        found: dict[bytes, tuple[Tensor, Tensor]] = {}
        for x, y in self.once(FIXED, seed, 0):
            before = len(found)
            for image, label in zip(x, y, strict=True):
                found.setdefault(image.cpu().numpy().tobytes(), (image, label))
            if len(found) >= count or len(found) == before:  # or it begins anew
                break
        images, labels = zip(*found.values(), strict=True)
        return torch.stack(images[:count]), torch.stack(labels[:count])

    def shuffled_pass(self, epoch: int, batch_size: int, seed: int) -> Iterator[Batch]:
        """One pass with batches of the loader's own size."""
        return self.once(FIXED, seed, epoch, 0)

    def whole_pass(self) -> Iterator[Batch]:
        """Every sample that a pass has."""
        return self.once()

    def _raw(self, *key: int, most: int | None) -> Iterator[Any]:
        """A pass as the loader gives it."""
        own, number = OwnRandomness(seed_of(self.seed, *key)), 0
        with own():
            self._begin(key)
            batches = iter(self.loader)
        while most is None or number < most:
            with own():
                try:
                    batch = next(batches)
                except StopIteration:
                    break
            number += 1
            yield batch
        if not number:
            raise InputError("expected at least one batch", got="none", where=self.where)

    def _begin(self, key: tuple[int, ...]) -> None:
        """Generators of the loader's own begin anew from their user's seed; samplers are told the epoch."""
        for own, seed in self._seeds:
            own.manual_seed(seed_of(seed, *key))
        for part in parts_of(self.loader) if key[0] == PASS else ():
            set_epoch = getattr(part, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(key[1])

    def _shares(self) -> tuple[int, int]:
        """The number of this process and how many the batches are dealt out to."""
        sampler = getattr(self.loader, "sampler", None)
        return (0, 1) if isinstance(sampler, DistributedSampler) else rank_and_world()


class Passes:
    """Batches without an end, one pass after the other; `completed` says how many are over.

    It looks one batch ahead, so that the last batch of a pass is known as such when it is handed out.

    Args:
        stream: what is passed over.
        epoch: which passes of it.
    """

    def __init__(self, stream: Stream, epoch: int) -> None:
        self.stream, self.epoch, self.completed = stream, epoch, 0
        self._open: Iterator[Batch] | None = None
        self._ahead: Batch | None = None

    def __iter__(self) -> Passes:
        return self

    def __next__(self) -> Batch:
        if self._open is None:
            self._open = self.stream.one_pass(PASS, self.epoch, self.completed)
            self._ahead = next(self._open, None)
        batch, self._ahead = self._ahead, next(self._open, None)
        if batch is None:
            expected = "expected at least one batch for each process"
            raise InputError(expected, got="fewer", where=self.stream.where)
        if self._ahead is None:
            self._open, self.completed = None, self.completed + 1
        return batch


class PairedStreams:
    """Two streams side by side, until both were passed once or, with `shortest`, one of them was.

    Args:
        train: batches for the weights.
        valid: batches for the architecture.
        shortest: whether the shorter stream ends an epoch; otherwise it goes on with a further pass.
    """

    def __init__(self, train: Stream, valid: Stream, *, shortest: bool = False) -> None:
        self.train, self.valid, self.shortest = train, valid, shortest

    def __len__(self) -> int:
        """Raises TypeError where nobody knows."""
        return (min if self.shortest else max)(len(self.train), len(self.valid))

    def batches(self, epoch: int, start: int, count: int | None = None) -> Iterator[dict[str, Batch]]:
        """`{"train": (x, y), "valid": (x, y)}`; with no `count` until the epoch ends."""
        train, valid = Passes(self.train, epoch), Passes(self.valid, epoch)
        ends = any if self.shortest else all
        number = 0
        while number < start + count if count is not None else not ends((train.completed, valid.completed)):
            pair = {"train": next(train), "valid": next(valid)}
            if number >= start:
                yield pair
            number += 1


def parts_of(loader: Any) -> list[Any]:
    """A loader and what it draws with."""
    batches = getattr(loader, "batch_sampler", None)
    others = [getattr(loader, name, None) for name in ("sampler", "dataset")]
    parts = (loader, batches, getattr(batches, "sampler", None), *others)
    return [part for part in parts if part is not None]


def generators_of(loader: Any) -> list[torch.Generator]:
    """The generators of a loader's own, each once."""
    found = [getattr(part, "generator", None) for part in parts_of(loader)]
    return list({id(own): own for own in found if isinstance(own, torch.Generator)}.values())


def _groups(batches: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """So many batches at a time; what is left over at the end is left out."""
    while len(group := list(islice(batches, size))) == size:
        yield group
