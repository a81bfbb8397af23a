"""Shapley values of operations (Shapley-NAS, Xiao et al. 2022, arXiv:2206.09811).

Operations of a supernet are players who earn its validation accuracy V together. What one of N is worth is
its contribution, averaged over the orders π in which they may join,

    φ_o = 1/N! Σ_π [V(π before o, with o) − V(π before o)],

here over as many random orders as are asked for. An order is gone through from all operations on, each
leaving in turn; once little of the accuracy is left, those who remain have contributed nothing. The paper
moves α by these values in every epoch; here they decide at the end, and α is the strategy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from nas_lightning.checks import PositiveInt, Seed, Share, checked
from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import judge_weights, place_batches
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.ops import NONE
from nas_lightning.strategies.derivation.base import Derivation, Matrices, ranks, weights_at_the_end
from nas_lightning.strategies.oneshot.weight_sharing import WeightSharing

Player = tuple[str, int, int]
"""A group, a row and a column."""


class Shapley(Derivation):
    """Derives a genotype by the Shapley values of all operations.

    Args:
        orders: random orders that contributions are averaged over; each judges every operation once.
        truncation: share of the whole supernet's accuracy below which an order ends.
        valid_batches: batches that accuracies are of.
        seed: of the orders.

    >>> from nas_lightning.data import Fake
    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies import Darts
    >>> space, data = NasBench201(), SearchData(Fake(train_size=32))
    >>> search = Darts(space, space.supernet(in_channels=3, num_classes=4, channels=2, cells=1))
    >>> [genotype] = Shapley(orders=1, valid_batches=1)(search, data)
    >>> space.check(genotype)
    """

    @checked
    def __init__(
        self,
        orders: PositiveInt = 10,
        truncation: Share = 0.5,
        valid_batches: PositiveInt = 1,
        seed: Seed = 0,
    ) -> None:
        self.orders, self.truncation = orders, truncation
        self.valid_batches, self.seed = valid_batches, seed

    def __call__(self, strategy: WeightSharing, data: SearchData) -> list[Genotype]:
        supernet, weights, space = strategy.supernet, weights_at_the_end(strategy), strategy.space
        batches = list(place_batches(supernet, data.valid_batches(self.valid_batches)))
        players, generator = all_players(space), torch.Generator().manual_seed(self.seed)

        def accuracy(present: Sequence[int]) -> float:
            return judge_weights(
                supernet, coalition(weights, [players[i] for i in present]), batches
            ).accuracy

        orders = (torch.randperm(len(players), generator=generator).tolist() for _ in range(self.orders))
        values = shapley_values(len(players), accuracy, orders, self.truncation)
        scores = {name: torch.zeros(group.shape) for name, group in space.groups.items()}
        for (name, row, column), rank in zip(players, ranks(values), strict=True):
            scores[name][row, column] = rank
        return [space.discretise(scores)]


def shapley_values(
    players: int,
    worth: Callable[[Sequence[int]], float],
    orders: Iterable[Sequence[int]],
    truncation: float = 0.0,
) -> list[float]:
    """φ of each player, over the orders in which they leave.

    >>> shapley_values(2, lambda present: float(len(present) == 2), [[0, 1], [1, 0]])  # a glove each
    [0.5, 0.5]
    """
    whole = worth(range(players))
    values, count = [0.0] * players, 0
    for order in orders:
        count += 1
        before = whole
        for left, player in enumerate(order, 1):
            if before < truncation * whole:
                break
            after = worth(sorted(order[left:]))
            values[player] += before - after
            before = after
    return [value / count for value in values]


def all_players(space: SearchSpace) -> list[Player]:
    """Every operation of every row that computes something."""
    return [
        (name, row, column)
        for name, group in space.groups.items()
        for row, names in enumerate(group.candidates)
        for column, op in enumerate(names)
        if op != NONE
    ]


def coalition(weights: Matrices, present: Iterable[Player]) -> Matrices:
    """The weights of these operations, all others at zero."""
    found = {name: torch.zeros_like(matrix) for name, matrix in weights.items()}
    for name, row, column in present:
        found[name][row, column] = weights[name][row, column]
    return found
