"""Posteriors of NESBS that studies train, and sets of architectures that samplers find by them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch

from nas_lightning.data import SearchData
from nas_lightning.ensembles.evaluation import Evaluation, every_test_batch
from nas_lightning.ensembles.forward_selection import InheritedWeights, Round
from nas_lightning.files import json_text, read_records, write_whole
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.nesbs.samplers import Sampler, Sampling, monte_carlo
from nas_lightning.strategies.nesbs.strategy import Nesbs
from nas_lightning.studies.training import fit_quietly, train_once

SAMPLERS: Mapping[str, Sampler] = {
    "SVGD-RD": "svgd_rd",
    "Monte Carlo": "monte_carlo",
    "URS": "uniform",
    "NES-RS": "nes_rs",
}
WITHOUT_POSTERIOR = ("uniform", "nes_rs")
Numbers = Mapping[str, float]
Trial = Callable[[], Iterator[Numbers]]
"""What computes the numbers of a trial, one entry for every round that it may try."""


def trial_seed(seed: int, trial: int) -> int:
    """Of what a repetition draws."""
    return 1_000_003 * seed + trial


def record_trials(path: Path, trials: Iterable[tuple[str, Trial]]) -> dict[str, list[Numbers]]:
    """The numbers of all trials by their names; what is in the file is not computed again."""
    numbers_of: dict[str, list[Numbers]] = read_records(path)
    for name, compute in trials:
        if name not in numbers_of:
            numbers_of[name] = list(compute())
            write_whole(path, json_text(numbers_of, 1) + "\n")
            print(f"{name}: error {100 * numbers_of[name][-1]['error']:.2f} %", flush=True)
    return numbers_of


def train_posterior(
    space: SearchSpace,
    supernet: Callable[[], Supernet],
    data: SearchData,
    trainer: Callable[..., pl.Trainer],
    path: Path,
    *,
    seed: int,
    **options: Any,
) -> Nesbs:
    """A supernet and its posterior, of the file or trained; `options` are those of `Nesbs`."""
    pl.seed_everything(seed, workers=True, verbose=False)
    unasked: dict[str, Any] = {"sampler": "uniform", "size": 1, "rounds": 1}  # what the search itself selects
    strategy = Nesbs(space, supernet(), data, seed=seed, lr_min=0.0, **unasked, **options)

    def train(strategy: Nesbs) -> Nesbs:
        fit_quietly(trainer, strategy, data)
        return strategy

    trained = train_once(strategy, train, path, f"the supernet and its posterior, seed {seed}")
    trained.to(trainer().strategy.root_device)
    return trained


class SetJudges(NamedTuple):
    """Who selects a set, and who says what it is worth, both with inherited weights.

    Args:
        valid: on the validation images.
        test: on the test images.
    """

    valid: InheritedWeights
    test: InheritedWeights

    @classmethod
    def of(cls, strategy: Nesbs, data: SearchData) -> SetJudges:
        """On all images of each kind."""
        space, supernet = strategy.space, strategy.supernet
        return cls(
            InheritedWeights(space, supernet, data.valid_batches(len(data.valid))),
            InheritedWeights(space, supernet, every_test_batch(data.data)),
        )

    def evaluate(self, members: Sequence[Genotype]) -> Numbers:
        """What a set comes to on the test images."""
        probabilities = torch.stack([self.test.predict(member) for member in members]).cpu()
        return dict(Evaluation(probabilities, self.test.labels.cpu()).numbers())


def posterior_draws(strategy: Nesbs, count: int, generator: torch.Generator) -> list[Genotype]:
    """So many draws of the posterior, equal ones once: a sharp one has few."""
    draw = monte_carlo(strategy.space, strategy.distribution, logits_of(strategy), generator)
    return list(dict.fromkeys(draw() for _ in range(count)))


def logits_of(strategy: Nesbs, tau: float = 1.0) -> dict[str, torch.Tensor]:
    """α/τ as samplers take it."""
    return {name: alpha.detach().cpu().double() / tau for name, alpha in strategy.arch.items()}


def try_sets(
    strategy: Nesbs, valid: InheritedWeights, sampling: Sampling, *, tau: float = 1.0, seed: int
) -> list[Round]:
    """The sets of a sampler, with α divided by τ."""
    generator = torch.Generator().manual_seed(seed)
    return list(sampling.judge_sets(valid, strategy.distribution, logits_of(strategy, tau), generator, seed))


def over_budget(
    strategy: Nesbs, judges: SetJudges, sampling: Sampling, *, tau: float = 1.0, seed: int
) -> Iterator[Numbers]:
    """What the set that is selected after 1, 2, … rounds comes to on the test images."""
    if sampling.sampler != "nes_rs":
        rounds = try_sets(strategy, judges.valid, sampling, tau=tau, seed=seed)
        best = [min(rounds[: count + 1], key=lambda done: done.loss) for count in range(len(rounds))]
    else:  # whose pool grows with the budget
        smaller = (dataclasses.replace(sampling, rounds=count + 1) for count in range(sampling.rounds))
        best = [try_sets(strategy, judges.valid, one, tau=tau, seed=seed)[0] for one in smaller]
    for done in best:
        yield judges.evaluate(done.members)
