"""OLES: operation-level early stopping (Jiang et al. 2023, NeurIPS)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from nas_lightning.checks import PositiveInt, at_least, at_most, checked
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.freezing.matching import GradientMatching
from nas_lightning.strategies.oneshot.papers.bilevel import Bilevel


class Oles(Bilevel):
    """DARTS whose operations learn no more once they overfit.

    Args:
        space: the search space.
        supernet: its supernet.
        threshold: of the mean cosine; for this and the next see `GradientMatching`.
        steps: that it is the mean of.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> Oles(space, supernet).label
    'Oles'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Softmax + GradientMatching",)

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        threshold: Annotated[float, at_least(-1), at_most(1)] = 0.4,
        steps: PositiveInt = 20,
        **bilevel: Any,
    ) -> None:
        super().__init__(space, supernet, freezing=GradientMatching(threshold, steps), **bilevel)
