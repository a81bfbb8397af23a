"""Random search over training-free metrics: the best of many architectures by what they score untrained.

As NASWOT does with its metric (Mellor et al. 2021, arXiv:2006.04647, algorithm 1). Without another choice it
ranks by six metrics at once, see `nas_lightning.objectives.log_ranks`.

Where several things count, the front of the pool is the result. With an accuracy among them every round
evaluates one of the architectures that nothing else is better than, with the ranking in the accuracy's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.checks import NonNegativeInt, PositiveInt, checked
from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.fronts.objectives import Objectives
from nas_lightning.randomness import choose, seed_of_name
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.black_box.front_search import FrontSearch
from nas_lightning.strategies.black_box.pool_search import PoolSearch


class MetricSearch(FrontSearch, PoolSearch):
    """With an evaluation, every round evaluates the next best of the pool, and the best of those is it.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: where the images come from.
        benchmark: the table that `evaluation="table"` reads.
        objectives: what counts, where it is several things.
        pool_size: architectures of the first round.
        pool_per_round: how many join them in every later round.
        **pool: see `FrontSearch`, `PoolSearch` and `BlackBox`. The metrics are what the pool is ranked by.

    >>> import pytorch_lightning as pl
    >>> from nas_lightning.metrics import Params
    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> network = lambda genotype: space.network(genotype, **sizes)
    >>> data = SearchData(Digits(subset=64))
    >>> search = MetricSearch(space, network, data, metrics={"params": Params()}, pool_size=5)
    >>> off = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    >>> pl.Trainer(max_steps=2, accelerator="cpu", **dict.fromkeys(off, False)).fit(search, data)
    >>> best, ranking = space.notation(search.derive()[0]), search.ranking()
    >>> len(ranking), ranking[best] == max(ranking.values())
    (25, True)
    """

    ranks_candidates = True

    @checked
    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        benchmark: TabularBenchmark | None = None,
        objectives: Objectives | None = None,
        *,
        pool_size: PositiveInt = 20,
        pool_per_round: NonNegativeInt = 20,
        **pool: Any,
    ) -> None:
        sizes: dict[str, Any] = {"pool_size": pool_size, "pool_per_round": pool_per_round}
        super().__init__(space, network, data, benchmark, objectives, **sizes, **pool)

    def examine(self, genotypes: Sequence[Genotype]) -> None:
        if self.metrics:
            super().examine(genotypes)
        for genotype in genotypes:
            self.count(genotype)

    def choose(self, number: int) -> Genotype:
        if self.objectives is None:
            return super().choose(number)
        ranking = self.ranking()
        names = [name for name in ranking if name not in self.evaluated] or list(ranking)
        known = zip(names, self.candidates(names), strict=True)
        promising = [one._replace(accuracy=ranking[name]) for name, one in known]
        best = self.objectives.front(promising, self.ranked).tolist() or range(len(names))
        generator = torch.Generator().manual_seed(seed_of_name(self.seed, f"evaluation {number}"))
        return self.space.parse(names[choose(best, generator)])
