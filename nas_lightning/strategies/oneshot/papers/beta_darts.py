"""β-DARTS: beta-decay regularisation (Ye et al. 2022, arXiv:2203.01665)."""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.checks import NonNegativeFloat, checked
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.papers.bilevel import Bilevel
from nas_lightning.strategies.oneshot.regularisers.beta_decay import BetaDecay


class BetaDarts(Bilevel):
    """DARTS whose largest weights decay.

    Args:
        space: the search space.
        supernet: its supernet.
        weight_end: λ of the decay in the last epoch; it grows linearly from 0.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> BetaDarts(space, supernet).label
    'BetaDarts'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Softmax + BetaDecay",)

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        weight_end: NonNegativeFloat = 50.0,
        **bilevel: Any,
    ) -> None:
        super().__init__(space, supernet, regulariser=[BetaDecay(weight_end=weight_end)], **bilevel)
