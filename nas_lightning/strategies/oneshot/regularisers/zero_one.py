"""FairDARTS' zero-one loss (Chu et al. 2020, arXiv:1911.12126).

    L_01 = −(1/N) Σ_i (w_i − 0.5)²                                                        (equation 6)

pulls weights to zero or one, so that little changes when the genotype is derived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nas_lightning.checks import NonNegativeFloat, checked
from nas_lightning.strategies.oneshot.parts import Regulariser
from nas_lightning.strategies.oneshot.values import Arch, Epoch, Groups


@checked
@dataclass(frozen=True)
class ZeroOne(Regulariser):
    """λ L_01 of all weights together.

    Args:
        weight: λ.

    >>> ZeroOne(weight=1.0).term({}, {"cell": torch.tensor([[0.0, 1.0]])}, Epoch(0, of=2), {})
    tensor(-0.2500)
    """

    weight: NonNegativeFloat = 10.0

    def term(self, arch: Arch, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups) -> Tensor:
        return self.weight * zero_one_loss(torch.cat([p.flatten() for p in probabilities.values()]))


def zero_one_loss(weights: Tensor) -> Tensor:
    """L_01 = −mean (w − 0.5)²."""
    return -(weights - 0.5).square().mean()
