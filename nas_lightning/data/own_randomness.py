"""The generators that a stranger's loader draws from, at a place of its own.

Whatever a loader draws (its order, a sampler's choice, random crops) comes from the global generators of
torch, NumPy and Python. A seed decides here where they stand while it works: what training draws in between
changes nothing, and a run that was stopped goes on with the batch that came next.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


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
