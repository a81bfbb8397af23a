"""FairNAS: strict fairness (Chu et al. 2021, arXiv:1907.01845)."""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.data import SearchData
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.samplers.fair import Fair
from nas_lightning.strategies.oneshot.selection.evolution import InheritedEvolution
from nas_lightning.strategies.oneshot.strategy import OneShot


class FairNas(OneShot):
    """Paths that train every operation equally often, then evolution over the shared weights.

    Args:
        space: the search space.
        supernet: its supernet.
        data: where the validation images come from.
        population: architectures that are judged in each generation.
        generations: how many.
        **one_shot: see `OneShot`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> FairNas(space, supernet, SearchData(Digits())).label
    'FairNas'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Fair + InheritedEvolution",)

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        data: SearchData,
        *,
        population: PositiveInt = 20,
        generations: PositiveInt = 5,
        **one_shot: Any,
    ) -> None:
        selection = InheritedEvolution(population, generations)
        super().__init__(space, supernet, data, sampler=Fair(), selection=selection, **one_shot)
