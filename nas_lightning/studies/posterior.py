"""Posteriors fitted after and while a supernet is trained (Y. Shu's thesis, 2022, figure 5.5 and table 5.7).

*Post-training*: the supernet first, then p_α by (5.4), as NESBS has it. *Best response*: both in every step,
p_α by the likelihood alone, and the supernet's paths are drawn from it. Which says better what single
architectures are worth, and what becomes of ensembles that are sampled from it?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn

from nas_lightning.checks import Finite, PositiveFloat, PositiveInt, Seed, at_least, checked
from nas_lightning.data import SearchData
from nas_lightning.ensembles.ensemble import Ensemble
from nas_lightning.ensembles.evaluation import ensemble_error, evaluate, every_test_batch
from nas_lightning.files import json_text, read_records, write_whole
from nas_lightning.genotype import Genotype
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.sampling import draw_distinct
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.nesbs.samplers import DeltaSearch, Sampler, Sampling
from nas_lightning.strategies.nesbs.strategy import Nesbs
from nas_lightning.studies.base import Study
from nas_lightning.studies.posterior_findings import BEST, KINDS, POST, findings
from nas_lightning.studies.posteriors import (
    SetJudges,
    logits_of,
    posterior_draws,
    train_posterior,
    trial_seed,
    try_sets,
)
from nas_lightning.studies.statistics import spearman
from nas_lightning.studies.training import train_networks
from nas_lightning.training.retrain import Retrain

FILE = "trials.json"
SAMPLERS: Mapping[str, Sampler] = {"Monte Carlo": "monte_carlo", "SVGD-RD": "svgd_rd"}


@checked
class PosteriorComparison(Study):
    """The same supernet's training with either posterior, several times.

    The supernet has as many epochs with both; members are trained by the study's `retrain` and `trainer`.

    Args:
        supernet_epochs: of the supernet.
        posterior_epochs: of the post-training posterior, behind them.
        pool: draws of architectures, uniformly, and as many by the posterior; the best is one of these.
        size: members of an ensemble.
        rounds: sets that a sampler may try.
        delta: of SVGD-RD, as `strategy.delta` of NESBS.
        svgd_steps: of SVGD-RD.
        trained: whether ensembles are trained from scratch, too.
        trials: repetitions, each with a supernet of its own.
        lr: of the supernet.
        arch_lr: of the posterior.
        seed: of all that is drawn.

    >>> PosteriorComparison(supernet_epochs=30, posterior_epochs=10).options[POST]
    {'posterior_share': 0.25, 'lr': 0.025, 'arch_lr': 0.1}
    """

    def __init__(
        self,
        *,
        supernet_epochs: PositiveInt = 50,
        posterior_epochs: PositiveInt = 20,
        pool: Annotated[int, at_least(2)] = 100,
        size: Annotated[int, at_least(2)] = 3,
        rounds: PositiveInt = 5,
        delta: Finite | DeltaSearch = "grid",
        svgd_steps: PositiveInt = 1000,
        trained: bool = True,
        trials: Annotated[int, at_least(2)] = 3,
        lr: PositiveFloat = 0.025,
        arch_lr: PositiveFloat = 0.1,
        seed: Seed = 0,
    ) -> None:
        whole = supernet_epochs + posterior_epochs
        rates = {"lr": lr, "arch_lr": arch_lr}
        self.epochs = {POST: whole, BEST: supernet_epochs}
        self.options: dict[str, dict[str, Any]] = {
            POST: {"posterior_share": posterior_epochs / whole, **rates},
            BEST: {"posterior_share": 0.0, "best_response": True, **rates},
        }
        self.sampling = partial(Sampling, size=size, rounds=rounds, delta=delta, svgd_steps=svgd_steps)
        self.pool, self.trained, self.trials, self.seed = pool, trained, trials, seed

    def run(
        self,
        space: SearchSpace,
        supernet: Callable[[], Supernet],
        network: Callable[[Genotype], nn.Module],
        data: SearchData,
        retrain: Callable[[nn.Module], Retrain],
        trainer: Callable[..., pl.Trainer],
        folder: Path,
    ) -> Findings:
        """Train both, look at them, train what is sampled from them."""

        def fit(kind: str, trial: int) -> Nesbs:
            path, seed = folder / f"{kind}_{trial + 1}.pt", self.seed + trial
            longer = partial(trainer, max_epochs=self.epochs[kind])
            return train_posterior(space, supernet, data, longer, path, seed=seed, **self.options[kind])

        def train(members: Sequence[Genotype], where: str, trial: int) -> float:
            to, seed = folder / "trained" / where, self.seed + 1000 * trial
            networks = train_networks(members, network, data, retrain, trainer, to, seed)
            true = evaluate(Ensemble(networks), every_test_batch(data.data))
            return float(ensemble_error(true.probabilities, true.labels))

        records = read_records(folder / FILE)
        for trial in range(self.trials):
            for kind in KINDS:
                name = f"{kind}_{trial + 1}"
                if name not in records:
                    records[name] = self._look(fit(kind, trial), data, trial)
                    self._keep(records, folder)
                for sampler, found in records[name]["ensembles"].items():
                    if self.trained and "trained" not in found:
                        members = [Genotype.from_dict(member) for member in found["members"]]
                        found["trained"] = train(members, f"{name}_{SAMPLERS[sampler]}", trial)
                        self._keep(records, folder)
        return findings(records, self.trials, list(SAMPLERS), data.name)

    def _look(self, strategy: Nesbs, data: SearchData, trial: int) -> dict[str, Any]:
        """What a posterior says of single architectures, and the sets that samplers find by it."""
        judges, seed = SetJudges.of(strategy, data), trial_seed(self.seed, trial)
        ensembles = {}
        for name, sampler in SAMPLERS.items():
            best = min(
                try_sets(strategy, judges.valid, self.sampling(sampler), seed=seed),
                key=lambda done: done.loss,
            )
            error = judges.evaluate(best.members)["error"]
            ensembles[name] = {"members": [m.to_dict() for m in best.members], "inherited": error}
        found = {**describe_posterior(strategy, judges, self.pool, seed), "ensembles": ensembles}
        print(f"most probable {found['probable']:.1%}, best {found['best']:.1%} error", flush=True)
        return found

    def _keep(self, records: Mapping[str, Any], folder: Path) -> None:
        write_whole(folder / FILE, json_text(records, 1) + "\n")


def describe_posterior(strategy: Nesbs, judges: SetJudges, pool: int, seed: int) -> dict[str, float | None]:
    """Test errors of the most probable, the best and random ones; whether probabilities order losses."""
    space, generator = strategy.space, torch.Generator().manual_seed(seed)
    uniform, sampled = draw_distinct(space, pool, generator), posterior_draws(strategy, pool, generator)
    logits = logits_of(strategy)
    probable = space.discretise(strategy.distribution.mode(logits))
    errors = {one: judges.evaluate([one])["error"] for one in [probable, *uniform, *sampled]}
    likely = [float(strategy.distribution.log_probability(logits, space.one_hot(one))) for one in uniform]
    losses = [judges.evaluate([one])["nll"] for one in uniform]
    rho = spearman(np.array(likely), -np.array(losses))
    return {
        "probable": errors[probable],
        "best": min(errors.values()),
        "mean": float(np.mean([errors[one] for one in uniform])),
        "rho": None if np.isnan(rho) else rho,
    }
