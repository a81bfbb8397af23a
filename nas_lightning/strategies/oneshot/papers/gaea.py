"""GAEA: geometry-aware exponentiated gradient (Li et al. 2021, arXiv:2004.07802)."""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.arch_steps.first_order import FirstOrder
from nas_lightning.strategies.oneshot.arch_steps.single_level import SingleLevel
from nas_lightning.strategies.oneshot.samplers.simplex import Simplex
from nas_lightning.strategies.oneshot.strategy import OneShot


class Gaea(OneShot):
    """GAEA on the supernet of DARTS.

    Args:
        space: the search space.
        supernet: its supernet.
        single_level: descend L_train for weights and architecture in one pass, as empirical risk minimisation
            (section 2.1), instead of L_val for the architecture. Give it all training images then:
            `search_data.train_fraction=1`.
        **one_shot: see `OneShot`; `arch_lr` is η.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> gaea = Gaea(space, space.supernet(in_channels=1, num_classes=2, channels=2, cells=1))
    >>> gaea.relax().weights["cell"][0].tolist() == [gaea.arch["cell"][0, 0]] * 5
    True
    """

    made_of: ClassVar[tuple[str, ...]] = ("Simplex", "Simplex + SingleLevel")

    def __init__(
        self, space: SearchSpace, supernet: Supernet, *, single_level: bool = False, **one_shot: Any
    ) -> None:
        step = SingleLevel() if single_level else FirstOrder()
        super().__init__(space, supernet, sampler=Simplex(), arch_step=step, **one_shot)
