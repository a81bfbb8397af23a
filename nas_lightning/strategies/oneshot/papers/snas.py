"""SNAS: stochastic neural architecture search (Xie et al. 2019, arXiv:1812.09926)."""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.checks import PositiveFloat, checked
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.arch_steps.single_level import SingleLevel
from nas_lightning.strategies.oneshot.papers.bilevel import Bilevel
from nas_lightning.strategies.oneshot.samplers.concrete import Concrete


class Snas(Bilevel):
    """Relaxed samples, and one loss for weights and architecture; give it all images: `train_fraction=1`.

    Args:
        space: the search space.
        supernet: its supernet.
        tau_start: τ in the first epoch.
        tau_end: and in the last; it falls linearly.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> Snas(space, supernet).label
    'Snas'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Concrete + SingleLevel",)

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        tau_start: PositiveFloat = 1.0,
        tau_end: PositiveFloat = 0.03,
        **bilevel: Any,
    ) -> None:
        sampler = Concrete(tau_start, tau_end)
        super().__init__(space, supernet, sampler=sampler, arch_step=SingleLevel(), **bilevel)
