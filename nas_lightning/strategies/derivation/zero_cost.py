"""Zero-Cost-PT: what operations are worth before any training (Xiang et al. 2023, arXiv:2106.06799).

As DARTS-PT does, edge by edge and then node by node, it keeps the operation without which the supernet is
worth least,

    arg min_o S(A − o),

but what a supernet is worth is what a training-free metric S says of it, on one batch. It begins with an
untrained supernet whose operations have equal weights, in several random orders of the edges; the genotype
whose path has the best S is the result.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.naswot import Naswot
from nas_lightning.objectives.inherited import Batch, place_batches
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.derivation.base import (
    Derivation,
    Matrices,
    equal_weights,
    weights_at_the_end,
)
from nas_lightning.strategies.derivation.perturbation import Discretisation
from nas_lightning.strategies.oneshot.weight_sharing import WeightSharing
from nas_lightning.tasks.multi_class import task_of

NASWOT = Naswot()


class ZeroCost(Derivation):
    """Derives a genotype by a training-free metric of the supernet without each operation.

    Args:
        metric: S.
        untrained: begin with a supernet as it is before training, and with equal weights, as the paper does;
            else with the trained one and the strategy's scores.
        orders: of the edges, of which the one with the best genotype counts; the paper has 10.
        seed: of the orders, and of the untrained supernet.

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

    def __call__(self, strategy: WeightSharing, data: SearchData) -> list[Genotype]:
        supernet, weights = strategy.supernet, weights_at_the_end(strategy)
        if self.untrained:
            supernet, weights = initialise_weights(supernet, self.seed), equal_weights(strategy.space)
        (batch,) = place_batches(supernet, data.train_batches(1))
        found: list[tuple[float, Genotype]] = []
        for order in range(self.orders):
            start = {name: matrix.clone() for name, matrix in weights.items()}
            decisions = MetricDiscretisation(strategy.space, supernet, start, batch, self.metric)
            genotype = decisions.run(torch.Generator().manual_seed(1_000_003 * self.seed + order))
            found.append((decisions.worth(strategy.space.one_hot(genotype)), genotype))
        return [max(found, key=lambda item: item[0])[1]]


class MetricDiscretisation(Discretisation):
    """Decisions by what a metric says of the supernet, which is not trained on the way.

    Args:
        space: the search space.
        supernet: as it is judged.
        weights: (edges, ops) per group, which rows are replaced in.
        batch: that the metric is computed on.
        metric: what the supernet is worth.
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
    """A supernet with its architecture weights: a network, as metrics know them.

    Args:
        supernet: whose parameters these are.
        weights: (edges, ops) per group.
    """

    def __init__(self, supernet: Supernet, weights: Matrices) -> None:
        super().__init__()
        self.supernet, self.task = supernet, task_of(supernet)
        parameter = next(supernet.parameters())
        self.weights = {name: matrix.to(parameter) for name, matrix in weights.items()}

    def forward(self, x: Tensor) -> Tensor:
        return self.supernet(x, self.weights)


def initialise_weights(supernet: Supernet, seed: int) -> Supernet:
    """A copy of the supernet as it may be before training."""
    fresh = deepcopy(supernet)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in fresh.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear, nn.BatchNorm2d)):
                module.reset_parameters()
    return fresh
