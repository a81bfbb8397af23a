"""Regularized evolution (Real et al. 2019, arXiv:1802.01548, algorithm 1), over metrics or evaluations.

Every round draws S of the last P architectures with replacement and mutates the best of them; the oldest
leaves the population. The first P are random. The result is the best of the whole history.

With objectives the selection is that of NSGA-II (Deb et al. 2002): a generation has P children, and the best
P of parents and children survive, by rank and crowding distance. The result is the Pareto front of the whole
history. Children are mutants without crossover; a child that was evaluated before is mutated again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.fronts import Objectives
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.black_box.fronts import FrontSearch
from nas_lightning.validation import PositiveInt, checked

TRIES = 20
"""The largest number of mutations to find a new architecture."""


class Evolution(FrontSearch):
    """Regularized evolution; a mutation is one of `SearchSpace.neighbors`.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: the images.
        benchmark: the table for `evaluation="table"`.
        objectives: the objectives of a search for a Pareto front.
        population: P.
        sample: S.
        **black_box: see `FrontSearch` and `BlackBox`. Without an evaluation the fitness is the sum of the
            metrics' log-ranks among all architectures so far.

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
        objectives: Objectives | None = None,
        *,
        population: PositiveInt = 50,
        sample: PositiveInt = 10,
        **black_box: Any,
    ) -> None:
        super().__init__(space, network, data, benchmark, objectives, **black_box)
        self.population, self.sample = population, sample
        self.history: list[str] = []  # notations; without objectives the population is its end
        self.alive: list[str] = []  # with objectives: the parents

    def run_round(self, number: int) -> Mapping[str, float]:
        genotype = self._next()
        values = self.look_at(genotype)
        self.history.append(self.space.notation(genotype))
        if self.objectives is not None and len(self.history) % self.population == 0:
            self.alive = self._best(list(dict.fromkeys([*self.alive, *self.history[-self.population :]])))
        return values

    def likely_next(self, count: int) -> list[Genotype]:
        """Draw the next children as if none of them became a parent; the generator's state is restored."""
        state, history, found = self.generator.get_state(), self.history, list[Genotype]()
        for _ in range(count):
            self.history = [*history, *map(self.space.notation, found)]
            found.append(self._next())
        self.history = history
        self.generator.set_state(state)
        return found

    def _next(self) -> Genotype:
        young = len(self.history) < self.population
        return self.space.sample(self.generator) if young else self._child()

    def _child(self) -> Genotype:
        if self.objectives is not None:
            return self._new_child()
        alive = self.history[-self.population :]
        known = self.ranking() if self.objective is None else self.evaluated
        fitness = {notation: known.get(notation, -math.inf) for notation in alive}
        parent = max((alive[index] for index in self._draw(alive)), key=lambda notation: fitness[notation])
        return self.space.mutate(self.space.parse(parent), self.generator)

    def _draw(self, alive: list[str]) -> list[int]:
        return torch.randint(len(alive), (self.sample,), generator=self.generator).tolist()

    def _new_child(self) -> Genotype:
        """Mutate the best of S parents, which are sorted by rank and crowding."""
        child = self.space.parse(self.alive[min(self._draw(self.alive))])
        for _ in range(TRIES):
            child = self.space.mutate(child, self.generator)
            if self.space.notation(child) not in self.history:
                break
        return child

    def _best(self, notations: list[str]) -> list[str]:
        """Return the best P by rank and crowding, in this order."""
        assert self.objectives is not None
        order = self.objectives.order(self.candidates(notations), self.ranked)
        return [notations[row] for row in order[: self.population].tolist()]

    def search_state(self) -> dict[str, Any]:
        return {**super().search_state(), "history": list(self.history), "alive": list(self.alive)}

    def load_search_state(self, state: Mapping[str, Any]) -> None:
        super().load_search_state(state)
        self.history, self.alive = list(state["history"]), list(state["alive"])
