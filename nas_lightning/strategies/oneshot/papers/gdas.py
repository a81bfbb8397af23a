"""GDAS: search by a differentiable sampler (Dong & Yang 2019, arXiv:1910.04465)."""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.checks import PositiveFloat, checked
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.papers.bilevel import Bilevel
from nas_lightning.strategies.oneshot.samplers.gumbel import Gumbel


class Gdas(Bilevel):
    """GDAS: a step costs what one path costs.

    Args:
        space: the search space.
        supernet: its supernet.
        tau_start: τ in the first epoch.
        tau_end: and in the last; it falls linearly.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> gdas = Gdas(space, space.supernet(in_channels=1, num_classes=2, channels=2, cells=1))
    >>> gdas.relax().active["cell"].sum(dim=1).tolist()
    [1, 1, 1, 1, 1, 1]
    """

    made_of: ClassVar[tuple[str, ...]] = ("Gumbel",)

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        tau_start: PositiveFloat = 10.0,
        tau_end: PositiveFloat = 0.1,
        **bilevel: Any,
    ) -> None:
        super().__init__(space, supernet, sampler=Gumbel(tau_start, tau_end), **bilevel)
