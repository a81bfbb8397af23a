"""Optuna's samplers propose architectures (Akiba et al. 2019, arXiv:1907.10902).

Every row of every group has a categorical parameter for each candidate that it keeps. If genotypes keep only
some rows, such as two of the edges into a node, each row also has a strength, and the strongest rows are
kept. The sampler gets all earlier trials with their current values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.objectives.fronts import Objectives
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.black_box.fronts import FrontSearch
from nas_lightning.utils.randomness import seed_of_name
from nas_lightning.validation import PositiveInt, checked

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler


_FAR = 1e9
"""Replaces infinite values, of networks that compute nothing."""
Trial = dict[str, Any]


class OptunaSearch(FrontSearch):
    """In every round the sampler proposes one architecture, which is scored or evaluated.

    Limits are constraints of the sampler; if the proposal exceeds one, the nearest architecture within is
    taken.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: the images.
        benchmark: the table for `evaluation="table"`.
        objectives: the objectives of a search for a Pareto front.
        sampler: `tpe`, `nsga2`, or `gp` (Gaussian process).
        starts: number of random architectures at the start; for `nsga2` the population size.
        **black_box: see `FrontSearch` and `BlackBox`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> network = lambda genotype: space.network(genotype, **sizes)
    >>> search = OptunaSearch(space, network, SearchData(Digits()), sampler="nsga2", starts=10)
    >>> len(search.distributions), type(search.build_sampler(0)).__name__
    (6, 'NSGAIISampler')
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
        sampler: Literal["tpe", "nsga2", "gp"] = "tpe",
        starts: PositiveInt = 20,
        **black_box: Any,
    ) -> None:
        super().__init__(space, network, data, benchmark, objectives, **black_box)
        if not space.groups:
            raise InputError(
                "strategy=optuna needs a space with groups of decisions", got=space.name, where="strategy"
            )
        self.sampler, self.starts = sampler, starts
        self.distributions = _distributions(space)
        self.trials: list[Trial] = []  # in plain containers, for checkpoints

    def run_round(self, number: int) -> Mapping[str, float]:
        study = self._study(number)
        trial = study.ask(self.distributions)
        scores = _scores(self.space, trial.params)
        genotype = self.space.discretize(scores)
        values = self.look_at(genotype)
        excess = max([0.0, *self.space.derived_excess(scores).values()])
        known = {"notation": self.space.notation(genotype), "excess": excess}
        self.trials.append({"params": trial.params, "system": dict(study.trials[-1].system_attrs), **known})
        return values

    def build_sampler(self, seed: int) -> BaseSampler:
        """Return the Optuna sampler with this seed."""
        from optuna import samplers

        if self.sampler == "nsga2":
            return samplers.NSGAIISampler(population_size=max(2, self.starts), seed=seed)
        kind = samplers.TPESampler if self.sampler == "tpe" else samplers.GPSampler
        return kind(n_startup_trials=self.starts, seed=seed)

    def _study(self, number: int) -> Study:
        """Return a study with all trials so far and their current values."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        seed = seed_of_name(self.seed, f"trial {number}") % 2**32
        count = 1 if self.objectives is None else len(self.objectives.names)
        study = optuna.create_study(directions=["minimize"] * count, sampler=self.build_sampler(seed))
        values = self._values()
        for trial in self.trials:
            made = optuna.trial.create_trial(
                params=trial["params"],
                distributions=self.distributions,
                values=values[trial["notation"]],
                system_attrs=dict(trial["system"]),
                constraints={"limits": trial["excess"]},
            )
            study.add_trial(made)
        return study

    def _values(self) -> dict[str, list[float]]:
        """Return the values that samplers minimize, by notation."""
        if self.objectives is None:
            worth = self.ranking() if self.objective is None else self.evaluated
            return {name: [min(-value, _FAR)] for name, value in worth.items()}
        seen = self.seen()
        if not seen:
            return {}
        values = self.objectives.minimized(self.objectives.columns(self.candidates(seen), self.ranked))
        return dict(zip(seen, np.clip(values, -_FAR, _FAR).tolist(), strict=True))

    def search_state(self) -> dict[str, Any]:
        return {**super().search_state(), "trials": [dict(trial) for trial in self.trials]}

    def load_search_state(self, state: Mapping[str, Any]) -> None:
        super().load_search_state(state)
        self.trials = [dict(trial) for trial in state["trials"]]


def _distributions(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Return a categorical parameter for every row, and a strength if genotypes leave rows out."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    hot = space.one_hot(space.sample(torch.Generator().manual_seed(0)))
    found: dict[str, BaseDistribution] = {}
    for name, group in space.groups.items():
        rows, columns = group.shape
        takes_all = bool((hot[name].sum(dim=1) == group.draw).all())
        for row in range(rows):
            for draw in range(group.draw):
                found[f"{name}/{row}/{draw}"] = CategoricalDistribution(range(columns))
            if not takes_all:
                found[f"{name}/{row}/strength"] = FloatDistribution(0.0, 1.0)
    return found


def _scores(space: SearchSpace, params: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return parameters as scores (edges, ops): each row's candidate has its strength, others have 0."""
    scores = {}
    for name, group in space.groups.items():
        matrix = torch.zeros(group.shape)
        for row in range(group.shape[0]):
            chosen = [params[f"{name}/{row}/{draw}"] for draw in range(group.draw)]
            matrix[row, chosen] = 1.0 + params.get(f"{name}/{row}/strength", 0.0)
        scores[name] = matrix
    return scores
