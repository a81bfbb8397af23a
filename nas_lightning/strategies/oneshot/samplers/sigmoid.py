"""FairDARTS' weights: independent operations (Chu et al. 2020, arXiv:1911.12126, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.spaces.group import Group, without_none
from nas_lightning.strategies.oneshot.parts import Sampler
from nas_lightning.strategies.oneshot.values import Epoch


class Sigmoid(Sampler):
    """w_o = σ(α_o), so that operations do not compete.

    The zero operation, whose weight no loss informs, stays out of the derivation.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> Sigmoid().weights(torch.zeros(1, 2), [], Epoch(0, of=2), group)
    tensor([[0.5000, 0.5000]])
    """

    shares: ClassVar[bool] = False

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return torch.sigmoid(beta)

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return torch.sigmoid(beta)

    def scores(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return without_none(torch.sigmoid(beta), group)
