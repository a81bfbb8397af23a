"""The user's loaders as streams of batches that depend only on the seed, the epoch, and the pass."""

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
from nas_lightning.errors import InputError
from nas_lightning.utils.processes import rank_and_world
from nas_lightning.utils.randomness import seed_of

# Isolated random states


class IsolatedRandomState:
    """A separate state of the global generators of torch, NumPy, and Python, within `with state():`.

    A loader draws its order, its samples, and its crops from the global generators. With a state of its own,
    other draws do not affect it, and a resumed run continues with the next batch.

    Args:
        seed: of the initial state.

    >>> state = IsolatedRandomState(0)
    >>> with state():
    ...     first = torch.rand(())
    >>> _ = torch.rand(())
    >>> with state():
    ...     second = torch.rand(())
    >>> torch.equal(torch.stack([first, second]), torch.rand(2, generator=torch.Generator().manual_seed(0)))
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.state: tuple[Any, ...] | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        outer = _get_state()
        _set_state(_seeded_state(self.seed) if self.state is None else self.state)
        try:
            yield
        finally:
            self.state = _get_state()
            _set_state(outer)


def _get_state() -> tuple[Any, ...]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _set_state(state: tuple[Any, ...]) -> None:
    torch.set_rng_state(state[0])
    np.random.set_state(state[1])
    random.setstate(state[2])


def _seeded_state(seed: int) -> tuple[Any, ...]:
    numpy_state = np.random.RandomState(seed % 2**32).get_state()
    return torch.Generator().manual_seed(seed).get_state(), numpy_state, random.Random(seed).getstate()


# Streams of batches

Read = Callable[[Any], Batch]
PASS, FIXED, LOOK = range(20, 23)  # purposes of passes, the first part of their keys


class Stream:
    """Passes over a loader; with several processes, each takes every n-th batch.

    Args:
        loader: can be iterated repeatedly; with a `DistributedSampler`, it distributes batches itself.
        read: converts a batch.
        seed: determines all that the loader draws.
        where: the name of the loader in messages.
        most: batches after which a pass ends, for loaders without an end; None: all.

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
            expected = "The loader must be an iterable that can be repeated, such as a DataLoader or a list"
            raise InputError(expected, got=type(loader).__name__, where=where)
        self.loader, self.read, self.seed, self.where, self.most = loader, read, seed, where, most
        self._seeds = [(generator, generator.initial_seed()) for generator in generators_of(loader)]

    def __len__(self) -> int:
        """The batches of a pass of one process; raises TypeError if unknown."""
        try:
            batches = len(self.loader) // self._shares()[1]  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):
            if self.most is None:
                raise TypeError(f"the length of {self.where} is unknown") from None
            return self.most
        return batches if self.most is None else min(self.most, batches)

    @property
    def images(self) -> int:
        """The samples of a pass on all processes; counted if the loader does not know."""
        for part in ("sampler", "dataset"):
            sized, world = getattr(self.loader, part, None), rank_and_world()[1] // self._shares()[1]
            if self.most is None and part == "sampler" and type(sized) is SequentialSampler:
                continue  # of a loader with a batch sampler
            try:
                whole = len(sized)  # type: ignore[arg-type]
            except (TypeError, NotImplementedError):
                continue
            if self.most is None:
                return whole * (world if isinstance(sized, DistributedSampler) else 1)
        return sum(len(y) for _, y in self.once())

    def batches(self, epoch: int, start: int, count: int | None = None) -> Iterator[Batch]:
        """Yield `count` batches from number `start`, pass after pass; None: the rest of the first pass."""
        passes = Passes(self, epoch)
        number = 0
        while number < start + count if count is not None else not passes.completed:
            batch = next(passes)
            if number >= start:
                yield batch
            number += 1

    def one_pass(self, *key: int) -> Iterator[Batch]:
        """Yield the batches of this process in the pass that the key and the seed determine."""
        rank, world = self._shares()
        for group in _groups(self._raw(*key, most=None if self.most is None else world * self.most), world):
            yield self.read(group[rank])

    def once(self, *key: int) -> Iterator[Batch]:
        """Yield all batches of one pass, the same on every process."""
        return map(self.read, self._raw(*(key or (LOOK,)), most=self.most))

    def plain(self, count: int, seed: int = 0) -> list[Batch]:
        """Return `count` fixed batches, the same on every process."""
        found: list[Batch] = []
        for number in range(count):  # passes of at least one batch
            found += islice(self.once(FIXED, seed, number), count - len(found))
        return found

    def plain_images(self, count: int, seed: int = 0) -> Batch:
        """Return one batch of `count` distinct samples, even if a sampler repeats some."""
        found: dict[bytes, tuple[Tensor, Tensor]] = {}
        for x, y in self.once(FIXED, seed, 0):
            before = len(found)
            for image, label in zip(x, y, strict=True):
                found.setdefault(image.cpu().numpy().tobytes(), (image, label))
            if len(found) >= count or len(found) == before:  # no new ones
                break
        images, labels = zip(*found.values(), strict=True)
        return torch.stack(images[:count]), torch.stack(labels[:count])

    def shuffled_pass(
        self, epoch: int, batch_size: int, seed: int, *, augment: bool = False
    ) -> Iterator[Batch]:
        """Yield the batches of one pass, of the loader's batch size."""
        if augment:
            raise InputError("`augment` must be false for external data", got=True, where="augment")
        return self.once(FIXED, seed, epoch, 0)

    def whole_pass(self) -> Iterator[Batch]:
        """Yield every sample of a pass."""
        return self.once()

    def _raw(self, *key: int, most: int | None) -> Iterator[Any]:
        """Yield the loader's batches of one pass, not yet converted."""
        random_state, number = IsolatedRandomState(seed_of(self.seed, *key)), 0
        with random_state():
            self._begin(key)
            batches = iter(self.loader)
        while most is None or number < most:
            with random_state():
                try:
                    batch = next(batches)
                except StopIteration:
                    break
            number += 1
            yield batch
        if not number:
            raise InputError("There must be at least one batch", where=self.where)

    def _begin(self, key: tuple[int, ...]) -> None:
        """Reseed the loader's own generators, and set the epoch of samplers."""
        for generator, seed in self._seeds:
            generator.manual_seed(seed_of(seed, *key))
        for part in parts_of(self.loader) if key[0] == PASS else ():
            set_epoch = getattr(part, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(key[1])

    def _shares(self) -> tuple[int, int]:
        """Return the number of this process among those that share the batches, and their number."""
        sampler = getattr(self.loader, "sampler", None)
        return (0, 1) if isinstance(sampler, DistributedSampler) else rank_and_world()


class Passes:
    """The batches of consecutive passes, without an end; `completed` counts finished passes.

    One batch is prefetched, so that a pass counts as completed when its last batch is returned.

    Args:
        stream: of the passes.
        epoch: part of the passes' keys.
    """

    def __init__(self, stream: Stream, epoch: int) -> None:
        self.stream, self.epoch, self.completed = stream, epoch, 0
        self._open: Iterator[Batch] | None = None
        self._prefetched: Batch | None = None

    def __iter__(self) -> Passes:
        return self

    def __next__(self) -> Batch:
        if self._open is None:
            self._open = self.stream.one_pass(PASS, self.epoch, self.completed)
            self._prefetched = next(self._open, None)
        batch, self._prefetched = self._prefetched, next(self._open, None)
        if batch is None:
            expected = "There must be at least one batch for each process"
            raise InputError(expected, got="fewer", where=self.stream.where)
        if self._prefetched is None:
            self._open, self.completed = None, self.completed + 1
        return batch


class PairedStreams:
    """Pairs of batches of two streams, until both passes or, with `shortest`, one of them is completed.

    Args:
        train: batches for the weights.
        valid: batches for the architecture; None: batches have the training side only.
        shortest: whether the shorter stream ends an epoch; otherwise it starts another pass.
    """

    def __init__(self, train: Stream, valid: Stream | None, *, shortest: bool = False) -> None:
        self.sides = {"train": train} if valid is None else {"train": train, "valid": valid}
        self.shortest = shortest

    def __len__(self) -> int:
        """Raises TypeError if the length is unknown."""
        return (min if self.shortest else max)(map(len, self.sides.values()))

    def batches(self, epoch: int, start: int, count: int | None = None) -> Iterator[dict[str, Batch]]:
        """Yield `{"train": (x, y), "valid": (x, y)}`; `count` None: until the epoch ends."""
        passes = {name: Passes(stream, epoch) for name, stream in self.sides.items()}
        ends = any if self.shortest else all
        number = 0
        while number < start + count if count is not None else not ends(p.completed for p in passes.values()):
            pair = {name: next(stream) for name, stream in passes.items()}
            if number >= start:
                yield pair
            number += 1


def parts_of(loader: Any) -> list[Any]:
    """Return a loader and its samplers and data set."""
    batches = getattr(loader, "batch_sampler", None)
    others = [getattr(loader, name, None) for name in ("sampler", "dataset")]
    parts = (loader, batches, getattr(batches, "sampler", None), *others)
    return [part for part in parts if part is not None]


def generators_of(loader: Any) -> list[torch.Generator]:
    """Return the loader's own generators, each once."""
    found = [getattr(part, "generator", None) for part in parts_of(loader)]
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())


def _groups(batches: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Yield groups of `size` batches; an incomplete last group is dropped."""
    while len(group := list(islice(batches, size))) == size:
        yield group
