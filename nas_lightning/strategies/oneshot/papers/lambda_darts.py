"""Λ-DARTS: cells that agree on what operations are worth (Movahedi et al. 2023, arXiv:2210.07998)."""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.checks import NonNegativeFloat, checked
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.papers.bilevel import Bilevel
from nas_lightning.strategies.oneshot.regularisers.layer_alignment import LayerAlignment


class LambdaDarts(Bilevel):
    """DARTS whose supernet learns to have cells with like gradients for the architecture.

    Args:
        space: the search space.
        supernet: its supernet.
        weight_end: λ in the last epoch.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> LambdaDarts(space, supernet).label
    'LambdaDarts'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Softmax + LayerAlignment",)

    @checked
    def __init__(
        self, space: SearchSpace, supernet: Supernet, *, weight_end: NonNegativeFloat = 0.125, **bilevel: Any
    ) -> None:
        regulariser = [LayerAlignment(weight_end=weight_end)]
        super().__init__(space, supernet, regulariser=regulariser, **bilevel)
