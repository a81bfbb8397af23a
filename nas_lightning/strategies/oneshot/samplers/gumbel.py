"""GDAS' weights: one sampled operation an edge (Dong & Yang 2019, arXiv:1910.04465).

A step costs what one path costs; the parameters learn through the straight-through estimator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.checks import checked
from nas_lightning.spaces.group import Group
from nas_lightning.strategies.oneshot.relaxations import straight_through_gumbel
from nas_lightning.strategies.oneshot.samplers.temperature import TemperatureSampler
from nas_lightning.strategies.oneshot.values import Epoch


@checked
@dataclass(frozen=True)
class Gumbel(TemperatureSampler):
    """w = one-hot of arg max(β + G) forward, softmax((β + G)/τ) backward  (equations 3 and 4).

    Args:
        tau_start: τ in the first epoch.
        tau_end: and in the last; it falls linearly.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> half = torch.full((1, 2), 0.5)
    >>> Gumbel().weights(torch.tensor([[-1.0, 1.0]]), [half], Epoch(0, of=2), group)
    tensor([[0., 1.]])
    """

    noises: ClassVar[int] = 1
    varies: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    softmax: ClassVar[bool] = True

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return straight_through_gumbel(beta, noise[0], self.tau(epoch), group.draw)

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return torch.softmax(beta, dim=-1)
