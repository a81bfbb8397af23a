"""Search in a pool of random architectures: score them all, evaluate the most promising ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch

from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.checks import NonNegativeInt, PositiveInt, above, at_most, checked
from nas_lightning.cost.counts import count_parameters
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.black_box.base import BlackBox

_REPEATS = 20_000  # in a row: that many, and nothing new is left to be found


class PoolSearch(BlackBox):
    """Base of the strategies with a pool; every round evaluates one of its architectures.

    Without an evaluation a round lets the pool grow, and that is all.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: where the images come from.
        benchmark: the table that `evaluation="table"` reads.
        pool_size: distinct architectures, drawn uniformly, that the first round scores; at most the space's.
        pool_per_round: how many join them in every later round.
        keep: the share of the pool that is scored: its networks with the most parameters.
        **black_box: see `BlackBox`.
    """

    @checked
    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        benchmark: TabularBenchmark | None = None,
        *,
        pool_size: PositiveInt = 100,
        pool_per_round: NonNegativeInt = 0,
        keep: Annotated[float, above(0), at_most(1)] = 1.0,
        **black_box: Any,
    ) -> None:
        super().__init__(space, network, data, benchmark, **black_box)
        self.pool_size, self.pool_per_round, self.keep = pool_size, pool_per_round, keep
        self.sizes: dict[Genotype, int] = {}  # parameters; none are counted where all are scored
        self.drawn: dict[Genotype, None] = {}
        self.exhausted = False
        self.promising: list[str] = []  # what the last choice was the first of
        self.draws = torch.Generator().manual_seed(self.seed)

    def play(self, number: int) -> Mapping[str, float]:
        self.examine(self.largest(self.draw(self.pool_size + number * self.pool_per_round)))
        if self.objective is None:
            return {}
        value = self.evaluate(self.choose(number))
        return {f"candidate/{self.objective.name}": value / 100}

    def examine(self, genotypes: Sequence[Genotype]) -> None:
        """Look at what the pool has."""
        self.score(genotypes)

    def draw(self, count: int) -> list[Genotype]:
        """The first `count` architectures of the pool, by the seed; a small space has fewer."""
        repeats = 0  # in a row
        while len(self.drawn) < count and not self.exhausted:
            genotype = self.space.sample(self.draws)
            repeats = repeats + 1 if genotype in self.drawn else 0
            self.exhausted = repeats > _REPEATS
            self.drawn[genotype] = None
        return list(self.drawn)[:count]

    def largest(self, drawn: list[Genotype]) -> list[Genotype]:
        """The share with the most parameters that is kept, in that order; all as they came where all are."""
        if self.keep == 1:
            return drawn
        new = [genotype for genotype in drawn if genotype not in self.sizes]
        if new:
            self.sizes.update(zip(new, self.spend("scoring", lambda: self._count(new)), strict=True))
        order = sorted(drawn, key=lambda genotype: -self.sizes[genotype])
        return order[: math.ceil(self.keep * len(drawn))]

    def _count(self, genotypes: list[Genotype]) -> list[int]:
        with torch.random.fork_rng(devices=[]):
            return [count_parameters(self.network(genotype)) for genotype in genotypes]

    def choose(self, number: int) -> Genotype:
        """The architecture that a round evaluates: the best by its scores that was not evaluated yet."""
        return self.first_new(self.ranking())

    def first_new(self, values: Mapping[str, float]) -> Genotype:
        """The largest value of those not evaluated, and not −∞; the largest of all where none is left."""
        worth = {notation: value for notation, value in values.items() if value > -torch.inf}
        if not worth:
            raise InputError(
                "expected an architecture with finite scores in the pool: a larger one, or other metrics",
                got=f"none of {len(values)}",
                where="strategy.pool_size",
            )
        new = [notation for notation in worth if notation not in self.evaluated]
        self.promising = sorted(new or worth, key=lambda notation: -worth[notation])
        return self.space.parse(self.promising[0])

    def expected(self, count: int) -> list[Genotype]:
        """The next best by what the round has chosen by."""
        return [self.space.parse(notation) for notation in self.promising[1 : 1 + count]]
