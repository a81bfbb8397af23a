"""Pruning by gradients: the operation goes whose removal raises the validation loss least.

To first order, setting the weight w_o of an operation to zero changes the loss by

    L(w − w_o e_o) − L(w) ≈ −w_o ∂L/∂w_o                       (Molchanov et al. 2017, arXiv:1611.06440)

so one backward pass judges all operations. The supernet is pruned in rounds, one operation from each edge in
each, as TE-NAS does with metrics (Chen et al. 2021, arXiv:2102.11535, algorithm 1), because with every
removal the rest is worth something else; a row keeps the sum of its weights. In the end each edge has one
operation, and edges are ranked by the same difference.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import Batch, place_batches
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group, without_none
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.derivation.base import Derivation, Matrices, ranks, weights_at_the_end
from nas_lightning.strategies.oneshot.weight_sharing import WeightSharing
from nas_lightning.tasks.multi_class import task_of
from nas_lightning.training.gradients import constant


class Pruning(Derivation):
    """Derives a genotype by removing from every edge, round by round, what the loss misses least.

    Args:
        valid_batches: batches that the loss is the mean of.

    >>> from nas_lightning.data import Fake
    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies import Darts
    >>> space, data = NasBench201(), SearchData(Fake(train_size=32))
    >>> search = Darts(space, space.supernet(in_channels=3, num_classes=4, channels=2, cells=1))
    >>> [genotype] = Pruning(valid_batches=1)(search, data)
    >>> space.check(genotype)
    """

    @checked
    def __init__(self, valid_batches: PositiveInt = 4) -> None:
        self.valid_batches = valid_batches

    def __call__(self, strategy: WeightSharing, data: SearchData) -> list[Genotype]:
        batches = list(place_batches(strategy.supernet, data.valid_batches(self.valid_batches)))
        return [prune(strategy.space, strategy.supernet, weights_at_the_end(strategy), batches)]


def prune(space: SearchSpace, supernet: Supernet, weights: Matrices, batches: Sequence[Batch]) -> Genotype:
    """The genotype that is left of weights of (edges, ops)."""
    weights = {name: start(w, space.groups[name]) for name, w in weights.items()}
    while any(bool(((w > 0).sum(dim=1) > 1).any()) for w in weights.values()):
        raises = raised_loss(supernet, weights, batches)
        weights = {name: without_least(w, raises[name]) for name, w in weights.items()}
    raises = raised_loss(supernet, weights, batches)
    scores = {name: ranked_rows(w, raises[name]) for name, w in weights.items()}
    return space.discretise(scores)


def start(weights: Tensor, group: Group) -> Tensor:
    """The weights without the zero operation, equal where nothing else has any: (edges, ops)."""
    real = without_none(weights, group)
    empty = real.sum(dim=1, keepdim=True) == 0
    return normalise_rows(real.where(~empty, without_none(torch.ones_like(weights), group)), weights)


def raised_loss(supernet: Supernet, weights: Matrices, batches: Sequence[Batch]) -> Matrices:
    """−w ∂L/∂w: what the loss is to rise by without each operation, (edges, ops) per group."""
    moving = {name: matrix.detach().clone().requires_grad_() for name, matrix in weights.items()}
    active = {name: matrix > 0 for name, matrix in weights.items()}
    names, leaves = list(moving), list(moving.values())
    total = {name: torch.zeros_like(matrix) for name, matrix in weights.items()}
    with constant(supernet.parameters()):
        for x, y in batches:
            loss = task_of(supernet).loss(supernet(x, moving, active), y) / len(batches)
            slopes = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
            for name, slope in zip(names, slopes, strict=True):
                total[name] -= weights[name] * slope
    return total


def without_least(weights: Tensor, raises: Tensor) -> Tensor:
    """Each row without the operation that raises the loss least, unless it is the last: (edges, ops)."""
    least = raises.where(weights > 0, torch.inf).argmin(dim=1, keepdim=True)
    more = (weights > 0).sum(dim=1, keepdim=True) > 1
    kept = torch.where(more, weights.scatter(1, least, 0.0), weights)
    return normalise_rows(kept, weights)


def normalise_rows(kept: Tensor, before: Tensor) -> Tensor:
    """The rows that are kept with the sums that they had: (edges, ops)."""
    total = kept.sum(dim=1, keepdim=True)
    share = before.sum(dim=1, keepdim=True) / total.where(total > 0, 1.0)
    return kept * share


def ranked_rows(weights: Tensor, raises: Tensor) -> Tensor:
    """One-hot rows, the larger the more the loss rises without them: (edges, ops)."""
    rank = torch.tensor(ranks(raises.sum(dim=1).tolist()), dtype=weights.dtype)
    return rank[:, None] * (weights > 0)
