"""What SPOS and FairNAS have in common: a supernet that paths train and evolution searches."""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.data import SearchData
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.samplers.uniform import Paths
from nas_lightning.strategies.oneshot.selection.evolution import InheritedEvolution
from nas_lightning.strategies.oneshot.strategy import OneShot


class SinglePath(OneShot):
    """Base of the papers that differ in which paths they train.

    Args:
        space: the search space.
        supernet: its supernet.
        data: where the validation images come from.
        population: architectures that are judged in each generation.
        generations: how many.
        **one_shot: see `OneShot`.
    """

    path_sampler: ClassVar[Paths]

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
        super().__init__(space, supernet, data, sampler=self.path_sampler, selection=selection, **one_shot)
