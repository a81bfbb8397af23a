"""DARTS: differentiable architecture search (Liu et al. 2019, arXiv:1806.09055)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from nas_lightning.checks import checked
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.arch_steps.first_order import FirstOrder
from nas_lightning.strategies.oneshot.arch_steps.second_order import SecondOrder
from nas_lightning.strategies.oneshot.papers.bilevel import Bilevel


class Darts(Bilevel):
    """A softmax; first or second order (section 2.3).

    Args:
        space: the search space.
        supernet: its supernet.
        order: 1 differentiates L_val(w, β), 2 differentiates L_val(w'(β), β) through a step of w.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> darts = Darts(space, space.supernet(in_channels=1, num_classes=2, channels=2, cells=1), order=2)
    >>> len(darts.derive())
    1
    """

    made_of: ClassVar[tuple[str, ...]] = ("Softmax", "Softmax + SecondOrder")

    @checked
    def __init__(
        self, space: SearchSpace, supernet: Supernet, *, order: Literal[1, 2] = 1, **bilevel: Any
    ) -> None:
        super().__init__(space, supernet, arch_step=FirstOrder() if order == 1 else SecondOrder(), **bilevel)
