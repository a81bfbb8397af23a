"""Discretisation by perturbation: DARTS-PT (Wang et al. 2021, arXiv:2108.04392).

The weight of an operation says little about what it does for the supernet, so operations are judged by
what their removal costs (section 4): edge by edge, in random order, the operation without which validation
accuracy falls most is kept and the edge becomes discrete; then, node by node, the edges without which it
falls most, and the node's others go. It starts from the strategy's scores, as weights; a strategy without
starts from equal ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from nas_lightning.checks import NonNegativeInt, PositiveFloat, PositiveInt, Seed, checked
from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import Batch, judge_weights, place_batches
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.ops import NONE
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.derivation.base import (
    Derivation,
    Matrices,
    ranks,
    weights_at_the_end,
)
from nas_lightning.strategies.oneshot.weight_sharing import WeightSharing
from nas_lightning.tasks.multi_class import task_of
from nas_lightning.training.eager import SGD


class Perturbation(Derivation):
    """Derives a genotype from the supernet of any strategy with weights.

    Args:
        valid_batches: batches that every perturbed supernet is judged on.
        tune_batches: batches that the supernet trains on after each decision.
        tune_lr: learning rate of that training.
        seed: of the order of the edges.

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

    def __call__(self, strategy: WeightSharing, data: SearchData) -> list[Genotype]:
        """The selected genotype; the strategy's supernet is trained a little on the way."""
        weights = weights_at_the_end(strategy)
        tuning = data.train_batches(max(1, self.tune_batches))[: self.tune_batches]
        train = list(place_batches(strategy.supernet, tuning))
        valid = list(place_batches(strategy.supernet, data.valid_batches(self.valid_batches)))
        discretisation = Discretisation(
            strategy.space, strategy.supernet, weights, train, valid, self.tune_lr
        )
        return [discretisation.run(torch.Generator().manual_seed(self.seed))]


class Discretisation:
    """The decisions of one genotype, on weights of (edges, ops) that become discrete row by row.

    Args:
        space: the search space.
        supernet: the trained one; it is tuned on.
        weights: (edges, ops) per group, which rows are replaced in.
        train: batches that the supernet is tuned on.
        valid: batches that candidates are judged on.
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
        return self.space.discretise(scores)

    def keep_one(self, name: str, row: int) -> int:
        """Make a row one-hot at the operation whose removal costs most; returns its column."""
        names = self.space.groups[name].candidates[row]
        columns = [column for column, op in enumerate(names) if op != NONE]
        worth = [self.worth_without(name, row, column) for column in columns]
        column = columns[worth.index(min(worth))]
        self.weights[name][row] = 0.0
        self.weights[name][row, column] = 1.0
        return column

    def keep_edges(self, name: str, node: int, scores: Matrices) -> bool:
        """Score the discrete edges into a node, remove those that it does not keep; whether there are any."""
        rows = [row for row, (_, target) in enumerate(self.space.groups[name].edges) if target == node]
        left = [self.worth_without(name, row, slice(None)) for row in rows]
        for row, rank in zip(rows, ranks([-worth for worth in left]), strict=True):
            scores[name][row] = rank * self.weights[name][row]
        kept = self.space.one_hot(self.space.unlimited.discretise(scores))[name][rows]
        self.weights[name][rows] *= kept.to(self.weights[name])
        return int(kept.sum()) < len(rows)

    def worth_without(self, name: str, row: int, column: int | slice) -> float:
        """What the supernet is worth with a part of a row at zero."""
        without = {key: matrix.clone() for key, matrix in self.weights.items()}
        without[name][row, column] = 0.0
        return self.worth(without)

    def worth(self, weights: Matrices) -> float:
        """Validation accuracy."""
        return judge_weights(self.supernet, weights, self.valid).accuracy

    def tune(self) -> None:
        """Let the supernet's weights follow the decision."""
        for x, y in self.train:
            self.optimizer.zero_grad()
            task_of(self.supernet).loss(self.supernet(x, self.weights), y).backward()
            self.optimizer.step()
