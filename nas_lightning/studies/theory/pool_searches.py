"""Searches in a pool whose scores and accuracies are all known: HNAS, a metric alone, and chance.

HNAS is algorithm 7.1 of Y. Shu's thesis (2022), by the functions of the strategy's own rounds
(`nas_lightning.strategies.black_box.hnas`); here nothing is built, scored or trained on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from nas_lightning.randomness import seed_of_name
from nas_lightning.strategies.black_box.hnas import objective_values, propose
from nas_lightning.studies.statistics import Values


class KnownPool(NamedTuple):
    """Architectures of which everything is known, each (n,).

    Args:
        metric: M.
        kappa: κ.
        worth: what an evaluation says.
    """

    metric: Values
    kappa: Values
    worth: Values

    def of(self, rows: Sequence[int]) -> KnownPool:
        """Some of them."""
        return KnownPool(*(values[list(rows)] for values in self))


class SearchTrace(NamedTuple):
    """A search, evaluation by evaluation.

    Args:
        chosen: the number of the architecture.
        parameters: c and q of HNAS that have chosen it.
    """

    chosen: list[int]
    parameters: list[dict[str, float]]

    def best(self, worth: Values) -> list[int]:
        """The step that has chosen the best so far, after each step; of equal ones the first.

        >>> SearchTrace([2, 0, 1], []).best(np.array([3.0, 3.0, 1.0]))
        [0, 1, 1]
        """
        values = worth[self.chosen]
        return [int(values[: count + 1].argmax()) for count in range(len(values))]


def hnas_search(pool: KnownPool, rounds: int, *, t: float, starts: int, seed: int) -> SearchTrace:
    """Each round proposes (μ, ν) and evaluates the best by them that was not evaluated yet."""
    trace = SearchTrace([], [])
    for number in range(rounds):
        seen = list(zip(trace.parameters, pool.worth[trace.chosen].tolist(), strict=True))
        parameters = propose(seen, starts, seed_of_name(seed, f"round {number}"))
        values = values_of(pool, parameters, t)
        new = values.copy()
        new[trace.chosen] = -np.inf
        trace.chosen.append(int((new if np.isfinite(new).any() else values).argmax()))
        trace.parameters.append(parameters)
    return trace


def values_of(pool: KnownPool, parameters: Mapping[str, float], t: float) -> Values:
    """Minus the objective (7.7) of each, so that larger is better: (n,)."""
    metric, kappa = (torch.as_tensor(values, dtype=torch.float64) for values in (pool.metric, pool.kappa))
    return objective_values(metric, kappa, parameters, t).numpy()


def metric_order(pool: KnownPool, rounds: int) -> SearchTrace:
    """The largest metrics first (ZERO-COST, Abdelfattah et al. 2021, arXiv:2101.08134)."""
    return SearchTrace(np.argsort(-pool.metric, kind="stable")[:rounds].tolist(), [])


def random_order(pool: KnownPool, rounds: int, seed: int) -> SearchTrace:
    """Without repetition."""
    return SearchTrace(np.random.default_rng(seed).permutation(len(pool.worth))[:rounds].tolist(), [])
