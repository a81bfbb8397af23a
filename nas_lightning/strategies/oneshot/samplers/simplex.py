"""GAEA's weights: parameters that are the shares themselves (Li et al. 2021, arXiv:2004.07802)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.spaces.group import Group
from nas_lightning.strategies.oneshot.parts import Sampler
from nas_lightning.strategies.oneshot.values import Epoch


class Simplex(Sampler):
    """w = α, a point of the simplex for every row, which starts in its middle.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> Simplex().initial(group, torch.Generator())
    tensor([[0.5000, 0.5000]])
    """

    on_simplex: ClassVar[bool] = True

    def initial(self, group: Group, generator: torch.Generator) -> Tensor:
        return torch.full(group.shape, 1 / group.shape[1])

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return beta

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return beta
