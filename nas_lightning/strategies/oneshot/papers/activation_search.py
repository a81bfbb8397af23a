"""DARTS as it searches activations and skips (Zhu et al. 2022, arXiv:2209.07238, section 5.1)."""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.papers.bilevel import Bilevel
from nas_lightning.strategies.oneshot.samplers.clipped_skips import ClippedSkips


class ActivationSearch(Bilevel):
    """First-order DARTS whose decisions between `none` and `skip_connect` are clipped weights.

    In spaces without such groups it is DARTS.

    Args:
        space: the search space.
        supernet: its supernet.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import Mlp
    >>> space = Mlp(layers=3)
    >>> search = ActivationSearch(space, space.supernet(in_channels=1, num_classes=2, width=4))
    >>> search.relax().weights["skip"].tolist()
    [[0.5, 0.5]]
    """

    made_of: ClassVar[tuple[str, ...]] = ("ClippedSkips",)

    def __init__(self, space: SearchSpace, supernet: Supernet, **bilevel: Any) -> None:
        super().__init__(space, supernet, sampler=ClippedSkips(), **bilevel)
