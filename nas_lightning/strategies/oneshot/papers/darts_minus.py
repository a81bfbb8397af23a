"""DARTS−: an auxiliary skip connection (Chu et al. 2021, arXiv:2009.01027)."""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.checks import NonNegativeFloat, checked
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.connections.auxiliary_skip import AuxiliarySkip
from nas_lightning.strategies.oneshot.papers.bilevel import Bilevel


class DartsMinus(Bilevel):
    """DARTS with a skip connection beside every edge, which fades out.

    Args:
        space: the search space.
        supernet: its supernet.
        start: the connection's weight in the first epoch; it falls linearly to 0.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> DartsMinus(space, supernet).label
    'DartsMinus'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Softmax + AuxiliarySkip",)

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        start: NonNegativeFloat = 1.0,
        **bilevel: Any,
    ) -> None:
        super().__init__(space, supernet, auxiliary=AuxiliarySkip(start), **bilevel)
