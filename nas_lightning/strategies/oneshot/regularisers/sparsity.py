"""PR-DARTS' group-structured sparsity (Zhou et al. 2020, arXiv:2006.16537, sections 4.1 and 4.2).

With P the probability that an operation has weight (theorem 3), ζ one over the number of edges and r the
number of operations,

    λ₁ L_skip + λ₂ L_nonskip,   L_skip = ζ Σ_edges P(skip),   L_nonskip = ζ/(r−1) Σ_edges Σ_{other ops} P

makes skips costlier than other operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from nas_lightning.checks import NonNegativeFloat, at_least, at_most, checked
from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.ops import NONE, SKIP, find_operation
from nas_lightning.strategies.oneshot.parts import Parts, Regulariser
from nas_lightning.strategies.oneshot.values import Arch, Epoch, Groups


@checked
@dataclass(frozen=True)
class Sparsity(Regulariser):
    """λ₁ L_skip + λ₂ L_nonskip, averaged over the cells of the space.

    Args:
        lambda_skip: λ₁.
        lambda_nonskip: λ₂.
        pooling_group: take the pooling operations out of L_nonskip, as a third group with λ₂, as in the
            authors' code.
        threshold: penalise a group only for what its probability exceeds this by; the authors' code has 0.2.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> zero, probabilities = Sparsity(0.0, 0.0), {"cell": torch.tensor([[0.9, 0.2]])}
    >>> zero.term({}, probabilities, Epoch(0, of=2), {"cell": group})
    tensor(0.)
    """

    lambda_skip: NonNegativeFloat = 0.01
    lambda_nonskip: NonNegativeFloat = 0.005
    pooling_group: bool = False
    threshold: Annotated[float, at_least(0), at_most(1)] = 0.0

    def check(self, parts: Parts, space: SearchSpace) -> None:
        check_skips(space)

    def term(self, arch: Arch, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups) -> Tensor:
        return torch.stack([self._of_cell(p, groups[name]) for name, p in probabilities.items()]).mean()

    def _of_cell(self, probability: Tensor, group: Group) -> Tensor:
        sparsity = group_sparsity(probability, group, self.pooling_group)
        above = {part: torch.relu(value - self.threshold) for part, value in sparsity.items()}
        others = sum((value for part, value in above.items() if part != "skip"), probability.new_zeros(()))
        return self.lambda_skip * above["skip"] + self.lambda_nonskip * others

    def metrics(
        self, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups
    ) -> Mapping[str, float | Tensor]:
        return {
            f"L_{part}/{name}": value.detach()
            for name, probability in probabilities.items()
            for part, value in group_sparsity(probability, groups[name], self.pooling_group).items()
        }


def check_skips(space: SearchSpace) -> None:
    """Raise unless every decision is for an operation on an edge, a skip or another."""
    groups = space.groups.values()
    if not all(group.on_edges and SKIP in group.ops and len(group.ops) > 1 for group in groups):
        raise InputError(
            "expected a space that chooses skips and other operations on edges", got=space.name, where="space"
        )


def group_sparsity(probability: Tensor, group: Group, pooling_group: bool = False) -> dict[str, Tensor]:
    """L_skip and L_nonskip of a cell, found by the operations' names: (edges, ops) → scalars.

    With `pooling_group`, pooling operations leave L_nonskip for an average of their own.
    """
    parts = {"skip": [op for op in group.ops if op == SKIP]}
    others = [op for op in group.ops if pooling_group and op not in (NONE, SKIP)]
    pooling = [op for op in others if find_operation(op).kind == "pooling"]
    if pooling:
        parts["pooling"] = pooling
    parts["nonskip"] = [op for op in group.ops if op != SKIP and op not in pooling]
    places = {part: group.where(ops.__contains__) for part, ops in parts.items()}
    return {part: mean_where(probability, place) for part, place in places.items()}


def mean_where(probability: Tensor, place: Tensor) -> Tensor:
    """The mean over some operations, 0 where there are none: a scalar."""
    if not bool(place.any()):
        return probability.new_zeros(())
    return probability[place.to(probability.device)].mean()
