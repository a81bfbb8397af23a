"""PC-DARTS: partially connected differentiable search (Xu et al. 2020, arXiv:1907.05737).

Only 1/K of the channels pass the operations, which is the supernet's option `partial`; and because the
channels that go round them make the choice between operations vaguer, the edges into a node have weights of
their own (section 3.3). With β̂ the softmax over the edges into a node and α̂ the softmax over operations,

    x_j = Σ_{i<j} β̂_{ij} · Σ_o α̂_{ij}^o · o(x_i),

so both are one matrix of weights β̂ α̂, whose rows sum to β̂: what the bypassed channels are weighted with.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from nas_lightning.spaces.base import Group
from nas_lightning.strategies.oneshot.bilevel import Bilevel
from nas_lightning.strategies.oneshot.weight_sharing import Relaxed

_EDGES = "_edges"  # the edges' parameters stand beside those of their group under this ending


class PCDarts(Bilevel):
    """PC-DARTS, on a supernet with `partial` > 1.

    >>> from nas_lightning.spaces import DartsSpace
    >>> space = DartsSpace()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=4, cells=1, partial=4)
    >>> weights = PCDarts(space, supernet).relax().weights["normal"]
    >>> round(weights[:2].sum().item(), 4)  # the two edges into the first inner node
    1.0
    """

    def initial_parameters(self) -> dict[str, Tensor]:
        parameters = super().initial_parameters()
        for name, group in self.space.groups.items():
            parameters[name + _EDGES] = 1e-3 * torch.randn(len(group.edges), generator=self.generator)
        return parameters

    def relax(self) -> Relaxed:
        weights = {}
        for name, group in self.space.groups.items():
            ops = torch.softmax(self.arch[name], dim=-1)  # (edges, ops)
            edges = softmax_by_target(self.arch[name + _EDGES], group)  # (edges,)
            weights[name] = edges[:, None] * ops
        return Relaxed(weights)

    def scores(self) -> Mapping[str, Tensor]:
        return {name: matrix.detach() for name, matrix in self.relax().weights.items()}


def softmax_by_target(values: Tensor, group: Group) -> Tensor:
    """Softmax over the edges that end in the same node: (edges,) → (edges,)."""
    targets = torch.tensor([target for _, target in group.edges], device=values.device)
    same = targets[:, None] == targets[None, :]  # (edges, edges)
    return torch.exp(values - torch.where(same, values, -torch.inf).logsumexp(dim=1))
