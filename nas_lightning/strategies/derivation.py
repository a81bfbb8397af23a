"""Derivations of a genotype from a trained supernet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.optim import SGD

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.activations import Naswot
from nas_lightning.metrics.base import Metric
from nas_lightning.objectives.inherited import Batch, judge_weights, place_batches
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group, without_none
from nas_lightning.spaces.operations import NONE
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.base import Strategy
from nas_lightning.strategies.supernet import SupernetStrategy
from nas_lightning.tasks import task_of
from nas_lightning.training.gradients import constant
from nas_lightning.utils.devices import seeded
from nas_lightning.validation import NonNegativeInt, PositiveFloat, PositiveInt, Seed, Share, checked

Matrices = dict[str, Tensor]
"""One matrix of (edges, ops) per group."""


class Derivation(ABC):
    """Derives genotypes from a trained supernet, instead of the strategy's `derive`."""

    def check(self, strategy: Strategy) -> None:
        """Raise an `InputError` unless the strategy trains a supernet with operations on edges."""
        if not isinstance(strategy, SupernetStrategy):
            raise InputError(
                "This derivation needs a strategy that trains a supernet",
                got=type(strategy).__name__,
                where="derivation",
            )
        if not all(group.on_edges for group in strategy.space.groups.values()):
            raise InputError(
                "This derivation needs a space that chooses operations on edges",
                got=strategy.space.name,
                where="derivation",
            )

    @abstractmethod
    def __call__(self, strategy: SupernetStrategy, data: SearchData) -> list[Genotype]:
        """Return the genotypes, the best first."""


def equal_weights(strategy: SupernetStrategy) -> Matrices:
    """Return the same share for every operation of a row, on the supernet's device."""
    groups, device = strategy.space.groups.items(), next(strategy.supernet.parameters()).device
    return {name: torch.full(group.shape, 1 / group.shape[1], device=device) for name, group in groups}


def final_weights(strategy: SupernetStrategy) -> Matrices:
    """Return the strategy's scores (not relaxed weights, which may be a sample), or equal weights."""
    scores = strategy.scores()
    return {name: scores.get(name, equal).clone() for name, equal in equal_weights(strategy).items()}


def ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value: 1 for the smallest, the same for equal values.

    >>> ranks([0.5, -3.0, 0.5])
    [2.0, 1.0, 2.0]
    """
    return [1.0 + sum(other < value for other in values) for value in values]


# Discretization by perturbation: DARTS-PT (Wang et al. 2021, arXiv:2108.04392).
#
# The weight of an operation says little about its contribution to the supernet, so operations are judged by
# the cost of their removal (section 4): edge by edge, in random order, the operation without which the
# validation accuracy falls most is kept, and the edge becomes discrete; then, node by node, the edges without
# which it falls most are kept. The initial weights are the strategy's scores, or equal if it has none.


class Perturbation(Derivation):
    """DARTS-PT: keep the operations and edges whose removal costs most accuracy.

    Args:
        valid_batches: number of batches on which every perturbed supernet is judged.
        tune_batches: number of training batches after each decision.
        tune_lr: learning rate of that training.
        seed: seed of the order of the edges.

    >>> from nas_lightning.data import Fake
    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies import Darts
    >>> space, data = NasBench201(), SearchData(Fake(train_size=32))
    >>> search = Darts(space, space.supernet(in_channels=3, num_classes=4, channels=2, cells=1))
    >>> [genotype] = Perturbation(valid_batches=1, tune_batches=0)(search, data)
    >>> space.check(genotype)
    """

    @checked
    def __init__(
        self,
        valid_batches: PositiveInt = 2,
        tune_batches: NonNegativeInt = 2,
        tune_lr: PositiveFloat = 0.001,
        seed: Seed = 0,
    ) -> None:
        self.valid_batches, self.tune_batches = valid_batches, tune_batches
        self.tune_lr, self.seed = tune_lr, seed

    def __call__(self, strategy: SupernetStrategy, data: SearchData) -> list[Genotype]:
        """Return the selected genotype; this tunes the strategy's supernet."""
        weights = final_weights(strategy)
        tuning = data.train_batches(max(1, self.tune_batches))[: self.tune_batches]
        train = list(place_batches(strategy.supernet, tuning))
        valid = list(place_batches(strategy.supernet, data.valid_batches(self.valid_batches)))
        discretization = Discretization(
            strategy.space, strategy.supernet, weights, train, valid, self.tune_lr
        )
        return [discretization.run(torch.Generator().manual_seed(self.seed))]


class Discretization:
    """Makes weights (edges, ops) discrete, row by row.

    Args:
        space: the search space.
        supernet: the trained supernet, which is tuned.
        weights: (edges, ops) per group; modified in place.
        train: batches for tuning.
        valid: batches for judging.
        lr: learning rate of the tuning.
    """

    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        weights: Matrices,
        train: Sequence[Batch],
        valid: Sequence[Batch],
        lr: float,
    ) -> None:
        self.space, self.supernet, self.weights = space, supernet, weights
        self.train, self.valid = train, valid
        self.optimizer = SGD(supernet.parameters(), lr=lr, momentum=0.9)

    def run(self, generator: torch.Generator) -> Genotype:
        rows = [(name, row) for name, group in self.space.groups.items() for row in range(group.shape[0])]
        for index in torch.randperm(len(rows), generator=generator).tolist():
            name, row = rows[index]
            self.keep_one(name, row)
            self.tune()
        groups = self.space.groups.items()
        nodes = [(name, node) for name, group in groups for node in sorted({t for _, t in group.edges})]
        scores = {name: torch.zeros_like(matrix) for name, matrix in self.weights.items()}
        for index in torch.randperm(len(nodes), generator=generator).tolist():
            name, node = nodes[index]
            if self.keep_edges(name, node, scores):
                self.tune()
        return self.space.discretize(scores)

    def keep_one(self, name: str, row: int) -> int:
        """Make a row one-hot at the operation whose removal costs most, and return its column."""
        names = self.space.groups[name].candidates[row]
        columns = [column for column, op in enumerate(names) if op != NONE]
        worth = [self.worth_without(name, row, column) for column in columns]
        column = columns[worth.index(min(worth))]
        self.weights[name][row] = 0.0
        self.weights[name][row, column] = 1.0
        return column

    def keep_edges(self, name: str, node: int, scores: Matrices) -> bool:
        """Score the edges into a node and remove those that it drops; return whether there were any."""
        rows = [row for row, (_, target) in enumerate(self.space.groups[name].edges) if target == node]
        left = [self.worth_without(name, row, slice(None)) for row in rows]
        for row, rank in zip(rows, ranks([-worth for worth in left]), strict=True):
            scores[name][row] = rank * self.weights[name][row]
        kept = self.space.one_hot(self.space.unlimited.discretize(scores))[name][rows]
        self.weights[name][rows] *= kept.to(self.weights[name])
        return int(kept.sum()) < len(rows)

    def worth_without(self, name: str, row: int, column: int | slice) -> float:
        """Return the worth of the supernet with a part of a row at zero."""
        without = {key: matrix.clone() for key, matrix in self.weights.items()}
        without[name][row, column] = 0.0
        return self.worth(without)

    def worth(self, weights: Matrices) -> float:
        """Return the validation accuracy."""
        return judge_weights(self.supernet, weights, self.valid).accuracy

    def tune(self) -> None:
        """Train the supernet's weights on the tuning batches."""
        for x, y in self.train:
            self.optimizer.zero_grad()
            task_of(self.supernet).loss(self.supernet(x, self.weights), y).backward()
            self.optimizer.step()


# Pruning by gradients: remove the operation whose removal raises the validation loss least.
#
# To first order, setting the weight w_o of an operation to zero changes the loss by
#
#     L(w − w_o e_o) − L(w) ≈ −w_o ∂L/∂w_o                       (Molchanov et al. 2017, arXiv:1611.06440)
#
# so one backward pass judges all operations. The supernet is pruned in rounds, one operation per edge in
# each, as in TE-NAS (Chen et al. 2021, arXiv:2102.11535, algorithm 1), because every removal changes the
# value of the others; a row keeps the sum of its weights. At the end each edge has one operation, and edges
# are ranked by the same difference.


class Pruning(Derivation):
    """Remove from every edge, round by round, the operation with the smallest effect on the loss.

    Args:
        valid_batches: number of batches in the loss.

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

    def __call__(self, strategy: SupernetStrategy, data: SearchData) -> list[Genotype]:
        batches = list(place_batches(strategy.supernet, data.valid_batches(self.valid_batches)))
        return [prune(strategy.space, strategy.supernet, final_weights(strategy), batches)]


def prune(space: SearchSpace, supernet: Supernet, weights: Matrices, batches: Sequence[Batch]) -> Genotype:
    """Prune weights (edges, ops) per group until one genotype is left."""
    weights = {name: without_zero_operation(w, space.groups[name]) for name, w in weights.items()}
    while any(bool(((w > 0).sum(dim=1) > 1).any()) for w in weights.values()):
        raises = raised_loss(supernet, weights, batches)
        weights = {name: without_least(w, raises[name]) for name, w in weights.items()}
    raises = raised_loss(supernet, weights, batches)
    scores = {name: ranked_rows(w, raises[name]) for name, w in weights.items()}
    return space.discretize(scores)


def without_zero_operation(weights: Tensor, group: Group) -> Tensor:
    """Return the weights without the zero operation, equal in rows without any other weight: (edges, ops)."""
    real = without_none(weights, group)
    empty = real.sum(dim=1, keepdim=True) == 0
    return normalize_rows(real.where(~empty, without_none(torch.ones_like(weights), group)), weights)


def raised_loss(supernet: Supernet, weights: Matrices, batches: Sequence[Batch]) -> Matrices:
    """Return −w ∂L/∂w, the first-order rise of the loss without each operation: (edges, ops) per group."""
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
    """Remove from each row the operation that raises the loss least, unless it is the last: (edges, ops)."""
    least = raises.where(weights > 0, torch.inf).argmin(dim=1, keepdim=True)
    more = (weights > 0).sum(dim=1, keepdim=True) > 1
    kept = torch.where(more, weights.scatter(1, least, 0.0), weights)
    return normalize_rows(kept, weights)


def normalize_rows(kept: Tensor, before: Tensor) -> Tensor:
    """Rescale the remaining weights of each row to the row's sum before: (edges, ops)."""
    total = kept.sum(dim=1, keepdim=True)
    share = before.sum(dim=1, keepdim=True) / total.where(total > 0, 1.0)
    return kept * share


def ranked_rows(weights: Tensor, raises: Tensor) -> Tensor:
    """Return one-hot rows, scaled by the rank of their rise of the loss: (edges, ops)."""
    rank = weights.new_tensor(ranks(raises.sum(dim=1).tolist()))
    return rank[:, None] * (weights > 0)


# Shapley values of operations (Shapley-NAS, Xiao et al. 2022, arXiv:2206.09811).
#
# The operations of a supernet are players of a cooperative game whose worth is the validation accuracy V. The
# value of one of N players is its contribution, averaged over the orders π in which they can join,
#
#     φ_o = 1/N! Σ_π [V(π before o, with o) − V(π before o)],
#
# here over a number of random orders. Each order starts from all operations, which leave one after the other;
# once little of the accuracy is left, the remaining ones contribute nothing. The paper updates α by these
# values in every epoch; here they decide at the end.

Player = tuple[str, int, int]
"""Group, row, and column of an operation."""


class Shapley(Derivation):
    """Keep the operations with the largest Shapley values of the validation accuracy.

    Args:
        orders: number of random orders; each judges every operation once.
        truncation: share of the whole supernet's accuracy below which an order ends.
        valid_batches: number of batches per accuracy.
        seed: seed of the orders.

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

    def __call__(self, strategy: SupernetStrategy, data: SearchData) -> list[Genotype]:
        supernet, weights, space = strategy.supernet, final_weights(strategy), strategy.space
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
        return [space.discretize(scores)]


def shapley_values(
    players: int,
    worth: Callable[[Sequence[int]], float],
    orders: Iterable[Sequence[int]],
    truncation: float = 0.0,
) -> list[float]:
    """Return φ of each player, averaged over orders in which the players leave.

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
    """Return every operation of every row except the zero operation."""
    return [
        (name, row, column)
        for name, group in space.groups.items()
        for row, names in enumerate(group.candidates)
        for column, op in enumerate(names)
        if op != NONE
    ]


def coalition(weights: Matrices, present: Iterable[Player]) -> Matrices:
    """Return the weights of these operations, with all others at zero."""
    found = {name: torch.zeros_like(matrix) for name, matrix in weights.items()}
    for name, row, column in present:
        found[name][row, column] = weights[name][row, column]
    return found


# Zero-Cost-PT (Xiang et al. 2023, arXiv:2106.06799).
#
# Like DARTS-PT it keeps, edge by edge and then node by node, the operation without which the supernet is
# worth least,
#
#     arg min_o S(A − o),
#
# but the worth is a training-free metric S on one batch. It starts from an untrained supernet with equal
# weights, in several random orders of the edges; the result is the genotype whose path has the best S.

NASWOT = Naswot()


class ZeroCost(Derivation):
    """Keep the operations without which a training-free metric of the supernet is worst.

    Args:
        metric: S.
        untrained: start from an untrained supernet with equal weights, as in the paper; False: from the
            trained one with the strategy's scores.
        orders: number of orders of the edges, of which the best genotype counts; the paper has 10.
        seed: seed of the orders and of the untrained supernet.

    >>> from nas_lightning.data import Fake
    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies import Darts
    >>> space, data = NasBench201(), SearchData(Fake(train_size=32))
    >>> search = Darts(space, space.supernet(in_channels=3, num_classes=4, channels=2, cells=1))
    >>> [genotype] = ZeroCost(orders=1)(search, data)
    >>> space.check(genotype)
    """

    @checked
    def __init__(
        self, metric: Metric = NASWOT, untrained: bool = True, orders: PositiveInt = 1, seed: int = 0
    ) -> None:
        self.metric, self.untrained, self.orders, self.seed = metric, untrained, orders, seed

    def __call__(self, strategy: SupernetStrategy, data: SearchData) -> list[Genotype]:
        supernet, weights = strategy.supernet, final_weights(strategy)
        if self.untrained:
            supernet, weights = initialize_weights(supernet, self.seed), equal_weights(strategy)
        (batch,) = place_batches(supernet, data.train_batches(1))
        found: list[tuple[float, Genotype]] = []
        for order in range(self.orders):
            start = {name: matrix.clone() for name, matrix in weights.items()}
            decisions = MetricDiscretization(strategy.space, supernet, start, batch, self.metric)
            genotype = decisions.run(torch.Generator().manual_seed(1_000_003 * self.seed + order))
            found.append((decisions.worth(strategy.space.one_hot(genotype)), genotype))
        return [max(found, key=lambda item: item[0])[1]]


class MetricDiscretization(Discretization):
    """Discretization by a metric of the supernet, without tuning.

    Args:
        space: the search space.
        supernet: the supernet.
        weights: (edges, ops) per group; modified in place.
        batch: the batch of the metric.
        metric: the worth of the supernet.
    """

    def __init__(
        self, space: SearchSpace, supernet: Supernet, weights: Matrices, batch: Batch, metric: Metric
    ) -> None:
        super().__init__(space, supernet, weights, [], [batch], lr=0.0)
        self.metric = metric

    def worth(self, weights: Matrices) -> float:
        network, (batch,) = WeighedSupernet(self.supernet, weights), self.valid
        return self.metric.orient(float(self.metric(network, batch)))


class WeighedSupernet(nn.Module):
    """A supernet with fixed architecture weights, as a network for metrics.

    Args:
        supernet: the supernet.
        weights: (edges, ops) per group.
    """

    def __init__(self, supernet: Supernet, weights: Matrices) -> None:
        super().__init__()
        self.supernet, self.task = supernet, task_of(supernet)
        parameter = next(supernet.parameters())
        self.weights = {name: matrix.to(parameter) for name, matrix in weights.items()}

    def forward(self, x: Tensor) -> Tensor:
        return self.supernet(x, self.weights)


def initialize_weights(supernet: Supernet, seed: int) -> Supernet:
    """Return a copy of the supernet with newly initialized weights, drawn on the CPU."""
    device = next(supernet.parameters()).device
    fresh = deepcopy(supernet).cpu()
    with seeded(seed):
        for module in fresh.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear, nn.BatchNorm2d)):
                module.reset_parameters()
    return fresh.to(device)
