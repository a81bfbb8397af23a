"""RoBoT: weights of training-free metrics, then greedy search (He et al. 2024, arXiv:2403.07591).

    s_w(A) = Σ_m w_m log(rank_m(A) / n)

The first rounds look for weights w: each evaluates the best of the pool by s_w that was not evaluated yet.
The later rounds evaluate the next best by the weights whose round found the best architecture. The paper adds
up the metrics' normalised values, with weights in [−1, 1] from Bayesian optimisation. Here ranks are added,
and weights are by default random and not negative: no metric is of use upside down, and a dozen evaluations
are too few to learn signs from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.checks import NonNegativeInt, checked
from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.log_ranks import MetricsChoice, log_ranks
from nas_lightning.randomness import seed_of_name
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.black_box.gaussian_process import suggest
from nas_lightning.strategies.black_box.greedy import Greedy

Weights = dict[str, float]


class Robot(Greedy):
    """Half of the rounds explore weights, the others exploit the best.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: where the images come from.
        benchmark: the table that `evaluation="table"` reads.
        metrics: that are weighed; `to_weigh` or None: zen and synflow, `top`: those of `AT_THE_TOP`,
            `default`: those of `COMBINED`.
        explore: rounds that look for weights; the first of them has equal ones.
        proposals: `random`, uniform where the weights add up to 1; `bayesian`, by a Gaussian process.
        signed: weights from −1 to 1 instead.
        **pool: see `Greedy`, `PoolSearch` and `BlackBox`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> network = lambda genotype: space.network(genotype, **sizes)
    >>> search = Robot(space, network, SearchData(Digits()), pool_size=20, explore=3, proposals="bayesian")
    >>> search.explore, search.objective.name
    (3, 'valid_accuracy')
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
        explore: NonNegativeInt = 5,
        proposals: Literal["random", "bayesian"] = "random",
        signed: bool = False,
        **pool: Any,
    ) -> None:
        chosen = "to_weigh" if metrics is None else metrics
        super().__init__(space, network, data, benchmark, metrics=chosen, **pool)
        self.explore, self.proposals, self.signed = explore, proposals, signed
        self.tried: list[tuple[Weights, str]] = []  # weights, and the notation of what they chose

    def choose(self, number: int) -> Genotype:
        weights = self._weights(number) if number < self.explore else self._best_weights()
        values = log_ranks(list(self.scored.values()), self.metrics, weights)
        genotype = self.first_new(dict(zip(self.scored, values, strict=True)))
        if number < self.explore:
            self.tried.append((weights, self.space.notation(genotype)))
        return genotype

    def _weights(self, number: int) -> Weights:
        if number == 0:
            return dict.fromkeys(self.metrics, 1.0)
        seed = seed_of_name(self.seed, f"weights {number}")
        low = -1.0 if self.signed else 0.0
        if self.proposals == "bayesian" and number > 1:
            return suggest(self._observations(), dict.fromkeys(self.metrics, (low, 1.0)), seed)
        return random_weights(list(self.metrics), seed, signed=self.signed)

    def _best_weights(self) -> Weights:
        """Those of the best round; equal ones where no round looked for any."""
        if not self._observations():
            return self._weights(0)
        return max(self._observations(), key=lambda pair: pair[1])[0]

    def _observations(self) -> list[tuple[Weights, float]]:
        """Weights and the value of what they chose, but for one that came too late."""
        return [(weights, self.evaluated[name]) for weights, name in self.tried if name in self.evaluated]

    def memory(self) -> dict[str, Any]:
        return {"tried": [[dict(weights), notation] for weights, notation in self.tried]}

    def remember(self, memory: Mapping[str, Any]) -> None:
        self.tried = [(weights, notation) for weights, notation in memory["tried"]]


def random_weights(names: list[str], seed: int, *, signed: bool = False) -> Weights:
    """Uniform on the simplex, whose entries are ≥ 0 and add up to 1; signed: uniform in the cube [−1, 1].

    >>> sum(random_weights(["a", "b", "c"], seed=0).values())
    1.0
    """
    draws = torch.rand(len(names), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if signed:
        return dict(zip(names, (2 * draws - 1).tolist(), strict=True))
    draws = -draws.clamp_min(1e-300).log()  # exponential variables, divided by their sum
    return dict(zip(names, (draws / draws.sum()).tolist(), strict=True))
