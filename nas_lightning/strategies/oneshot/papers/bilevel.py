"""What the papers whose parameters Adam descends have in common."""

from __future__ import annotations

from typing import Any

from nas_lightning.checks import NonNegativeFloat, Share, checked
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.arch_steps.adam import Adam
from nas_lightning.strategies.oneshot.strategy import OneShot


class Bilevel(OneShot):
    """A composition whose architecture parameters Adam descends.

    Args:
        space: the search space.
        supernet: its supernet.
        arch_betas: Adam's.
        arch_weight_decay: of the architecture parameters.
        **one_shot: see `OneShot`.
    """

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        arch_betas: tuple[Share, Share] = (0.5, 0.999),
        arch_weight_decay: NonNegativeFloat = 1e-3,
        **one_shot: Any,
    ) -> None:
        optimizer = Adam(betas=arch_betas, weight_decay=arch_weight_decay)
        super().__init__(space, supernet, arch_optimizer=optimizer, **one_shot)
