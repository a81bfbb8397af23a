"""Connections of a supernet: edge weights, widening, and the auxiliary skip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.operations import SKIP
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.one_shot.parts import Arch, Connection, Epoch, Groups, Parts, RelaxedWeights
from nas_lightning.strategies.one_shot.regularizers import check_skips
from nas_lightning.validation import NonNegativeFloat, PositiveInt, checked

# DARTS−' auxiliary skip connection (Chu et al. 2021, arXiv:2009.01027, section 3.2).
#
#     ō(x) = β x + Σ_o w_o o(x) = (β + w_skip) x + Σ_{o ≠ skip} w_o o(x)                        (equation 4)
#
# A skip connection has two effects: it is an operation, and it lets gradients through. The auxiliary one does
#     the latter on every edge, so that the weight of the candidate reflects its value as an operation. β
#     falls linearly from 1 to 0, so that nothing of it is left at the end. Where an edge halves the
#     resolution, both are the same reduction.


@checked
@dataclass(frozen=True)
class AuxiliarySkip(Connection):
    """Add β to the weight of the skip of every edge during the search.

    Args:
        start: β in the first epoch.
        end: β in the last epoch; the schedule is linear.

    >>> import torch
    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> sampled = RelaxedWeights({"cell": torch.tensor([[0.5, 0.5]])})
    >>> AuxiliarySkip().apply(sampled, {}, Epoch(1, of=3), {"cell": group}).weights["cell"]
    tensor([[1.0000, 0.5000]])
    """

    start: NonNegativeFloat = 1.0
    end: NonNegativeFloat = 0.0

    def check(self, parts: Parts, space: SearchSpace) -> None:
        check_skips(space)

    def apply(self, relaxed: RelaxedWeights, arch: Arch, epoch: Epoch, groups: Groups) -> RelaxedWeights:
        beta = epoch.between(self.start, self.end)
        if beta == 0:
            return relaxed
        weights = {name: with_skip(w, beta, groups[name]) for name, w in relaxed.weights.items()}
        if relaxed.active is None:
            return RelaxedWeights(weights)
        skips = {name: skips_of(groups[name]).to(a.device) for name, a in relaxed.active.items()}
        return RelaxedWeights(
            weights, {name: active | skips[name] for name, active in relaxed.active.items()}
        )


def with_skip(weights: Tensor, beta: float, group: Group) -> Tensor:
    """Add β to the skip of every edge: (edges, ops)."""
    return weights + beta * skips_of(group).to(weights)


def skips_of(group: Group) -> Tensor:
    """Return a mask of the skips: boolean (edges, ops)."""
    return group.where(lambda op: op == SKIP)


# DrNAS' progressive widening (Chen et al. 2021, arXiv:2006.10355, section 3.3).
#
# Only 1/K of the channels pass the operations, which costs 1/K of the memory but makes the values of
# operations less accurate; so K falls in stages of equal length. The supernet keeps its weights when it
# grows, and so does the search; only the momenta of the grown weights are reset. The paper also drops the
# weakest operations between its two stages; here all stay.


@checked
@dataclass(frozen=True)
class Widening(Connection):
    """Send more channels through the operations in each stage; `partial` is the first stage's K.

    Args:
        stages: K of each stage; the paper has (4, 2) in NAS-Bench-201 and (6, 3) in DARTS' space.

    >>> [Widening((4, 2)).partial(Epoch(number, of=4)) for number in range(4)]
    [4, 4, 2, 2]
    """

    stages: tuple[PositiveInt, ...] = (4, 2)

    fewest: ClassVar[int] = 1
    """The smallest number of stages."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", tuple(self.stages))  # a configuration has a list
        if len(self.stages) < self.fewest:
            expected = "`stages` must have at least one entry"
            raise InputError(expected, got=[], where="strategy.edge_weights.stages")
        if any(later >= stage for stage, later in zip(self.stages, self.stages[1:], strict=False)):
            expected = "`stages` must decrease"
            raise InputError(expected, got=list(self.stages), where="strategy.edge_weights.stages")

    def check_supernet(self, supernet: Supernet) -> None:
        if self.stages and supernet.backbone.partial != self.stages[0]:
            expected = f"The supernet must have partial={self.stages[0]}, as the first stage"
            raise InputError(expected, got=supernet.backbone.partial, where="supernet.partial")

    def apply(self, relaxed: RelaxedWeights, arch: Arch, epoch: Epoch, groups: Groups) -> RelaxedWeights:
        return relaxed


# PC-DARTS' edge normalization (Xu et al. 2020, arXiv:1907.05737, section 3.3).
#
# Only 1/K of the channels pass the operations (`partial` of the supernet). This makes the choice between
# operations less certain, so the edges into a node have weights, too. With β̂ the softmax over the edges into
# a node and w the weights of operations,
#
#     x_j = Σ_{i<j} β̂_{ij} · Σ_o w_{ij}^o · o(x_i),
#
# so both are one matrix of weights β̂ w. If the rows of w sum to one, those of β̂ w sum to β̂, the weight of
# the bypassed channels.

_EDGES = "_edges"  # suffix of the edges' parameters after the name of their group


@checked
@dataclass(frozen=True)
class EdgeWeights(Widening):
    """Weights of edges: a softmax over the edges into each node, for a supernet with `partial` > 1.

    Args:
        stages: K of each stage, see `Widening`; empty: the supernet's K throughout.

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
            reason = "because the weights of edges are a softmax, and one optimizer moves both"
            name = type(parts.sampler).__name__
            raise InputError(f"The sampler must be one of logits, {reason}", got=name, where="sampler")

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
    """Return β̂ w: (edges, ops) per group."""
    edges = {name: softmax_by_target(arch[name + _EDGES], groups[name]) for name in weights}
    return {name: edges[name][:, None] * matrix for name, matrix in weights.items()}


def softmax_by_target(values: Tensor, group: Group) -> Tensor:
    """Return the softmax over the edges into the same node: (edges,) → (edges,)."""
    targets = torch.tensor([target for _, target in group.edges], device=values.device)
    same = targets[:, None] == targets[None, :]  # (edges, edges)
    return torch.exp(values - torch.where(same, values, -torch.inf).logsumexp(dim=1))
