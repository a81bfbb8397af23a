"""DrNAS: Dirichlet neural architecture search (Chen et al. 2021, arXiv:2006.10355)."""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.checks import NonNegativeFloat, checked
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.papers.bilevel import Bilevel
from nas_lightning.strategies.oneshot.regularisers.anchor import Anchor
from nas_lightning.strategies.oneshot.samplers.dirichlet import Dirichlet


class DrNas(Bilevel):
    """Samples of a Dirichlet distribution, kept near the flat one.

    Args:
        space: the search space.
        supernet: its supernet.
        anchor: weight of the distance from it.
        arch_weight_decay: of the architecture parameters, which the anchor replaces.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    >>> DrNas(space, supernet).label
    'DrNas'
    """

    made_of: ClassVar[tuple[str, ...]] = ("Dirichlet + Anchor", "Dirichlet + Widening + Anchor")

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        anchor: NonNegativeFloat = 1e-3,
        arch_weight_decay: NonNegativeFloat = 0.0,
        **bilevel: Any,
    ) -> None:
        super().__init__(
            space,
            supernet,
            sampler=Dirichlet(),
            regulariser=[Anchor(anchor)],
            arch_weight_decay=arch_weight_decay,
            **bilevel,
        )
