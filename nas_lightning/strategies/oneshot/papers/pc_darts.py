"""PC-DARTS: partially connected differentiable search (Xu et al. 2020, arXiv:1907.05737)."""

from __future__ import annotations

from typing import Any, ClassVar

from nas_lightning.checks import PositiveFloat, checked
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.connections.edge_weights import EdgeWeights
from nas_lightning.strategies.oneshot.papers.bilevel import Bilevel


class PCDarts(Bilevel):
    """A softmax and weights of edges, on a supernet with `partial` > 1.

    Args:
        space: the search space.
        supernet: its supernet.
        arch_lr: learning rate of the architecture parameters.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import DartsSpace
    >>> space = DartsSpace()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1, partial=4)
    >>> weights = PCDarts(space, supernet).relax().weights["normal"]
    >>> round(weights[:2].sum().item(), 4)  # the two edges into the first inner node
    1.0
    """

    made_of: ClassVar[tuple[str, ...]] = ("Softmax + EdgeWeights",)

    @checked
    def __init__(
        self, space: SearchSpace, supernet: Supernet, *, arch_lr: PositiveFloat = 6e-4, **bilevel: Any
    ) -> None:
        super().__init__(space, supernet, partial=EdgeWeights(), arch_lr=arch_lr, **bilevel)
