"""An architecture drawn uniformly: what any search must beat, and what costs nothing."""

from __future__ import annotations

from typing import Any

import torch

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.strategies.base import Strategy

_REPEATS = 100_000  # in a row: that many, and nothing new is left to be found


class RandomSearch(Strategy):
    """`count` distinct architectures, drawn uniformly; nothing is trained.

    >>> from nas_lightning.spaces import NasBench201
    >>> len(RandomSearch(NasBench201(), count=3).derive())
    3
    """

    def __init__(self, space: SearchSpace, *, count: int = 1, seed: int = 0) -> None:
        super().__init__(space, seed)
        self.found = distinct(space, count, self.generator)

    def derive(self) -> list[Genotype]:
        return self.found

    def setup(self, stage: str) -> None:
        if self.trainer.world_size > 1:
            raise InputError(
                "expected one process, for a search that trains nothing",
                got=self.trainer.world_size,
                where="trainer.devices",
            )

    def training_step(self, *args: Any) -> None:
        """Nothing; Lightning fits no module without one."""

    def configure_optimizers(self) -> None:
        return None


def distinct(space: SearchSpace, count: int, generator: torch.Generator) -> list[Genotype]:
    """`count` architectures, each another, uniformly drawn."""
    if count < 1:
        raise InputError("expected at least one architecture", got=count, where="strategy.count")
    found: dict[Genotype, None] = {}
    repeats = 0  # in a row
    while len(found) < count:
        genotype = space.sample(generator)
        repeats = repeats + 1 if genotype in found else 0
        if repeats > _REPEATS:
            raise InputError(
                f"expected a count that the space has: found {len(found)}", got=count, where="strategy.count"
            )
        found[genotype] = None
    return list(found)
