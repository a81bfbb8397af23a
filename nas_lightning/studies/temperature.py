"""What δ is good for when the posterior is too sharp or too flat (Shu 2022, thesis, section 5.5.3).

One supernet and one posterior are trained; then α is divided by different temperatures τ (5.6), which stand
for the posteriors that a search may come to. Sets of architectures are sampled from each and judged on test
images with inherited weights: over the budget by different samplers (figure 5.6), and by SVGD-RD over δ
(figure 5.7). A set is selected by the loss on the validation images, as a search does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import pytorch_lightning as pl

from nas_lightning.checks import (
    DISTINCT,
    Finite,
    PositiveFloat,
    PositiveInt,
    Seed,
    Share,
    at_least,
    checked,
    entries,
)
from nas_lightning.data import SearchData
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.nesbs.samplers import DeltaSearch, Sampling
from nas_lightning.strategies.nesbs.strategy import Nesbs
from nas_lightning.studies.base import Study
from nas_lightning.studies.posteriors import (
    SAMPLERS,
    WITHOUT_POSTERIOR,
    SetJudges,
    Trial,
    over_budget,
    record_trials,
    train_posterior,
    trial_seed,
)
from nas_lightning.studies.temperature_findings import TrialNumbers, trial_name

TRIALS_FILE = "trials.json"


class Temperature(Study):
    """Ensembles that samplers find at several temperatures of one posterior.

    The epochs of `trainer` train the supernet and, at their end, the posterior.

    Args:
        taus: the temperatures.
        deltas: of figure 5.7.
        size: members of a set.
        rounds: sets that a sampler may try: the budget.
        delta: δ of SVGD-RD in figure 5.6, as `strategy.delta` of NESBS.
        trials: repetitions, with the same weights and posterior.
        svgd_steps: of SVGD-RD.
        posterior_share: of the epochs.
        lr: of the supernet.
        arch_lr: of the posterior.
        seed: of all that is drawn.

    >>> study = Temperature(taus=[0.5, 1.0], deltas=[0.0], trials=3)
    >>> study.sampling.size, study.sampling.rounds
    (5, 5)
    """

    @checked
    def __init__(
        self,
        *,
        taus: Annotated[Sequence[PositiveFloat], entries(1), DISTINCT] = (0.1, 1.0, 10.0),
        deltas: Annotated[Sequence[Finite], entries(1), DISTINCT] = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0),
        size: Annotated[int, at_least(2)] = 5,
        rounds: PositiveInt = 5,
        delta: Finite | DeltaSearch = "optuna",
        trials: Annotated[int, at_least(2)] = 5,
        svgd_steps: PositiveInt = 1000,
        posterior_share: Share = 0.285,
        lr: PositiveFloat = 0.025,
        arch_lr: PositiveFloat = 0.1,
        seed: Seed = 0,
    ) -> None:
        self.taus, self.deltas, self.trials, self.seed = list(taus), list(deltas), trials, seed
        self.sampling = Sampling("svgd_rd", size, rounds, delta, svgd_steps)
        self.posterior_share, self.lr, self.arch_lr = posterior_share, lr, arch_lr

    def run(
        self,
        space: SearchSpace,
        supernet: Callable[[], Supernet],
        data: SearchData,
        trainer: Callable[..., pl.Trainer],
        folder: Path,
    ) -> Findings:
        """Train once, sample at every temperature, judge."""
        training = {"posterior_share": self.posterior_share, "lr": self.lr, "arch_lr": self.arch_lr}
        path = folder / "posterior.pt"
        strategy = train_posterior(space, supernet, data, trainer, path, seed=self.seed, **training)
        judges = SetJudges.of(strategy, data)
        numbers_of = record_trials(folder / TRIALS_FILE, self._trials(strategy, judges))
        return TrialNumbers(
            numbers_of, self.taus, self.deltas, self.sampling.size, self.sampling.rounds, self.trials
        ).findings(data.name)

    def _trials(self, strategy: Nesbs, judges: SetJudges) -> Iterator[tuple[str, Trial]]:
        """Every trial: its name, and what computes its numbers."""
        for trial in range(self.trials):
            seed = trial_seed(self.seed, trial)
            for name, sampler in SAMPLERS.items():
                for tau in self.taus[:1] if sampler in WITHOUT_POSTERIOR else self.taus:
                    chosen = dataclasses.replace(self.sampling, sampler=sampler)
                    work = partial(over_budget, strategy, judges, chosen, tau=tau, seed=seed)
                    yield trial_name(name, tau, trial), work
            for tau in self.taus:
                for delta in self.deltas:
                    chosen = dataclasses.replace(self.sampling, delta=delta, rounds=1)
                    work = partial(over_budget, strategy, judges, chosen, tau=tau, seed=seed)
                    yield trial_name(f"δ {delta:g}", tau, trial), work
