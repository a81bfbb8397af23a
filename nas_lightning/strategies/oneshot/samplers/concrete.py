"""SNAS' weights: a relaxed sample of one operation an edge (Xie et al. 2019, arXiv:1812.09926)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.checks import PositiveFloat, checked
from nas_lightning.spaces.group import Group
from nas_lightning.strategies.oneshot.relaxations import gumbel
from nas_lightning.strategies.oneshot.samplers.temperature import TemperatureSampler
from nas_lightning.strategies.oneshot.values import Epoch


@checked
@dataclass(frozen=True)
class Concrete(TemperatureSampler):
    """w = softmax((β + G)/τ), G standard Gumbel  (section 2.3).

    Its gradient is that of the loss; every operation is computed.

    Args:
        tau_start: τ in the first epoch.
        tau_end: and in the last; it falls linearly.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> half = torch.full((1, 2), 0.5)
    >>> Concrete().weights(torch.zeros(1, 2), [half], Epoch(0, of=2), group)
    tensor([[0.5000, 0.5000]])
    """

    tau_start: PositiveFloat = 1.0
    tau_end: PositiveFloat = 0.03

    noises: ClassVar[int] = 1
    softmax: ClassVar[bool] = True

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return torch.softmax((beta + gumbel(noise[0])) / self.tau(epoch), dim=-1)

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return torch.softmax(beta, dim=-1)
