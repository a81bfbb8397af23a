"""Single Path One-Shot (Guo et al. 2020, arXiv:1904.00420)."""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.data import SearchData
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.samplers.uniform import Uniform
from nas_lightning.strategies.oneshot.selection.evolution import InheritedEvolution
from nas_lightning.strategies.oneshot.strategy import OneShot


class Spos(OneShot):
    """Uniform paths, then evolution over the shared weights.

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
    >>> Spos(space, supernet, SearchData(Digits())).label
    'Spos'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Uniform + InheritedEvolution",)

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
        super().__init__(space, supernet, data, sampler=Uniform(), selection=selection, **one_shot)
