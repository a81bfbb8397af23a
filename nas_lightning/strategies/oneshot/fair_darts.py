"""FairDARTS: independent operations (Chu et al. 2020, arXiv:1911.12126).

The weight of an operation is the sigmoid of its own parameter, so that operations do not compete (section
3.3), and a loss pulls the weights to zero or one, so that little changes when the genotype is derived:

    L_01 = −(1/N) Σ_i (σ(α_i) − 0.5)²                                                     (equation 6)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nas_lightning.spaces.base import SearchSpace, without_none
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.bilevel import Bilevel
from nas_lightning.strategies.oneshot.weight_sharing import Relaxed


class FairDarts(Bilevel):
    """FairDARTS; the zero operation, whose sigmoid no loss informs, stays out of the derivation.

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

    def __init__(
        self, space: SearchSpace, supernet: Supernet, *, zero_one: float = 10.0, **bilevel: Any
    ) -> None:
        super().__init__(space, supernet, **bilevel)
        self.zero_one = zero_one

    def relax(self) -> Relaxed:
        return Relaxed({name: torch.sigmoid(alpha) for name, alpha in self.arch.items()})

    def scores(self) -> Mapping[str, Tensor]:
        found = self.relax().weights.items()
        return {name: without_none(w.detach(), self.space.groups[name]) for name, w in found}

    def regulariser(self) -> Tensor:
        weights = torch.cat([torch.sigmoid(alpha).flatten() for alpha in self.arch.values()])
        return self.zero_one * zero_one_loss(weights)


def zero_one_loss(weights: Tensor) -> Tensor:
    """L_01 = −mean (w − 0.5)²."""
    return -(weights - 0.5).square().mean()
