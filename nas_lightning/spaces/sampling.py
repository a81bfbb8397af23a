"""Architectures drawn at random."""

from __future__ import annotations

import torch

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace

_MOST_REPEATS = 100_000  # in a row: that many, and nothing new is left to be found


def draw_distinct(space: SearchSpace, count: int, generator: torch.Generator) -> list[Genotype]:
    """`count` architectures, each another, uniformly drawn."""
    if count < 1:
        raise InputError("expected at least one architecture", got=count, where="strategy.count")
    distinct: dict[Genotype, None] = {}
    repeats = 0  # in a row
    while len(distinct) < count:
        genotype = space.sample(generator)
        repeats = repeats + 1 if genotype in distinct else 0
        if repeats > _MOST_REPEATS:
            raise InputError(
                f"expected a count that the space has: found {len(distinct)}",
                got=count,
                where="strategy.count",
            )
        distinct[genotype] = None
    return list(distinct)


def draw_some(space: SearchSpace, count: int, generator: torch.Generator) -> list[Genotype]:
    """Distinct architectures of four draws for each, at most `count`: all or nearly all of a small space.

    >>> from nas_lightning.spaces import TwoLayer
    >>> len(draw_some(TwoLayer(["relu", "tanh"]), 100, torch.Generator().manual_seed(0)))
    2
    """
    distinct: dict[Genotype, None] = {}
    for _ in range(4 * count):
        distinct[space.sample(generator)] = None
        if len(distinct) == count:
            break
    return list(distinct)
