"""An architecture drawn uniformly: what any search must beat, and what costs nothing."""

from __future__ import annotations

from typing import Any

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.sampling import draw_distinct
from nas_lightning.strategies.base import Strategy


class RandomSearch(Strategy):
    """`count` distinct architectures, drawn uniformly; nothing is trained.

    Args:
        space: the search space.
        count: how many.
        seed: of the draws.

    >>> from nas_lightning.spaces import NasBench201
    >>> len(RandomSearch(NasBench201(), count=3).derive())
    3
    """

    @checked
    def __init__(self, space: SearchSpace, *, count: PositiveInt = 1, seed: int = 0) -> None:
        super().__init__(space, seed)
        self.architectures = draw_distinct(space, count, self.generator)

    def derive(self) -> list[Genotype]:
        return self.architectures

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
