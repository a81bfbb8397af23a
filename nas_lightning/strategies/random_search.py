"""An architecture drawn uniformly: what any search must beat, and what costs nothing."""

from __future__ import annotations

from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.strategies.base import Strategy


class RandomSearch(Strategy):
    """`count` distinct architectures, drawn uniformly; nothing is trained.

    >>> from nas_lightning.spaces import NasBench201
    >>> len(RandomSearch(NasBench201(), count=3).derive())
    3
    """

    def __init__(self, space: SearchSpace, *, count: int = 1, seed: int = 0) -> None:
        super().__init__(space, seed)
        found: dict[Genotype, None] = {}
        while len(found) < count:
            found[space.sample(self.generator)] = None
        self.found = list(found)

    def derive(self) -> list[Genotype]:
        return self.found

    def configure_optimizers(self) -> None:
        return None
