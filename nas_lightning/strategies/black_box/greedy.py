"""Greedy search: the architectures that rank best untrained are evaluated one by one."""

from __future__ import annotations

from typing import Any

from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.checks import checked
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.objectives.log_ranks import MetricsChoice, metrics_of
from nas_lightning.objectives.short_training import Evaluator
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.black_box.pool_search import PoolSearch


class Greedy(PoolSearch):
    """Every round evaluates the next best of the pool, and the best of those is it.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: where the images come from.
        benchmark: the table that `evaluation="table"` reads.
        metrics: what the pool is ranked by; several by the sum of their log-ranks. None: what the
            space says, or `top`: `AT_THE_TOP`; `default`: `COMBINED`.
        evaluation: `training`, a short one, or `table`.
        **pool: see `PoolSearch` and `BlackBox`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> network = lambda genotype: space.network(genotype, **sizes)
    >>> search = Greedy(space, network, SearchData(Digits()), pool_size=20, epochs=1)
    >>> search.pool_size, search.objective.name
    (20, 'valid_accuracy')
    """

    @checked
    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        benchmark: TabularBenchmark | None = None,
        *,
        metrics: MetricsChoice | None = None,
        evaluation: Evaluator = "training",
        **pool: Any,
    ) -> None:
        super().__init__(space, network, data, benchmark, evaluation=evaluation, **pool)
        if self.objective is None:
            raise InputError(
                "expected an evaluation, training or table, of what ranks best",
                got="none",
                where="strategy.evaluation",
            )
        self.metrics = metrics_of(space, metrics, "top")
