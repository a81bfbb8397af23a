"""How fast a cell's weights converge, given its α (PR-DARTS, Zhou et al. 2020, arXiv:2006.16537, theorem 1).

Gradient descent reduces the training loss by a factor 1 − ηλ/4 a step, with

    λ ∝ Σ_{s=0}^{h−2} (α_conv^{(s → h−1)})² Π_{t=0}^{s−1} (α_skip^{(t → s)})²

so that skips raise it on the edges that later nodes share, and convolutions on the edges into the last node.
This is why DARTS, whose operations share a softmax, ends in skips. The constant before the sum depends on
data and activation, not on α. A cell of DARTS has two inputs; the sum is over both and its inner nodes but
the last.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.operations import SKIP, has_parameters


class Rate(NamedTuple):
    """λ without its constant, and its components."""

    value: Tensor
    """The sum over the ends of paths."""
    skip: Tensor
    """Mean α_skip of the edges into nodes before the last."""
    conv: Tensor
    """Mean α_conv of the edges into the last node."""


def convergence_rate(alpha: Tensor, group: Group) -> Rate:
    """Theorem 1 for weights of (edges, ops); α_conv is the sum over the operations with parameters.

    >>> group = Group(((0, 1), (0, 2), (1, 2)), ("none", "skip_connect", "nor_conv_3x3"))
    >>> alpha = torch.tensor([[0.0, 0.5, 0.5], [0.0, 0.0, 1.0], [0.0, 0.6, 0.4]])
    >>> round(convergence_rate(alpha, group).value.item(), 6)  # 1² + 0.4² · 0.5²
    1.04
    """
    check(group)
    last = max(target for _, target in group.edges)
    skip = (alpha * group.where(lambda op: op == SKIP).to(alpha)).sum(dim=1)
    conv = (alpha * group.where(has_parameters).to(alpha)).sum(dim=1)
    into = {node: [row for row, (_, t) in enumerate(group.edges) if t == node] for node in range(last + 1)}
    ends = {group.edges[row][0]: row for row in into[last]}
    terms = [conv[row] ** 2 * skip[into[node]].square().prod() for node, row in ends.items()]
    shared = [row for node in range(last) for row in into[node]]
    return Rate(torch.stack(terms).sum(), skip[shared].mean(), conv[into[last]].mean())


def check(group: Group) -> None:
    """Raise an `InputError` unless the group chooses skips and operations with parameters on edges."""
    learned = [op for op in group.ops if op != SKIP and group.on_edges and has_parameters(op)]
    if not learned or SKIP not in group.ops:
        raise InputError(
            "The convergence rate needs a space that chooses skips and convolutions on edges",
            got=group.ops,
            where="space",
        )
