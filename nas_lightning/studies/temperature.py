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
import torch

from nas_lightning.checks import (
    DISTINCT,
    Finite,
    PositiveFloat,
    PositiveInt,
    Share,
    at_least,
    checked,
    entries,
)
from nas_lightning.data import SearchData
from nas_lightning.ensembles.evaluation import Evaluation, every_test_batch
from nas_lightning.ensembles.forward_selection import InheritedWeights, Round
from nas_lightning.files import json_text, read_records, write_whole
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.nesbs.samplers import DeltaSearch, Sampling
from nas_lightning.strategies.nesbs.strategy import Nesbs
from nas_lightning.studies.base import Study
from nas_lightning.studies.temperature_findings import (
    SAMPLERS,
    WITHOUT_POSTERIOR,
    Numbers,
    TrialNumbers,
    trial_name,
)
from nas_lightning.studies.training import QUIET, train_once

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
        seed: int = 0,
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
        strategy = self._train_posterior(space, supernet, data, trainer, folder / "posterior.pt")
        strategy.to(trainer().strategy.root_device)
        judges = (
            InheritedWeights(space, strategy.supernet, data.valid_batches(len(data.valid))),
            InheritedWeights(space, strategy.supernet, every_test_batch(data.data)),
        )
        path = folder / TRIALS_FILE
        numbers_of: dict[str, list[Numbers]] = read_records(path)
        for key, what in self._trials():
            if key not in numbers_of:
                numbers_of[key] = list(what(strategy, *judges))
                write_whole(path, json_text(numbers_of, 1) + "\n")
                print(f"{key}: error {100 * numbers_of[key][-1]['error']:.2f} %", flush=True)
        return TrialNumbers(
            numbers_of, self.taus, self.deltas, self.sampling.size, self.sampling.rounds, self.trials
        ).findings(data.name)

    def _train_posterior(
        self,
        space: SearchSpace,
        supernet: Callable[[], Supernet],
        data: SearchData,
        trainer: Callable[..., pl.Trainer],
        path: Path,
    ) -> Nesbs:
        """The supernet and its posterior."""
        pl.seed_everything(self.seed, workers=True, verbose=False)
        strategy = Nesbs(
            space,
            supernet(),
            data,
            sampler="uniform",  # what the search itself selects is not asked for
            size=1,
            rounds=1,
            posterior_share=self.posterior_share,
            lr=self.lr,
            lr_min=0.0,
            arch_lr=self.arch_lr,
            seed=self.seed,
        )

        def train(strategy: Nesbs) -> Nesbs:
            trainer(**QUIET).fit(strategy, data)
            return strategy

        return train_once(strategy, train, path, "the supernet and its posterior")

    def _trials(self) -> Iterator[tuple[str, Callable[..., Iterator[Numbers]]]]:
        """Every trial: its name, and what computes its numbers."""
        for trial in range(self.trials):
            for name, sampler in SAMPLERS.items():
                for tau in self.taus[:1] if sampler in WITHOUT_POSTERIOR else self.taus:
                    chosen = dataclasses.replace(self.sampling, sampler=sampler)
                    yield trial_name(name, tau, trial), partial(self._over_budget, chosen, tau, trial)
            for tau in self.taus:
                for delta in self.deltas:
                    chosen = dataclasses.replace(self.sampling, delta=delta, rounds=1)
                    yield (
                        trial_name(f"δ {delta:g}", tau, trial),
                        partial(self._over_budget, chosen, tau, trial),
                    )

    def _over_budget(
        self,
        sampling: Sampling,
        tau: float,
        trial: int,
        strategy: Nesbs,
        valid: InheritedWeights,
        test: InheritedWeights,
    ) -> Iterator[Numbers]:
        """What the set that is selected after 1, 2, … rounds comes to on the test images."""
        if sampling.sampler != "nes_rs":
            rounds = self._try_sets(sampling, tau, trial, strategy, valid)
            best = [min(rounds[: count + 1], key=lambda done: done.loss) for count in range(len(rounds))]
        else:  # whose pool grows with the budget
            smaller = (dataclasses.replace(sampling, rounds=count + 1) for count in range(sampling.rounds))
            best = [self._try_sets(chosen, tau, trial, strategy, valid)[0] for chosen in smaller]
        for done in best:
            probabilities = torch.stack([test.predict(member) for member in done.members]).cpu()
            yield dict(Evaluation(probabilities, test.labels.cpu()).numbers())

    def _try_sets(
        self, sampling: Sampling, tau: float, trial: int, strategy: Nesbs, valid: InheritedWeights
    ) -> list[Round]:
        seed = 1_000_003 * self.seed + trial
        logits = {name: alpha.detach().cpu().double() / tau for name, alpha in strategy.arch.items()}
        generator = torch.Generator().manual_seed(seed)
        return list(sampling.judge_sets(valid, strategy.distribution, logits, generator, seed))
