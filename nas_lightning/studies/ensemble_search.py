"""Samplers of ensembles over their budget and the ensembles' size (Y. Shu's thesis, 2022, 5.4.1, figure 5.3).

One supernet and one posterior are trained. At the same budget of architectures, SVGD-RD, Monte Carlo, random
sets (URS) and NES-RS select a set by its validation loss with inherited weights; its error on the test images
stands beside that of the best single architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    Seed,
    Share,
    at_least,
    checked,
    entries,
)
from nas_lightning.data import SearchData
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.sampling import draw_distinct
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.nesbs.samplers import DeltaSearch, Sampling
from nas_lightning.strategies.nesbs.strategy import Nesbs
from nas_lightning.studies import figures
from nas_lightning.studies.base import Study
from nas_lightning.studies.posteriors import (
    SAMPLERS,
    Numbers,
    SetJudges,
    Trial,
    over_budget,
    posterior_draws,
    record_trials,
    train_posterior,
    trial_seed,
)
from nas_lightning.studies.statistics import mean_estimate
from nas_lightning.tables import Entry, Estimate, Table

FILE = "trials.json"
SINGLE = "best single"
_NOTE = (
    "Test errors (%) with inherited weights, mean ± standard error over trials. The single one is picked on "
    "the test images, which favours it"
)


@checked
class EnsembleSearch(Study):
    """What samplers find at the same budgets, for ensembles of several sizes.

    The epochs of `trainer` train the supernet and, at their end, the posterior.

    Args:
        sizes: n, members of a set.
        rounds: T, sets that a sampler may try.
        delta: δ of SVGD-RD, as `strategy.delta` of NESBS.
        svgd_steps: of SVGD-RD.
        singles: draws of architectures, uniformly, and as many by the posterior; one of these is the best.
        trials: repetitions, with the same weights and posterior.
        posterior_share: of the epochs.
        lr: of the supernet.
        arch_lr: of the posterior.
        seed: of all that is drawn.

    >>> [sampling.size for sampling in EnsembleSearch(sizes=[2, 4]).samplings("URS")]
    [2, 4]
    """

    def __init__(
        self,
        *,
        sizes: Annotated[Sequence[Annotated[int, at_least(2)]], entries(1), DISTINCT] = (3, 5, 7),
        rounds: PositiveInt = 5,
        delta: Finite | DeltaSearch = "grid",
        svgd_steps: PositiveInt = 1000,
        singles: PositiveInt = 100,
        trials: Annotated[int, at_least(2)] = 5,
        posterior_share: Share = 0.285,
        lr: PositiveFloat = 0.025,
        arch_lr: PositiveFloat = 0.1,
        seed: Seed = 0,
    ) -> None:
        self.sizes, self.singles, self.trials, self.seed = list(sizes), singles, trials, seed
        self.sampling = partial(Sampling, rounds=rounds, delta=delta, svgd_steps=svgd_steps)
        self.training = {"posterior_share": posterior_share, "lr": lr, "arch_lr": arch_lr}

    def samplings(self, sampler: str) -> list[Sampling]:
        """Of one sampler, for every size."""
        return [self.sampling(SAMPLERS[sampler], size=size) for size in self.sizes]

    def run(
        self,
        space: SearchSpace,
        supernet: Callable[[], Supernet],
        data: SearchData,
        trainer: Callable[..., pl.Trainer],
        folder: Path,
    ) -> Findings:
        """Train once, sample, judge."""
        path = folder / "posterior.pt"
        strategy = train_posterior(space, supernet, data, trainer, path, seed=self.seed, **self.training)
        judges = SetJudges.of(strategy, data)
        return self._findings(record_trials(folder / FILE, self._trials(strategy, judges)), data.name)

    def _trials(self, strategy: Nesbs, judges: SetJudges) -> Iterator[tuple[str, Trial]]:
        yield SINGLE, partial(self._single, strategy, judges)
        for trial in range(self.trials):
            seed = trial_seed(self.seed, trial)
            for name in SAMPLERS:
                for sampling in self.samplings(name):
                    work = partial(over_budget, strategy, judges, sampling, seed=seed)
                    yield _key(name, sampling.size, trial), work

    def _single(self, strategy: Nesbs, judges: SetJudges) -> Iterator[Numbers]:
        generator = torch.Generator().manual_seed(self.seed)
        drawn = draw_distinct(strategy.space, self.singles, generator)
        drawn += posterior_draws(strategy, self.singles, generator)
        yield min((judges.evaluate([one]) for one in drawn), key=lambda numbers: numbers["error"])

    def _findings(self, numbers: Mapping[str, Sequence[Numbers]], images: str) -> Findings:
        single = Estimate(100 * numbers[SINGLE][-1]["error"], 0.0)
        rows: list[list[Entry]] = []
        panels: dict[str, dict[str, dict[int, Estimate]]] = {}
        for size in self.sizes:
            panel = panels[f"n = {size}"] = {
                name: self._over_budget(numbers, name, size) for name in SAMPLERS
            }
            rows += [[size, name, judged, e] for name, line in panel.items() for judged, e in line.items()]
            panel[SINGLE] = dict.fromkeys(panel[next(iter(SAMPLERS))], single)
        rows.append([1, SINGLE, 2 * self.singles, single])
        columns = ["members", "sampler", "architectures judged", "test error"]
        title = f"Ensembles over the budget: {self.trials} trials on one supernet, {images}"
        figure = figures.lines(panels, "test error of the ensemble (%)", "architectures that were judged")
        return Findings([Table("budgets", title, columns, rows, _NOTE)], {"budgets": figure})

    def _over_budget(
        self, numbers: Mapping[str, Sequence[Numbers]], name: str, size: int
    ) -> dict[int, Estimate]:
        trials = [numbers[_key(name, size, trial)] for trial in range(self.trials)]
        return {
            size * count: mean_estimate([100 * each["error"] for each in same])
            for count, same in enumerate(zip(*trials, strict=True), 1)
        }


def _key(name: str, size: int, trial: int) -> str:
    return f"{name}, n {size}, trial {trial + 1}"
