"""DARTS' weights: a softmax over the operations of an edge (Liu et al. 2019, arXiv:1806.09055)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.spaces.group import Group
from nas_lightning.strategies.oneshot.parts import Sampler
from nas_lightning.strategies.oneshot.values import Epoch


class Softmax(Sampler):
    """w_o = exp(β_o) / Σ_{o'} exp(β_{o'})  (equation 2).

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> Softmax().weights(torch.zeros(1, 2), [], Epoch(0, of=2), group)
    tensor([[0.5000, 0.5000]])
    """

    softmax: ClassVar[bool] = True

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return torch.softmax(beta, dim=-1)

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return torch.softmax(beta, dim=-1)
