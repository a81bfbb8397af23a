"""HNAS: training-free metrics and Bayesian optimization (Shu 2022, PhD thesis, chapter 7; arXiv:2201.09785).

    min_A κ(A)/M(A) + μ F(M²(A) − ν),   F(x) = |x|^{2t}                                              (7.7)

over a pool of architectures, where M is any metric at initialization and κ the condition number of the neural
tangent kernel. A Gaussian process finds the μ and ν whose minimizer has the best validation accuracy
(algorithm 7.1).

The proposals have no units, so that they mean the same for every metric: √ν is the q-quantile of M in the
    pool, q ∈ [0, 1], and μ is 10^c times the value at which both terms have the same median there, c ∈ [−1,
    4]. The public code (shuyao95/HNAS) has √ν ∈ [0, scale], with a scale that the user tunes for each metric,
    and μ = 10^c, c ∈ [−4, 1]; for the kernel's trace, whose square is a thousand times κ/M, this is similar.
    Its F has t = 1/2. As there, the first rounds use evenly spaced ν and the middle of c.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from nas_lightning.data import ImageData, SearchData
from nas_lightning.data.batches import Batch
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.ntk import NTKCondition, NTKSqrtMeanDiagonal
from nas_lightning.objectives.rankings import COMBINED, EXPONENTS, log_ranks, trade_off
from nas_lightning.objectives.short_training import Evaluator
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.black_box.base import Scores, suggest
from nas_lightning.strategies.black_box.pool import PoolSearch
from nas_lightning.utils.randomness import seed_of_name
from nas_lightning.validation import PositiveFloat, PositiveInt, at_least, checked

BOX = {"log10_mu": EXPONENTS, "quantile": (0.0, 1.0)}
NTK_TRACE, NTK_CONDITION = NTKSqrtMeanDiagonal(), NTKCondition()
Proposal = tuple[dict[str, float], str]  # parameters, and the architecture that they chose


class Hnas(PoolSearch):
    """HNAS: every round proposes (μ, ν) and evaluates their minimizer.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: the images.
        benchmark: the table for `evaluation="table"`.
        metric: M, positive, larger is better; `default`: the geometric mean of the relative ranks by the
            metrics of `nas_lightning.objectives.rankings.COMBINED`.
        condition: κ.
        t: exponent of F; 1 in the thesis, 0.5 in its public code.
        starts: number of rounds before the Gaussian process.
        images: number of training images on which architectures are scored; 64 in the thesis.
        score_data: other images on which architectures are scored; None: those of `data`.
        evaluation: `training` or `table`, the observations of the Gaussian process.
        **pool: see `PoolSearch` and `BlackBox`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> network = lambda genotype: space.network(genotype, **sizes)
    >>> search = Hnas(space, network, SearchData(Digits()), pool_size=20, starts=3)
    >>> search.metrics["metric"]
    NTKSqrtMeanDiagonal(output='true_class', coupled=False)
    """

    @checked
    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        benchmark: TabularBenchmark | None = None,
        *,
        metric: Metric | Literal["default"] = NTK_TRACE,
        condition: Metric = NTK_CONDITION,
        t: PositiveFloat = 1.0,
        starts: PositiveInt = 5,
        images: Annotated[int, at_least(2)] = 64,
        score_data: ImageData | None = None,
        evaluation: Evaluator = "training",
        **pool: Any,
    ) -> None:
        if isinstance(metric, Metric):
            check_metric(metric, "strategy.metric")
        check_condition(condition, "strategy.condition")
        ranked = COMBINED if isinstance(metric, str) else {"metric": metric}
        super().__init__(space, network, data, benchmark, images=images, evaluation=evaluation, **pool)
        self.metrics = {**ranked, "condition": condition}
        self.metric = metric
        if self.objective is None:
            raise InputError(
                "The Gaussian process needs an evaluation (training or table)",
                got="none",
                where="strategy.evaluation",
            )
        self.t, self.starts = t, starts
        self.score_data = None if score_data is None else SearchData(score_data)
        self.proposals: list[Proposal] = []

    def _subject(self) -> tuple[NetworkFactory, Batch]:
        if self.score_data is None:
            return super()._subject()
        data = self.score_data
        sizes: dict[str, Any] = {"in_channels": data.image[0], "num_classes": data.num_classes}
        return partial(self.network, **sizes), data.train.plain_images(self.images, self.seed)

    def choose(self, number: int) -> Genotype:
        values_of = self.evaluated
        seen = [(parameters, values_of[name]) for parameters, name in self.proposals if name in values_of]
        parameters = propose(seen, self.starts, seed_of_name(self.seed, f"round {number}"))
        rows = list(self.scored.values())
        M = torch.tensor(self._values(rows), dtype=torch.float64)
        kappa = torch.tensor([row["condition"] for row in rows], dtype=torch.float64)
        values = objective_values(M, kappa, parameters, self.t)
        genotype = self.best_unevaluated(dict(zip(self.scored, values.tolist(), strict=True)))
        self.proposals.append((parameters, self.space.notation(genotype)))
        return genotype

    def _values(self, rows: Sequence[Scores]) -> list[float]:
        """Return M of each row; for `default` exp(s/metrics), s the sum of the log-ranks."""
        if isinstance(self.metric, str):
            return [math.exp(value / len(COMBINED)) for value in log_ranks(rows, COMBINED)]
        return [row["metric"] for row in rows]

    def run_round(self, number: int) -> Mapping[str, float]:
        values = super().run_round(number)
        parameters, _ = self.proposals[-1]
        return {**values, **parameters}

    def search_state(self) -> dict[str, Any]:
        return {"proposals": [[dict(parameters), notation] for parameters, notation in self.proposals]}

    def load_search_state(self, state: Mapping[str, Any]) -> None:
        self.proposals = [(parameters, notation) for parameters, notation in state["proposals"]]


def objective_values(M: Tensor, kappa: Tensor, parameters: Mapping[str, float], t: float) -> Tensor:
    """Return minus (7.7) for a proposal, so that larger is better: (n,)."""
    mu, nu = in_units(M, kappa, 10 ** parameters["log10_mu"], parameters["quantile"], t)
    return -trade_off(kappa, M, mu, nu, 2 * t)


def in_units(M: Tensor, kappa: Tensor, relative: float, quantile: float, t: float) -> tuple[float, float]:
    """Return μ and ν: √ν is a quantile of M; at `relative` = 1 both terms have the same median."""
    sound = _sound(M, kappa)
    if not bool(sound.any()):
        expected = "No architecture of the pool has a regular kernel and a metric above 0: use a larger pool"
        raise InputError(f"{expected}: a larger one, or another metric", got=f"none of {len(M)}")
    M, kappa = M[sound], kappa[sound]
    nu = float(torch.quantile(M, quantile)) ** 2
    penalty = (M**2 - nu).abs() ** (2 * t)
    return relative * float((kappa / M).median() / penalty.median().clamp_min(1e-300)), nu


def _sound(M: Tensor, kappa: Tensor) -> Tensor:
    return torch.isfinite(M) & torch.isfinite(kappa) & (M > 0)


def propose(seen: Sequence[tuple[Mapping[str, float], float]], starts: int, seed: int) -> dict[str, float]:
    """Propose c and q, given the rounds so far."""
    if len(seen) < starts:
        share = len(seen) / max(starts - 1, 1)
        return {"log10_mu": sum(BOX["log10_mu"]) / 2, "quantile": share}
    return suggest(seen, BOX, seed)


def check_metric(metric: Metric, where: str) -> None:
    """Raise an `InputError` if the metric cannot be M."""
    if not metric.larger_is_better:
        raise InputError("`metric` must be one for which higher is better", got=metric, where=where)
    if metric.never_positive:
        raise InputError("`metric` must be one that can be above 0", got=metric, where=where)


def check_condition(condition: Metric, where: str) -> None:
    """Raise an `InputError` if the metric cannot be κ."""
    if condition.larger_is_better:
        raise InputError("`condition` must be one for which lower is better", got=condition, where=where)
