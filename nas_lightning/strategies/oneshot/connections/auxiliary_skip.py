"""DARTS−' auxiliary skip connection (Chu et al. 2021, arXiv:2009.01027, section 3.2).

    ō(x) = β x + Σ_o w_o o(x) = (β + w_skip) x + Σ_{o ≠ skip} w_o o(x)                        (equation 4)

Part of what a skip connection does is to let gradients through, whichever operation is best beside it. An
auxiliary one does that on every edge, so that the candidate's own weight says what it is worth as an
operation. β falls linearly from 1 to 0, so that nothing of it is left in what is derived. Where an edge
halves the resolution, both are the same reduction.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nas_lightning.checks import NonNegativeFloat, checked
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.ops import SKIP
from nas_lightning.strategies.oneshot.parts import Connection, Parts
from nas_lightning.strategies.oneshot.regularisers.sparsity import check_skips
from nas_lightning.strategies.oneshot.values import Arch, Epoch, Groups, RelaxedWeights


@checked
@dataclass(frozen=True)
class AuxiliarySkip(Connection):
    """β more for the skip of every edge that has one, while searching.

    Args:
        start: β in the first epoch.
        end: and in the last; it falls linearly.

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
    """w + β at the skip of every edge: (edges, ops)."""
    return weights + beta * skips_of(group).to(weights)


def skips_of(group: Group) -> Tensor:
    """Where the skips stand: boolean (edges, ops)."""
    return group.where(lambda op: op == SKIP)
