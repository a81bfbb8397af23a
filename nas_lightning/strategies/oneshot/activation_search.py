"""DARTS as it searches activations and skips (Zhu et al. 2022, arXiv:2209.07238, section 5.1).

Activations share a softmax, as DARTS' operations do. Whether to keep a skip is a choice of its own: its
weight α_l starts at ½, is clipped to [0, 1] after every step, and the skip is kept where α_l > ½. So no skip
takes weight from another candidate. The paper does not say whether α decays; here it does not, because decay
would pull it below ½ whatever the loss says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from nas_lightning.spaces.base import Group, SearchSpace
from nas_lightning.spaces.ops import NONE, SKIP
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.bilevel import Bilevel
from nas_lightning.strategies.oneshot.weight_sharing import Relaxed


class ActivationSearch(Bilevel):
    """First-order DARTS whose decisions between `none` and `skip_connect` are clipped weights.

    In spaces without such groups it is DARTS.

    Args:
        space: the search space.
        supernet: its supernet.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import Mlp
    >>> space = Mlp(layers=3)
    >>> search = ActivationSearch(space, space.supernet(in_channels=1, num_classes=2, width=4))
    >>> search.relax().weights["skip"].tolist()
    [[0.5, 0.5]]
    """

    def __init__(self, space: SearchSpace, supernet: Supernet, **bilevel: Any) -> None:
        self.clipped = {name for name, group in space.groups.items() if is_skip(group)}
        super().__init__(space, supernet, **bilevel)

    def initial_parameters(self) -> dict[str, Tensor]:
        """10⁻³ N(0, 1) for what has a softmax; ½ for the weight of each skip, (rows, 1)."""
        found = super().initial_parameters()
        for name in self.clipped:
            found[name] = torch.full((len(found[name]), 1), 0.5)
        return found

    def relax(self) -> Relaxed:
        return Relaxed({name: self._weights(name, beta) for name, beta in self.arch.items()})

    def scores(self) -> Mapping[str, Tensor]:
        return {name: self._weights(name, beta.detach()) for name, beta in self.arch.items()}

    def _weights(self, name: str, beta: Tensor) -> Tensor:
        if name in self.clipped:
            return clipped_weights(beta, self.space.groups[name])
        return beta.softmax(dim=-1)

    def arch_descend(self) -> None:
        super().arch_descend()
        with torch.no_grad():
            for name in self.clipped:
                self.arch[name].clamp_(0.0, 1.0)

    def arch_optimizer(self) -> Optimizer:
        """Adam; the weights of skips do not decay."""
        optimizer = super().arch_optimizer()
        free = {id(self.arch[name]) for name in self.clipped}
        (group,) = optimizer.param_groups
        skips = [parameter for parameter in group["params"] if id(parameter) in free]
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in free]
        if skips:
            optimizer.add_param_group({"params": skips, "weight_decay": 0.0})
        return optimizer


def is_skip(group: Group) -> bool:
    """Whether its decisions are between a skip and nothing."""
    return set(group.ops) == {NONE, SKIP}


def clipped_weights(alpha: Tensor, group: Group) -> Tensor:
    """α for the skip and 1 − α for `none`, which shows α in scores and does not enter the loss: (rows, 2)."""
    columns = {SKIP: alpha, NONE: 1 - alpha}
    return torch.cat([columns[op] for op in group.ops], dim=-1)
