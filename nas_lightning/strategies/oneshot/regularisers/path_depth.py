"""PR-DARTS' path-depth regularisation (Zhou et al. 2020, arXiv:2006.16537, section 4.2).

With P the probability that an operation has weight (theorem 3),

    −λ₃ L_path,   L_path = Π_l P(l, l+1),   P(l, l+1) = Σ over parameterised operations between l and l+1 of P

makes deep cells likelier (equation 8). `L_path` starts at the last input node: in a DARTS cell the output of
the previous cell (section 5), in a NAS-Bench-201 cell its only input, so that the path is 0→1→2→3 there, the
longest that the cell has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nas_lightning.checks import NonNegativeFloat, checked
from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.ops import has_parameters
from nas_lightning.strategies.oneshot.parts import Parts, Regulariser
from nas_lightning.strategies.oneshot.values import Arch, Epoch, Groups


@checked
@dataclass(frozen=True)
class PathDepth(Regulariser):
    """−λ₃ L_path, averaged over the cells of the space.

    Args:
        lambda_path: λ₃.
        path_sum: sum P over the parameterised operations as equation 8 is written, which exceeds 1;
            by default it is their mean; the authors' code has that of those that the step computes.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> probabilities = {"cell": torch.tensor([[0.9, 0.2]])}
    >>> PathDepth(lambda_path=1.0).term({}, probabilities, Epoch(0, of=2), {"cell": group})
    tensor(-0.2000)
    """

    lambda_path: NonNegativeFloat = 0.005
    path_sum: bool = False

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if not all(group.on_edges and has_deep_path(group) for group in space.groups.values()):
            expected = "expected a space with learned operations on the edges from each node to the next"
            raise InputError(expected, got=space.name, where="space")

    def term(self, arch: Arch, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups) -> Tensor:
        depths = [path_depth(p, groups[name], self.path_sum) for name, p in probabilities.items()]
        return torch.stack([-self.lambda_path * depth for depth in depths]).mean()

    def metrics(
        self, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups
    ) -> Mapping[str, float | Tensor]:
        return {
            f"L_path/{name}": path_depth(probability, groups[name], self.path_sum).detach()
            for name, probability in probabilities.items()
        }


def path_depth(probability: Tensor, group: Group, literal_sum: bool = False) -> Tensor:
    """L_path of a cell: how likely learned operations join all neighbouring nodes."""
    learned = group.where(has_parameters).to(probability)[path(group)]
    neighbours = (probability[path(group)] * learned).sum(dim=1)  # (path edges,)
    if not literal_sum:
        neighbours = neighbours / learned.sum(dim=1).clamp_min(1)
    return neighbours.prod()


def path(group: Group) -> list[int]:
    """The rows of the edges l → l+1, from the last input node on."""
    first = min(target for _, target in group.edges) - 1
    return [
        row for row, (source, target) in enumerate(group.edges) if source >= first and target == source + 1
    ]


def has_deep_path(group: Group) -> bool:
    """Whether L_path can be more than zero."""
    return bool(group.where(has_parameters)[path(group)].any(dim=1).all())
