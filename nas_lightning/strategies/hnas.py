"""HNAS: training-free metrics and Bayesian optimisation (Shu 2022, PhD thesis, chapter 7; arXiv:2201.09785).

    min_A κ(A)/M(A) + μ F(M²(A) − ν),   F(x) = |x|^{2t}                                              (7.7)

over a pool of architectures, M any metric at initialisation and κ the condition number of the neural tangent
kernel. A Gaussian process finds the μ and ν whose minimiser has the best validation accuracy (algorithm 7.1).

Here M is in units of the pool's largest, so that √ν ∈ [0, 1] is all there is to aim at, and κ/M in units of
the pool's median, so that neither term vanishes over μ = 10^c, c ∈ [−4, 1]. That is another scale of μ and ν,
not another family of objectives. The public code (shuyao95/HNAS) searches the same box with a scale of M that
its user finds by hand, and has t = 1/2. As there, the first rounds look at evenly spaced √ν with c in the middle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nas_lightning.benchmarks.nasbench201 import TabularNasBench201
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.pool import seed_of
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.strategies.base import NetworkFactory
from nas_lightning.strategies.pool_search import PoolSearch

BOX = {"log10_mu": (-4.0, 1.0), "root_nu": (0.0, 1.0)}
Proposal = tuple[dict[str, float], str]  # parameters, and the notation of what they chose


class Hnas(PoolSearch):
    """The length of the run is K; every round proposes (μ, ν) and evaluates what they choose.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: where the images come from.
        benchmark: the table that `evaluation="table"` reads.
        metric: M, positive and the larger the better.
        condition: κ.
        t: of F; 1 in the thesis, 0.5 in its public code.
        starts: rounds before the Gaussian process has its say.
        **pool: see `PoolSearch` and `BlackBox`.
    """

    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        benchmark: TabularNasBench201 | None = None,
        *,
        metric: Metric,
        condition: Metric,
        t: float = 1.0,
        starts: int = 5,
        **pool: Any,
    ) -> None:
        _check(metric, condition, t, starts)
        super().__init__(space, network, data, benchmark, **pool)
        self.metrics = {"metric": metric, "condition": condition}
        if self.objective is None:
            raise InputError(
                "expected an evaluation, training or table, which the Gaussian process learns from",
                got="none",
                where="strategy.evaluation",
            )
        self.t, self.starts = t, starts
        self.proposals: list[Proposal] = []

    def choose(self, number: int) -> Genotype:
        seen = [(parameters, self.evaluated[notation]) for parameters, notation in self.proposals]
        parameters = propose(seen, self.starts, seed_of(self.seed, f"round {number}"))
        M, kappa = self._in_units()
        mu, nu = 10 ** parameters["log10_mu"], parameters["root_nu"] ** 2
        values = -objective(M, kappa, mu, nu, self.t)
        genotype = self.first_new(dict(zip(self.scored, values.tolist(), strict=True)))
        self.proposals.append((parameters, self.space.notation(genotype)))
        return genotype

    def play(self, number: int) -> Mapping[str, float]:
        values = super().play(number)
        parameters, _ = self.proposals[-1]
        return {**values, **parameters}

    def _in_units(self) -> tuple[Tensor, Tensor]:
        """M and κ of all that was scored; the units are those of the first round's pool."""
        rows = torch.tensor([(row["metric"], row["condition"]) for row in self.scored.values()]).double()
        M, kappa = rows.T
        m0, k0 = units(M[: self.pool_size], kappa[: self.pool_size])
        return M / m0, kappa / k0

    def memory(self) -> dict[str, Any]:
        return {"proposals": [[dict(parameters), notation] for parameters, notation in self.proposals]}

    def remember(self, memory: Mapping[str, Any]) -> None:
        self.proposals = [(parameters, notation) for parameters, notation in memory["proposals"]]


def objective(M: Tensor, kappa: Tensor, mu: float, nu: float, t: float = 1.0) -> Tensor:
    """κ/M + μ |M² − ν|^{2t} (7.7) of each architecture; ∞ for a singular kernel and for M ≤ 0: (n,).

    >>> objective(torch.tensor([2.0, 1.0, 0.0]), torch.tensor([6.0, torch.inf, 1.0]), mu=10.0, nu=1.0)
    tensor([93., inf, inf])
    """
    values = kappa / M + mu * (M**2 - nu).abs() ** (2 * t)
    return torch.where(_sound(M, kappa), values, torch.inf)


def units(M: Tensor, kappa: Tensor) -> tuple[float, float]:
    """What M and κ are divided by: then the largest M is 1 and the median of κ/M is 1."""
    sound = _sound(M, kappa)
    if not bool(sound.any()):
        raise InputError(
            "expected an architecture with a regular kernel and a metric above 0 in the pool",
            got=f"none of {len(M)}",
            where="strategy.pool_size",
        )
    m0 = float(M[sound].max())
    return m0, float((kappa[sound] / (M[sound] / m0)).median())


def _sound(M: Tensor, kappa: Tensor) -> Tensor:
    return torch.isfinite(M) & torch.isfinite(kappa) & (M > 0)


def propose(seen: Sequence[tuple[Mapping[str, float], float]], starts: int, seed: int) -> dict[str, float]:
    """log₁₀ μ and √ν after the rounds so far; the process is fitted to them anew, so it has no state."""
    if len(seen) < starts:
        share = len(seen) / max(starts - 1, 1)
        return {"log10_mu": sum(BOX["log10_mu"]) / 2, "root_nu": share}
    import optuna
    from optuna.distributions import FloatDistribution
    from optuna.trial import create_trial

    loudness = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        sampler = optuna.samplers.GPSampler(seed=seed % 2**32, n_startup_trials=0)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        box = {name: FloatDistribution(*ends) for name, ends in BOX.items()}
        for parameters, value in seen:
            study.add_trial(create_trial(params=dict(parameters), distributions=dict(box), value=value))
        return dict(study.ask(dict(box)).params)
    finally:
        optuna.logging.set_verbosity(loudness)


def _check(metric: Metric, condition: Metric, t: float, starts: int) -> None:
    if not metric.larger_is_better:
        raise InputError("expected a metric of which more is better", got=metric, where="strategy.metric")
    if condition.larger_is_better:
        raise InputError(
            "expected a metric of which less is better", got=condition, where="strategy.condition"
        )
    if t <= 0:
        raise InputError("expected an exponent above 0", got=t, where="strategy.t")
    if starts < 1:
        raise InputError("expected at least one start", got=starts, where="strategy.starts")
