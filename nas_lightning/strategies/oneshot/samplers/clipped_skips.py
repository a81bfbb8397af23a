"""Activation search: skips that compete with nothing (Zhu et al. 2022, arXiv:2209.07238, section 5.1).

Activations share a softmax, as DARTS' operations do. Whether to keep a skip is a choice of its own: its
weight α_l starts at ½, is clipped to [0, 1] after every step, and the skip is kept where α_l > ½. The paper
does not say whether α decays; here it does not, because decay would pull it below ½ whatever the loss says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.spaces.group import Group
from nas_lightning.spaces.ops import NONE, SKIP
from nas_lightning.strategies.oneshot.samplers.softmax import Softmax
from nas_lightning.strategies.oneshot.values import Epoch


class ClippedSkips(Softmax):
    """A softmax; where the choice is between `none` and `skip_connect`, a clipped weight.

    In spaces without such groups it is DARTS' softmax.

    >>> group, generator = Group(((0,),), ("none", "skip_connect")), torch.Generator()
    >>> sampler = ClippedSkips()
    >>> sampler.weights(sampler.initial(group, generator), [], Epoch(0, of=2), group)
    tensor([[0.5000, 0.5000]])
    >>> sampler.project(torch.tensor([[1.3]]), group)  # after a step
    tensor([[1.]])
    """

    softmax: ClassVar[bool] = False

    def initial(self, group: Group, generator: torch.Generator) -> Tensor:
        """10⁻³ N(0, 1) for what has a softmax; ½ for the weight of each skip, (rows, 1)."""
        start = super().initial(group, generator)
        return torch.full((len(start), 1), 0.5) if is_skip(group) else start

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return self.probabilities(beta, epoch, group)

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return clipped_weights(beta, group) if is_skip(group) else torch.softmax(beta, dim=-1)

    def project(self, beta: Tensor, group: Group) -> Tensor:
        return beta.clamp(0.0, 1.0) if is_skip(group) else beta

    def decays(self, group: Group) -> bool:
        return not is_skip(group)


def is_skip(group: Group) -> bool:
    """Whether its decisions are between a skip and nothing."""
    return set(group.ops) == {NONE, SKIP} and not group.own


def clipped_weights(alpha: Tensor, group: Group) -> Tensor:
    """α for the skip and 1 − α for `none`, which shows α in scores and does not enter the loss: (rows, 2)."""
    columns = {SKIP: alpha, NONE: 1 - alpha}
    return torch.cat([columns[op] for op in group.ops], dim=-1)
