"""PC-DARTS' edge normalisation (Xu et al. 2020, arXiv:1907.05737, section 3.3).

Only 1/K of the channels pass the operations, which is the supernet's option `partial`; because the channels
that go round them make the choice between operations vaguer, the edges into a node have weights of their own.
With β̂ the softmax over the edges into a node and w the weights of operations,

    x_j = Σ_{i<j} β̂_{ij} · Σ_o w_{ij}^o · o(x_i),

so both are one matrix of weights β̂ w. Where the rows of w sum to one, those of β̂ w sum to β̂: what the
bypassed channels are weighted with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group
from nas_lightning.strategies.oneshot.connections.widening import Widening
from nas_lightning.strategies.oneshot.parts import Parts
from nas_lightning.strategies.oneshot.values import Arch, Epoch, Groups, RelaxedWeights

_EDGES = "_edges"  # the edges' parameters stand beside those of their group under this ending


@checked
@dataclass(frozen=True)
class EdgeWeights(Widening):
    """A softmax over the edges into each node; for a supernet with `partial` > 1.

    Args:
        stages: K of each of equally long stages, see `Widening`; none: the supernet's throughout.

    >>> group = Group(((0, 2), (1, 2)), ("skip_connect", "nor_conv_3x3"))
    >>> connection = EdgeWeights()
    >>> arch = connection.initial({"cell": group}, torch.Generator().manual_seed(0))
    >>> relaxed = RelaxedWeights({"cell": torch.full((2, 2), 0.5)})
    >>> weights = connection.apply(relaxed, arch, Epoch(0, of=2), {"cell": group}).weights["cell"]
    >>> round(float(weights.sum()), 4)  # a half of each edge's operations, and shares of two edges
    1.0
    """

    stages: tuple[PositiveInt, ...] = ()

    fewest: ClassVar[int] = 0

    def check(self, parts: Parts, space: SearchSpace) -> None:
        for group in space.groups.values():
            group.edges  # noqa: B018  raises where the rows are nodes
        if parts.sampler.on_simplex:
            reason = "because the weights of edges are a softmax, and one optimiser moves both"
            name = type(parts.sampler).__name__
            raise InputError(f"expected a sampler of logits, {reason}", got=name, where="sampler")

    def initial(self, groups: Groups, generator: torch.Generator) -> dict[str, Tensor]:
        return {
            name + _EDGES: 1e-3 * torch.randn(len(group.edges), generator=generator)
            for name, group in groups.items()
        }

    def apply(self, relaxed: RelaxedWeights, arch: Arch, epoch: Epoch, groups: Groups) -> RelaxedWeights:
        return RelaxedWeights(weigh_edges(relaxed.weights, arch, groups), relaxed.active)

    def scores(self, scores: Mapping[str, Tensor], arch: Arch, groups: Groups) -> Mapping[str, Tensor]:
        return weigh_edges(scores, arch, groups)


def weigh_edges(weights: Mapping[str, Tensor], arch: Arch, groups: Groups) -> dict[str, Tensor]:
    """β̂ w: (edges, ops) per group."""
    edges = {name: softmax_by_target(arch[name + _EDGES], groups[name]) for name in weights}
    return {name: edges[name][:, None] * matrix for name, matrix in weights.items()}


def softmax_by_target(values: Tensor, group: Group) -> Tensor:
    """Softmax over the edges that end in the same node: (edges,) → (edges,)."""
    targets = torch.tensor([target for _, target in group.edges], device=values.device)
    same = targets[:, None] == targets[None, :]  # (edges, edges)
    return torch.exp(values - torch.where(same, values, -torch.inf).logsumexp(dim=1))
