"""FairDARTS: independent operations (Chu et al. 2020, arXiv:1911.12126)."""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.checks import NonNegativeFloat, checked
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.papers.bilevel import Bilevel
from nas_lightning.strategies.oneshot.regularisers.zero_one import ZeroOne
from nas_lightning.strategies.oneshot.samplers.sigmoid import Sigmoid


class FairDarts(Bilevel):
    """A sigmoid for every operation, pulled to zero or one.

    Args:
        space: the search space.
        supernet: its supernet.
        zero_one: weight of L_01.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> fair = FairDarts(space, space.supernet(in_channels=1, num_classes=2, channels=2, cells=1))
    >>> round(float(fair.relax().weights["cell"].detach().mean()), 2)
    0.5
    """

    made_of: ClassVar[tuple[str, ...]] = ("Sigmoid + ZeroOne",)

    @checked
    def __init__(
        self, space: SearchSpace, supernet: Supernet, *, zero_one: NonNegativeFloat = 10.0, **bilevel: Any
    ) -> None:
        super().__init__(space, supernet, sampler=Sigmoid(), regulariser=[ZeroOne(zero_one)], **bilevel)
