"""What δ is good for when the posterior is too sharp or too flat (Shu 2022, thesis, section 5.5.3).

One supernet and one posterior are trained; then α is divided by different temperatures τ (5.6), which stand
for the posteriors that a search may come to. Sets of architectures are sampled from each and judged on test
images with inherited weights: over the budget by different samplers (figure 5.6), and by SVGD-RD over δ
(figure 5.7). A set is selected by the loss on the validation images, as a search does.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure

from nas_lightning.data import SearchData
from nas_lightning.ensembles.evaluation import Evaluation, every_test_batch
from nas_lightning.ensembles.forward_selection import InheritedWeights, Round
from nas_lightning.errors import InputError
from nas_lightning.files import write_whole
from nas_lightning.plots.style import INK
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.nesbs.samplers import DeltaSearch, Sampler, Sampling
from nas_lightning.strategies.nesbs.strategy import Nesbs
from nas_lightning.studies import figures
from nas_lightning.studies.base import Study
from nas_lightning.studies.training import QUIET, keep, restore
from nas_lightning.tables import Cell, Estimate, Table

TRIALS_FILE = "trials.json"
SAMPLERS: Mapping[str, Sampler] = {
    "SVGD-RD": "svgd_rd",
    "Monte Carlo": "monte_carlo",
    "URS": "uniform",
    "NES-RS": "nes_rs",
}
WITHOUT_POSTERIOR = ("uniform", "nes_rs")  # the same at every τ
COLUMNS = {"error": "error", "nll": "NLL", "ate": "ATE", "ppd": "PPD"}
Numbers = Mapping[str, float]


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
    """

    def __init__(
        self,
        *,
        taus: Sequence[float] = (0.1, 1.0, 10.0),
        deltas: Sequence[float] = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0),
        size: int = 5,
        rounds: int = 5,
        delta: float | DeltaSearch = "optuna",
        trials: int = 5,
        svgd_steps: int = 1000,
        posterior_share: float = 0.285,
        lr: float = 0.025,
        arch_lr: float = 0.1,
        seed: int = 0,
    ) -> None:
        if not taus or min(taus) <= 0 or len({*taus}) != len(taus):
            raise InputError("expected different numbers above 0", got=list(taus), where="study.taus")
        if not deltas or len({*deltas}) != len(deltas):
            raise InputError("expected different numbers", got=list(deltas), where="study.deltas")
        for key, value, least in (("size", size, 2), ("rounds", rounds, 1), ("trials", trials, 2)):
            if value < least:
                raise InputError(f"expected at least {least}", got=value, where=f"study.{key}")
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
        strategy = self._trained(space, supernet, data, trainer, folder / "posterior.pt")
        strategy.to(trainer().strategy.root_device)
        judges = (
            InheritedWeights(space, strategy.supernet, data.valid_batches(len(data.valid))),
            InheritedWeights(space, strategy.supernet, every_test_batch(data.data)),
        )
        found: dict[str, list[Numbers]] = {}
        path = folder / TRIALS_FILE
        if path.is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
        for key, what in self._asked():
            if key not in found:
                found[key] = list(what(strategy, *judges))
                write_whole(path, json.dumps(found, ensure_ascii=False, indent=1) + "\n")
                print(f"{key}: error {100 * found[key][-1]['error']:.2f} %", flush=True)
        return self._findings(found, data.name)

    def _trained(
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
        if not path.is_file():
            trainer(**QUIET).fit(strategy, data)
            keep(strategy, path)
            print("trained the supernet and its posterior", flush=True)
        restore(strategy, path)
        return strategy

    def _asked(self) -> Iterator[tuple[str, Callable[..., Iterator[Numbers]]]]:
        """Every trial: its name, and what computes its numbers."""
        for trial in range(self.trials):
            for name, sampler in SAMPLERS.items():
                for tau in self.taus[:1] if sampler in WITHOUT_POSTERIOR else self.taus:
                    chosen = dataclasses.replace(self.sampling, sampler=sampler)
                    yield self._key(name, tau, trial), partial(self._over_budget, chosen, tau, trial)
            for tau in self.taus:
                for delta in self.deltas:
                    chosen = dataclasses.replace(self.sampling, delta=delta, rounds=1)
                    yield (
                        self._key(f"δ {delta:g}", tau, trial),
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
            rounds = self._tried(sampling, tau, trial, strategy, valid)
            best = [min(rounds[: count + 1], key=lambda done: done.loss) for count in range(len(rounds))]
        else:  # whose pool grows with the budget
            smaller = (dataclasses.replace(sampling, rounds=count + 1) for count in range(sampling.rounds))
            best = [self._tried(chosen, tau, trial, strategy, valid)[0] for chosen in smaller]
        for done in best:
            probabilities = torch.stack([test.predict(member) for member in done.members]).cpu()
            yield dict(Evaluation(probabilities, test.labels.cpu()).numbers())

    def _tried(
        self, sampling: Sampling, tau: float, trial: int, strategy: Nesbs, valid: InheritedWeights
    ) -> list[Round]:
        seed = 1_000_003 * self.seed + trial
        logits = {name: alpha.detach().cpu().double() / tau for name, alpha in strategy.arch.items()}
        generator = torch.Generator().manual_seed(seed)
        return list(sampling.tried(valid, strategy.distribution, logits, generator, seed))

    def _findings(self, found: Mapping[str, Sequence[Numbers]], images: str) -> Findings:
        size = self.sampling.size
        by_sampler = {
            tau: {name: self._estimates(found, name, tau) for name in SAMPLERS} for tau in self.taus
        }
        by_delta = {
            tau: {f"{delta:g}": self._estimates(found, f"δ {delta:g}", tau)[0] for delta in self.deltas}
            for tau in self.taus
        }
        at_the_end = {
            tau: {name: budgets[-1] for name, budgets in names.items()} for tau, names in by_sampler.items()
        }
        title = f"Ensembles of {size} with inherited weights, test images of {images}"
        over_budget = {
            f"τ = {tau:g}": {
                name: {str(size * count): point["error"] for count, point in enumerate(budgets, 1)}
                for name, budgets in names.items()
            }
            for tau, names in by_sampler.items()
        }
        over_delta = {
            COLUMNS[column]: {
                f"τ = {tau:g}": {delta: point[column] for delta, point in points.items()}
                for tau, points in by_delta.items()
            }
            for column in ("error", "ate", "ppd")
        }
        return Findings(
            [
                self._table("samplers", f"{title}: {self.sampling.rounds} sets tried", "", at_the_end),
                self._table("deltas", f"{title}: SVGD-RD, one set tried", "δ", by_delta),
            ],
            {
                "samplers": _over(
                    "architectures that were judged", over_budget, "test error of the ensemble"
                ),
                "deltas": _over("δ", over_delta, "share of the test images"),
            },
            {
                f"{name}/{tau:g}/error": point["error"].value
                for tau, points in at_the_end.items()
                for name, point in points.items()
            },
        )

    def _table(
        self, name: str, title: str, what: str, points: Mapping[float, Mapping[str, Mapping[str, Estimate]]]
    ) -> Table:
        rows: list[list[Cell]] = [
            [f"{tau:g}", key, *point.values()]
            for tau, of_tau in points.items()
            for key, point in of_tau.items()
        ]
        note = (
            f"Mean ± standard error over {self.trials} trials; ATE: mean error of the members; PPD: share of "
            "images on which two of them disagree"
        )
        return Table(name, title, ["τ", what, *COLUMNS.values()], rows, note)

    def _key(self, name: str, tau: float, trial: int) -> str:
        of_all = SAMPLERS.get(name) in WITHOUT_POSTERIOR
        return f"{name}, trial {trial + 1}" if of_all else f"{name}, τ {tau:g}, trial {trial + 1}"

    def _estimates(
        self, found: Mapping[str, Sequence[Numbers]], name: str, tau: float
    ) -> list[dict[str, Estimate]]:
        """Mean and standard error over the trials, for every budget."""
        trials = [found[self._key(name, tau, trial)] for trial in range(self.trials)]
        return [
            {column: _estimate([numbers[column] for numbers in same]) for column in COLUMNS}
            for same in zip(*trials, strict=True)
        ]


def _estimate(values: Sequence[float]) -> Estimate:
    return Estimate(float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))))


def _over(
    x_label: str, panels: Mapping[str, Mapping[str, Mapping[str, Estimate | None]]], y_label: str
) -> Figure:
    figure = figures.lines(panels, y_label)
    figure.supxlabel(x_label, fontsize=8, color=INK)
    legend = figure.axes[0].get_legend()
    if legend is not None:  # of all panels, and where it covers no point
        legend.remove()
    named = figure.axes[0].get_legend_handles_labels()
    figure.legend(*named, loc="outside upper right", ncols=4, frameon=False, fontsize=7, labelcolor=INK)
    return figure
