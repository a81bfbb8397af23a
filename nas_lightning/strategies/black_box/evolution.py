"""Regularised evolution (Real et al. 2019, arXiv:1802.01548, algorithm 1), over metrics or evaluations.

Every round draws S of the last P architectures, with replacement, and mutates the best of them; the oldest
leaves the population. The first P are drawn uniformly. The best of the whole history is the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.checks import PositiveInt, checked
from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.log_ranks import MetricsChoice, metrics_of
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.black_box.base import BlackBox


class Evolution(BlackBox):
    """A mutation changes one decision, as `SearchSpace.neighbours` has them.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: where the images come from.
        benchmark: the table that `evaluation="table"` reads.
        metrics: fitness where nothing is evaluated; several by the sum of their log-ranks among all so far.
            None: what the space says, or `default`: `nas_lightning.objectives.log_ranks.COMBINED`.
        population: P.
        sample: S.
        **black_box: see `BlackBox`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> network = lambda genotype: space.network(genotype, **sizes)
    >>> search = Evolution(space, network, SearchData(Digits()), population=10, evaluation="training")
    >>> search.sample, search.objective.name
    (10, 'valid_accuracy')
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
        population: PositiveInt = 50,
        sample: PositiveInt = 10,
        **black_box: Any,
    ) -> None:
        super().__init__(space, network, data, benchmark, **black_box)
        self.metrics = metrics_of(space, metrics, "default")
        self.population, self.sample = population, sample
        self.history: list[str] = []  # notations; the population is its end

    def play(self, number: int) -> Mapping[str, float]:
        young = len(self.history) < self.population
        genotype = self.space.sample(self.generator) if young else self._child()
        if self.objective is None:
            self.score([genotype])
            values = {}
        else:
            values = {f"candidate/{self.objective.name}": self.evaluate(genotype) / 100}
        self.history.append(self.space.notation(genotype))
        return values

    def _child(self) -> Genotype:
        alive = self.history[-self.population :]
        drawn = torch.randint(len(alive), (self.sample,), generator=self.generator).tolist()
        fitness = self.ranking() if self.objective is None else self.evaluated
        parent = max((alive[index] for index in drawn), key=lambda notation: fitness[notation])
        return self.space.mutate(self.space.parse(parent), self.generator)

    def memory(self) -> dict[str, Any]:
        return {"history": list(self.history)}

    def remember(self, memory: Mapping[str, Any]) -> None:
        self.history = list(memory["history"])
