"""NESBS (Y. Shu's thesis, 2022, chapter 5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import isnan
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

import numpy as np
import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.models.ensemble import Ensemble
from nas_lightning.models.evaluation import (
    Evaluation,
    averaged_loss,
    ensemble_error,
    evaluate,
    every_test_batch,
)
from nas_lightning.objectives.inherited import InheritedWeights, Round
from nas_lightning.plots.style import COLORS, INK, tidy
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace, draw_distinct
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.nesbs.posterior import Architectures
from nas_lightning.strategies.nesbs.samplers import (
    DeltaSearch,
    Sampler,
    Sampling,
    monte_carlo,
    set_of_particles,
)
from nas_lightning.strategies.nesbs.strategy import Nesbs
from nas_lightning.strategies.nesbs.svgd import RelaxedArchitectures, Variance, svgd_rd
from nas_lightning.strategies.one_shot.papers import RandomWS
from nas_lightning.strategies.one_shot.selection import RandomCandidates
from nas_lightning.studies import figures
from nas_lightning.studies.base import Study
from nas_lightning.studies.scoring import Values, draw_genotypes, mean_estimate, pearson, spearman
from nas_lightning.studies.training import fit_quietly, train_networks, train_once
from nas_lightning.training.retrain import Retrain
from nas_lightning.utils.files import json_text, read_records, write_whole
from nas_lightning.utils.progress import follow
from nas_lightning.utils.randomness import generator
from nas_lightning.utils.tables import Entry, Estimate, Table
from nas_lightning.validation import (
    DISTINCT,
    Between0And1,
    Finite,
    PositiveFloat,
    PositiveInt,
    Seed,
    Share,
    at_least,
    checked,
    entries,
)

# Training posteriors of NESBS, and evaluating the sets of architectures that samplers find.

SAMPLERS: Mapping[str, Sampler] = {
    "SVGD-RD": "svgd_rd",
    "Monte Carlo": "monte_carlo",
    "URS": "uniform",
    "NES-RS": "nes_rs",
}
WITHOUT_POSTERIOR = ("uniform", "nes_rs")
TRIALS_FILE = "trials.json"
Numbers = Mapping[str, float]
Trial = Callable[[], Iterator[Numbers]]
"""Computes the numbers of a trial, one entry for every round."""


def trial_seed(seed: int, trial: int) -> int:
    """Return the seed of a repetition."""
    return 1_000_003 * seed + trial


def record_trials(path: Path, trials: Iterable[tuple[str, Trial]]) -> dict[str, list[Numbers]]:
    """Return the numbers of all trials by name; compute and save those that are not in the file."""
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
    """Load or train a supernet and its posterior; `options` are those of `Nesbs`."""
    pl.seed_everything(seed, workers=True, verbose=False)
    selection: dict[str, Any] = {
        "sampler": "uniform",
        "size": 1,
        "rounds": 1,
    }  # the cheapest, as it is not used
    strategy = Nesbs(space, supernet(), data, seed=seed, lr_min=0.0, **selection, **options)

    def train(strategy: Nesbs) -> Nesbs:
        fit_quietly(trainer, strategy, data)
        return strategy

    trained = train_once(strategy, train, path, f"the supernet and its posterior, seed {seed}")
    trained.to(trainer().strategy.root_device)
    return trained


class SetJudges(NamedTuple):
    """Evaluation with inherited weights, for selecting sets and for reporting.

    Args:
        valid: evaluation on the validation images, which selects sets.
        test: evaluation on the test images.
    """

    valid: InheritedWeights
    test: InheritedWeights

    @classmethod
    def of(cls, strategy: Nesbs, data: SearchData) -> SetJudges:
        """Return the judges of a trained strategy, on all images of each kind."""
        space, supernet = strategy.space, strategy.supernet
        return cls(
            InheritedWeights(space, supernet, data.valid_batches(len(data.valid))),
            InheritedWeights(space, supernet, every_test_batch(data.data)),
        )

    def evaluate(self, members: Sequence[Genotype]) -> Numbers:
        """Return the numbers of a set on the test images."""
        probabilities = torch.stack([self.test.predict(member) for member in members]).cpu()
        return dict(Evaluation(probabilities, self.test.labels.cpu()).numbers())


def posterior_draws(strategy: Nesbs, count: int, generator: torch.Generator) -> list[Genotype]:
    """Draw from the posterior, and return the distinct architectures."""
    draw = monte_carlo(strategy.space, strategy.distribution, logits_of(strategy), generator)
    return list(dict.fromkeys(draw() for _ in range(count)))


def logits_of(strategy: Nesbs, tau: float = 1.0) -> dict[str, torch.Tensor]:
    """Return α/τ."""
    return {name: alpha.detach().cpu().double() / tau for name, alpha in strategy.arch.items()}


def try_sets(
    strategy: Nesbs, valid: InheritedWeights, sampling: Sampling, *, tau: float = 1.0, seed: int
) -> list[Round]:
    """Return the sets that a sampler tries, with α divided by τ."""
    generator = torch.Generator().manual_seed(seed)
    return list(sampling.judge_sets(valid, strategy.distribution, logits_of(strategy, tau), generator, seed))


def over_budget(
    strategy: Nesbs, judges: SetJudges, sampling: Sampling, *, tau: float = 1.0, seed: int
) -> Iterator[Numbers]:
    """Yield the test numbers of the set that is selected after 1, 2, … rounds."""
    if sampling.sampler != "nes_rs":
        rounds = try_sets(strategy, judges.valid, sampling, tau=tau, seed=seed)
        best = [min(rounds[: count + 1], key=lambda done: done.loss) for count in range(len(rounds))]
    else:  # the pool grows with the budget
        smaller = (dataclasses.replace(sampling, rounds=count + 1) for count in range(sampling.rounds))
        best = [try_sets(strategy, judges.valid, one, tau=tau, seed=seed)[0] for one in smaller]
    for done in best:
        yield judges.evaluate(done.members)


# Tables and a figure of two posteriors (Y. Shu's thesis, 2022, figure 5.5 and table 5.7).

POST, BEST = "post-training", "best-response"
KINDS = (POST, BEST)
_SINGLE = (
    "Test errors (%) with inherited weights; best: of all that were judged, on the same test images, which "
    "favors it; ρ: of probability and −loss, random architectures. Mean ± standard error over trials"
)
_SETS = "Test errors (%), mean ± standard error over trials; difference: of the same trial's supernets"
Records = Sequence[Mapping[str, Any]]


def posterior_findings(
    records: Mapping[str, Any], trials: int, samplers: Sequence[str], images: str
) -> Findings:
    """Return the tables of the records `<kind>_<number>` of all trials."""
    of = {kind: [records[f"{kind}_{trial + 1}"] for trial in range(trials)] for kind in KINDS}
    sets = {kind: [record["ensembles"] for record in found] for kind, found in of.items()}
    single, single_figure = _single(of, f"{trials} supernets on {images}")
    rows = [row for sampler in samplers for row in _of_sampler(sampler, sets)]
    columns = ["sampler", "weights", BEST, POST, "difference"]
    title = f"Ensembles by either posterior: {trials} supernets on {images}"
    return Findings([single, Table("ensembles", title, columns, rows, _SETS)], {"posteriors": single_figure})


def _single(of: Mapping[str, Records], what: str) -> tuple[Table, Figure]:
    """Return figure 5.5 and its numbers."""
    rows: list[list[Entry]] = []
    panel: dict[str, dict[str, Estimate | None]] = {}
    for kind, records in of.items():
        probable, best, mean = (100 * _column(records, key) for key in ("probable", "best", "mean"))
        panel[kind] = {"best": mean_estimate(best), "most probable": mean_estimate(probable)}
        rho = (
            None
            if any(record["rho"] is None for record in records)
            else mean_estimate(_column(records, "rho"))
        )
        rows.append([kind, *map(mean_estimate, (probable, best, probable - best, mean)), rho])
    columns = ["posterior", "most probable", "best", "gap", "mean of random ones", "Spearman's ρ"]
    table = Table("posteriors", f"What a posterior says of architectures: {what}", columns, rows, _SINGLE)
    return table, figures.lines({"inherited weights": panel}, "test error (%)")


def _of_sampler(sampler: str, sets: Mapping[str, Records]) -> Iterator[list[Entry]]:
    """Yield the rows of table 5.7, with inherited weights and, if available, with trained members."""
    for weights in ("inherited", "trained"):
        if all(weights in record[sampler] for records in sets.values() for record in records):
            best, post = (
                100 * _column([record[sampler] for record in sets[kind]], weights) for kind in (BEST, POST)
            )
            yield [sampler, weights, *map(mean_estimate, (best, post, best - post))]


def _column(records: Records, key: str) -> Values:
    return np.array([record[key] for record in records])


# Posteriors fitted after and while a supernet is trained (Y. Shu's thesis, 2022, figure 5.5 and table 5.7).
#
# *Post-training*: the supernet first, then p_α by (5.4), as in NESBS. *Best response*: both in every step,
# p_α by the likelihood alone, and the supernet's paths are drawn from it. The study compares how well both
# predict single architectures, and the ensembles that are sampled from them.

POSTERIOR_SAMPLERS: Mapping[str, Sampler] = {"Monte Carlo": "monte_carlo", "SVGD-RD": "svgd_rd"}


@checked
class PosteriorComparison(Study):
    """Compare both posteriors of NESBS over several trainings of the supernet.

    The supernet has the same epochs with both; members are trained by the study's `retrain` and `trainer`.

    Args:
        supernet_epochs: epochs of the supernet.
        posterior_epochs: further epochs of the post-training posterior.
        pool: number of uniform draws of architectures, and of draws by the posterior, among which the best is
            found.
        size: members of an ensemble.
        rounds: number of sets that a sampler tries.
        delta: δ of SVGD-RD, see `strategy.delta` of NESBS.
        svgd_steps: steps of SVGD-RD.
        trained: whether ensembles are also trained from scratch.
        trials: number of repetitions, each with another supernet.
        lr: learning rate of the supernet.
        arch_lr: learning rate of the posterior.
        seed: seed of trainings and draws.

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
        """Train and describe both posteriors, and train the ensembles that are sampled from them."""

        def fit(kind: str, trial: int) -> Nesbs:
            path, seed = folder / f"{kind}_{trial + 1}.pt", self.seed + trial
            longer = partial(trainer, max_epochs=self.epochs[kind])
            return train_posterior(space, supernet, data, longer, path, seed=seed, **self.options[kind])

        def train(members: Sequence[Genotype], where: str, trial: int) -> float:
            to, seed = folder / "trained" / where, self.seed + 1000 * trial
            networks = train_networks(members, network, data, retrain, trainer, to, seed)
            true = evaluate(Ensemble(networks), every_test_batch(data.data))
            return float(ensemble_error(true.probabilities, true.labels))

        records = read_records(folder / TRIALS_FILE)
        for trial in range(self.trials):
            for kind in KINDS:
                name = f"{kind}_{trial + 1}"
                if name not in records:
                    records[name] = self._look(fit(kind, trial), data, trial)
                    self._keep(records, folder)
                for sampler, found in records[name]["ensembles"].items():
                    if self.trained and "trained" not in found:
                        members = [Genotype.from_dict(member) for member in found["members"]]
                        found["trained"] = train(members, f"{name}_{POSTERIOR_SAMPLERS[sampler]}", trial)
                        self._keep(records, folder)
        return posterior_findings(records, self.trials, list(POSTERIOR_SAMPLERS), data.name)

    def _look(self, strategy: Nesbs, data: SearchData, trial: int) -> dict[str, Any]:
        """Describe a posterior, and evaluate the sets that samplers find."""
        judges, seed = SetJudges.of(strategy, data), trial_seed(self.seed, trial)
        ensembles = {}
        for name, sampler in POSTERIOR_SAMPLERS.items():
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
        write_whole(folder / TRIALS_FILE, json_text(records, 1) + "\n")


def describe_posterior(strategy: Nesbs, judges: SetJudges, pool: int, seed: int) -> dict[str, float | None]:
    """Return test errors of the most probable, the best, and random ones, and ρ of probability and −loss."""
    space, generator = strategy.space, torch.Generator().manual_seed(seed)
    uniform, sampled = draw_distinct(space, pool, generator), posterior_draws(strategy, pool, generator)
    logits = logits_of(strategy)
    probable = space.discretize(strategy.distribution.mode(logits))
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


# Tables and figures of the study of temperatures, from the numbers of its trials.

COLUMNS = {"error": "error", "nll": "NLL", "ate": "ATE", "ppd": "PPD"}
Points = Mapping[str, Mapping[str, Estimate]]


def trial_name(name: str, tau: float, trial: int) -> str:
    """Return the key of a trial of a sampler, or of a δ.

    >>> trial_name("SVGD-RD", 0.1, 0), trial_name("URS", 0.1, 0)
    ('SVGD-RD, τ 0.1, trial 1', 'URS, trial 1')
    """
    of_all = SAMPLERS.get(name) in WITHOUT_POSTERIOR
    return f"{name}, trial {trial + 1}" if of_all else f"{name}, τ {tau:g}, trial {trial + 1}"


@dataclass(frozen=True)
class TrialNumbers:
    """The numbers of all trials.

    Args:
        numbers: numbers of each trial by name, one entry for every round.
        taus: the temperatures.
        deltas: values of δ of SVGD-RD with one set.
        size: members of a set.
        rounds: number of sets that a sampler tried.
        trials: number of repetitions.
    """

    numbers: Mapping[str, Sequence[Numbers]]
    taus: Sequence[float]
    deltas: Sequence[float]
    size: int
    rounds: int
    trials: int

    def findings(self, images: str) -> Findings:
        """Return figures 5.6 and 5.7, and their numbers."""
        by_sampler = {tau: {name: self._estimates(name, tau) for name in SAMPLERS} for tau in self.taus}
        by_delta = {
            tau: {f"{delta:g}": self._estimates(f"δ {delta:g}", tau)[0] for delta in self.deltas}
            for tau in self.taus
        }
        at_the_end = {
            tau: {name: budgets[-1] for name, budgets in names.items()} for tau, names in by_sampler.items()
        }
        title = f"Ensembles of {self.size} with inherited weights, test images of {images}"
        tables = [
            self._table("samplers", f"{title}: {self.rounds} sets tried", "", at_the_end),
            self._table("deltas", f"{title}: SVGD-RD, one set tried", "δ", by_delta),
        ]
        errors = {
            f"{name}/{tau:g}/error": point["error"].value
            for tau, points in at_the_end.items()
            for name, point in points.items()
        }
        drawings = {"samplers": self._draw_samplers(by_sampler), "deltas": _draw_deltas(by_delta)}
        return Findings(tables, drawings, errors)

    def _estimates(self, name: str, tau: float) -> list[dict[str, Estimate]]:
        """Return mean and standard error over the trials, for every budget."""
        trials = [self.numbers[trial_name(name, tau, trial)] for trial in range(self.trials)]
        return [
            {column: mean_estimate([numbers[column] for numbers in same]) for column in COLUMNS}
            for same in zip(*trials, strict=True)
        ]

    def _table(self, name: str, title: str, what: str, points: Mapping[float, Points]) -> Table:
        rows: list[list[Entry]] = [
            [f"{tau:g}", key, *point.values()]
            for tau, of_tau in points.items()
            for key, point in of_tau.items()
        ]
        note = (
            f"Mean ± standard error over {self.trials} trials; ATE: mean error of the members; PPD: share of "
            "images on which two of them disagree"
        )
        return Table(name, title, ["τ", what, *COLUMNS.values()], rows, note)

    def _draw_samplers(
        self, points: Mapping[float, Mapping[str, Sequence[Mapping[str, Estimate]]]]
    ) -> Figure:
        """Draw the ensemble's error over the budget, with a panel for each temperature."""
        panels = {
            f"τ = {tau:g}": {
                name: {str(self.size * count): point["error"] for count, point in enumerate(budgets, 1)}
                for name, budgets in names.items()
            }
            for tau, names in points.items()
        }
        return figures.lines(panels, "test error of the ensemble", "architectures that were judged")


def _draw_deltas(points: Mapping[float, Points]) -> Figure:
    """Draw errors and disagreement over δ, with a line for each temperature."""
    panels = {
        COLUMNS[column]: {
            f"τ = {tau:g}": {delta: point[column] for delta, point in of_tau.items()}
            for tau, of_tau in points.items()
        }
        for column in ("error", "ate", "ppd")
    }
    return figures.lines(panels, "share of the test images", "δ")


# The effect of δ when the posterior is too sharp or too flat (Shu 2022, thesis, section 5.5.3).
#
# One supernet and one posterior are trained; then α is divided by several temperatures τ (5.6). Sets of
# architectures are sampled from each and evaluated on test images with inherited weights: over the budget by
# different samplers (figure 5.6), and by SVGD-RD over δ (figure 5.7). A set is selected by the loss on the
# validation images, as in a search.


class Temperature(Study):
    """Ensembles that samplers find at several temperatures of one posterior.

    The epochs of `trainer` train the supernet and, at their end, the posterior.

    Args:
        taus: the temperatures.
        deltas: values of δ in figure 5.7.
        size: members of a set.
        rounds: number of sets that a sampler tries.
        delta: δ of SVGD-RD in figure 5.6, see `strategy.delta` of NESBS.
        trials: number of repetitions with the same weights and posterior.
        svgd_steps: steps of SVGD-RD.
        posterior_share: share of the epochs that train the posterior.
        lr: learning rate of the supernet.
        arch_lr: learning rate of the posterior.
        seed: seed of training and draws.

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
        """Train once, then sample and evaluate sets at every temperature."""
        training = {"posterior_share": self.posterior_share, "lr": self.lr, "arch_lr": self.arch_lr}
        path = folder / "posterior.pt"
        strategy = train_posterior(space, supernet, data, trainer, path, seed=self.seed, **training)
        judges = SetJudges.of(strategy, data)
        numbers_of = record_trials(folder / TRIALS_FILE, self._trials(strategy, judges))
        return TrialNumbers(
            numbers_of, self.taus, self.deltas, self.sampling.size, self.sampling.rounds, self.trials
        ).findings(data.name)

    def _trials(self, strategy: Nesbs, judges: SetJudges) -> Iterator[tuple[str, Trial]]:
        """Yield the name of every trial and the function that computes its numbers."""
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


# Whether inherited weights tell good ensembles from bad ones (Shu 2022, thesis, section 5.5.1, table 5.6).
#
# Architectures are evaluated with a supernet's weights on validation images, then trained from scratch and
# evaluated on test images, alone and in every ensemble of n of them. The correlations are over these
# ensembles, which share members: their reliability depends on the number of architectures.

MEASURES = {"error": ensemble_error, "loss": averaged_loss}


class Inherited(Study):
    """Estimated against true performance of architectures and of their ensembles.

    The supernet is trained with one uniform path in each step; the networks by the study's `retrain` and
    `trainer`.

    Args:
        architectures: number of architectures that are trained, with diverse estimated losses.
        pool: number of architectures that are evaluated with inherited weights; those that are trained are at
            even distances in their order.
        sizes: sizes of the ensembles; 1: the architectures themselves.
        supernet_epochs: epochs of the supernet.
        supernet_lr: initial learning rate of the supernet.
        top: share of ensembles of Agreement-top.
        seed: seed of training and draws.

    >>> study = Inherited(architectures=5, pool=20, sizes=[1, 3])
    >>> list(study.wants())
    ['space', 'supernet', 'network', 'data', 'retrain', 'trainer', 'folder']
    """

    @checked
    def __init__(
        self,
        *,
        architectures: Annotated[int, at_least(3)] = 10,
        pool: PositiveInt = 100,
        sizes: Annotated[Sequence[PositiveInt], entries(1), DISTINCT] = (1, 3, 5, 7),
        supernet_epochs: PositiveInt = 50,
        supernet_lr: PositiveFloat = 0.1,
        top: Between0And1 = 0.3,
        seed: Seed = 0,
    ) -> None:
        if pool < architectures:
            raise InputError(
                f"expected at least the {architectures} architectures", got=pool, where="study.pool"
            )
        if max(sizes) >= architectures:
            raise InputError(f"expected sizes below {architectures}", got=list(sizes), where="study.sizes")
        self.architectures, self.pool, self.sizes = architectures, pool, list(sizes)
        self.supernet_epochs, self.supernet_lr = supernet_epochs, supernet_lr
        self.top, self.seed = top, seed

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
        """Train the supernet, choose and train architectures, and correlate."""
        judge = self._train_judge(space, supernet, data, trainer, folder / "supernet.pt")
        chosen = self._choose(judge, space)
        networks = train_networks(chosen, network, data, retrain, trainer, folder / "trained", self.seed)
        true = evaluate(Ensemble(networks), every_test_batch(data.data))
        estimated = torch.stack([judge.predict(genotype) for genotype in chosen]).cpu()
        pairs_of = {
            name: {
                size: (
                    over_subsets(measure, estimated, judge.labels.cpu(), size),
                    over_subsets(measure, true.probabilities, true.labels, size),
                )
                for size in self.sizes
            }
            for name, measure in MEASURES.items()
        }
        return Findings(
            [
                *(self._table(name, pairs, data.name) for name, pairs in pairs_of.items()),
                self._each(chosen, pairs_of),
            ],
            {
                f"inherited_{name}": _figure(
                    pairs, f"estimated {name}, inherited weights", f"true {name}, trained from scratch"
                )
                for name, pairs in pairs_of.items()
            },
            {
                f"spearman/{name}/{size}": rho
                for name, pairs in pairs_of.items()
                for size, pair in pairs.items()
                if not isnan(rho := spearman(*pair))
            },
        )

    def _train_judge(
        self,
        space: SearchSpace,
        supernet: Callable[[], Supernet],
        data: SearchData,
        trainer: Callable[..., pl.Trainer],
        path: Path,
    ) -> InheritedWeights:
        """Load or train the supernet, for evaluation on the validation images."""
        pl.seed_everything(self.seed, workers=True, verbose=False)

        def train(shared: Supernet) -> Supernet:
            options: dict[str, Any] = {"lr_min": 0.0, "seed": self.seed}
            options["selection"] = RandomCandidates(candidates=1, valid_batches=1)
            strategy = RandomWS(space, shared, data, lr=self.supernet_lr, **options)
            fit_quietly(trainer, strategy, data, max_epochs=self.supernet_epochs)
            return shared

        shared = train_once(supernet(), train, path, "the supernet")
        return InheritedWeights(space, shared, data.valid_batches(len(data.valid)))

    def _choose(self, judge: InheritedWeights, space: SearchSpace) -> list[Genotype]:
        """Return architectures of the pool at even distances in the order of their estimated losses."""
        pool = draw_genotypes(space, self.pool, self.seed)
        losses = {genotype: judge.loss([genotype]) for genotype in follow(pool, "architectures")}
        pool.sort(key=lambda genotype: losses[genotype])
        places = np.linspace(0, len(pool) - 1, self.architectures).round().astype(int)
        return [pool[place] for place in places]

    def _table(self, name: str, pairs: dict[int, tuple[Values, Values]], data: str) -> Table:
        statistics = {
            "Spearman": spearman,
            "Pearson": pearson,
            f"Agreement-{self.top:.0%}": lambda x, y: agreement(x, y, self.top),
        }
        rows: list[list[Entry]] = [["ensembles", *(len(x) for x, _ in pairs.values())]]
        for statistic, function in statistics.items():
            values = [function(x, y) for x, y in pairs.values()]
            rows.append([statistic, *(None if isnan(value) else value for value in values)])
        return Table(
            name,
            f"Estimated against true {name}: {self.architectures} architectures on {data}",
            ["", *(f"n = {size}" for size in pairs)],
            rows,
            f"Agreement: the share of the {self.top:.0%} truly best that are among those estimated best",
        )

    def _each(
        self, chosen: Sequence[Genotype], pairs_of: dict[str, dict[int, tuple[Values, Values]]]
    ) -> Table:
        """Return the numbers of the single architectures, if ensembles of size 1 are evaluated."""
        columns, values = ["architecture"], []
        for name, pairs in pairs_of.items():
            if 1 in pairs:
                columns += [f"estimated {name}", f"true {name}"]
                values += [part.tolist() for part in pairs[1]]
        rows = [[str(genotype), *numbers] for genotype, *numbers in zip(chosen, *values, strict=True)]
        return Table("architectures", "The architectures", columns, rows, long=True)


def _figure(pairs: dict[int, tuple[Values, Values]], x_label: str, y_label: str) -> Figure:
    """Draw a panel for each size, with a point for each ensemble."""
    figure = Figure(figsize=(2.5 * len(pairs), 2.6), layout="constrained")
    for axes, (size, (x, y)) in zip(
        figure.subplots(1, len(pairs), squeeze=False).flat, pairs.items(), strict=True
    ):
        tidy(axes)
        alpha = min(1.0, 60 / len(x) + 0.2)
        axes.plot(x, y, "o", color=COLORS[0], markersize=3, alpha=alpha, markeredgewidth=0)
        axes.locator_params(nbins=5)
        rho = spearman(x, y)
        text = f"n = {size}" if isnan(rho) else f"n = {size}  ρ {rho:.2f}"
        axes.set_title(text, loc="left", fontsize=9, fontweight="bold", color=INK)
    figure.supxlabel(x_label, fontsize=8, color=INK)
    figure.supylabel(y_label, fontsize=8, color=INK)
    return figure


def over_subsets(
    measure: Callable[[Tensor, Tensor], Tensor], probabilities: Tensor, labels: Tensor, size: int
) -> Values:
    """Return the measure of every ensemble of `size` members, (members, images, classes) → (ensembles,)."""
    subsets = combinations(range(len(probabilities)), size)
    return np.array([float(measure(probabilities[list(subset)], labels)) for subset in subsets])


def agreement(x: Values, y: Values, share: float) -> float:
    """Return the share of the smallest values of x that are among the smallest of y; ties by position.

    >>> agreement(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 4.0, 2.0, 3.0]), 0.5)
    0.5
    """
    count = max(1, round(share * len(x)))
    first, second = (set(np.argsort(values, kind="stable")[:count].tolist()) for values in (x, y))
    return len(first & second) / count


# Samplers of ensembles over their budget and the ensembles' size (Y. Shu's thesis, 2022, 5.4.1, figure 5.3).
#
# One supernet and one posterior are trained. At the same budget of architectures, SVGD-RD, Monte Carlo,
# random sets (URS), and NES-RS select a set by its validation loss with inherited weights; its test error is
# compared with that of the best single architecture.

SINGLE = "best single"
_BUDGETS_NOTE = (
    "Test errors (%) with inherited weights, mean ± standard error over trials. The single one is picked on "
    "the test images, which favors it"
)


@checked
class EnsembleSearch(Study):
    """Compare samplers at equal budgets, for ensembles of several sizes.

    The epochs of `trainer` train the supernet and, at their end, the posterior.

    Args:
        sizes: n, numbers of members of a set.
        rounds: T, number of sets that a sampler tries.
        delta: δ of SVGD-RD, see `strategy.delta` of NESBS.
        svgd_steps: steps of SVGD-RD.
        singles: number of uniform draws of architectures, and of draws by the posterior, among which the best
            single architecture is found.
        trials: number of repetitions with the same weights and posterior.
        posterior_share: share of the epochs that train the posterior.
        lr: learning rate of the supernet.
        arch_lr: learning rate of the posterior.
        seed: seed of training and draws.

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
        """Return the samplings of one sampler, for every size."""
        return [self.sampling(SAMPLERS[sampler], size=size) for size in self.sizes]

    def run(
        self,
        space: SearchSpace,
        supernet: Callable[[], Supernet],
        data: SearchData,
        trainer: Callable[..., pl.Trainer],
        folder: Path,
    ) -> Findings:
        """Train once, then sample and evaluate sets."""
        path = folder / "posterior.pt"
        strategy = train_posterior(space, supernet, data, trainer, path, seed=self.seed, **self.training)
        judges = SetJudges.of(strategy, data)
        return self._findings(record_trials(folder / TRIALS_FILE, self._trials(strategy, judges)), data.name)

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
        return Findings([Table("budgets", title, columns, rows, _BUDGETS_NOTE)], {"budgets": figure})

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


# The width of SVGD-RD's Gaussians and the probability of its members (Y. Shu's thesis, 2022, equation 5.8).
#
#     p̂(x) = Π_i Σ_o p_i(o) N(o_i | h_o, σ² I),   σ² = |O|                                         (5.8)
#
# A node of DARTS' space chooses from all pairs of edge and operation. Counting these candidates instead of
# operations makes the Gaussians three to five times wider, which flattens the posterior.

_WIDTHS_NOTE = (
    "log p of the members, mean ± standard error over posteriors; most probable: of the posterior's mode. "
    "Each posterior has its own start of the particles, the same for every δ and width"
)


@checked
class ParticleWidths(Study):
    """The probability of the sets that SVGD-RD finds under random posteriors, by σ² and δ.

    Args:
        spreads: standard deviations of the normal logits α/τ.
        deltas: values of δ.
        size: n, number of particles.
        steps: L of SVGD-RD.
        posteriors: number of posteriors of each spread.
        seed: seed of the posteriors and the particles.

    >>> from nas_lightning.spaces import NasBench201
    >>> study = ParticleWidths(spreads=[2.0], deltas=[0.0], steps=20, posteriors=2)
    >>> [row[:2] for row in study.run(NasBench201()).tables[0].rows]
    [[2.0, 'operations'], [2.0, 'candidates']]
    """

    def __init__(
        self,
        *,
        spreads: Annotated[Sequence[PositiveFloat], entries(1), DISTINCT] = (2.0, 5.0),
        deltas: Annotated[Sequence[Finite], entries(1), DISTINCT] = (0.0, 1.0),
        size: PositiveInt = 5,
        steps: PositiveInt = 1000,
        posteriors: Annotated[int, at_least(2)] = 20,
        seed: Seed = 0,
    ) -> None:
        self.spreads, self.deltas = list(spreads), list(deltas)
        self.size, self.steps, self.posteriors, self.seed = size, steps, posteriors, seed

    def run(self, space: SearchSpace) -> Findings:
        """Draw posteriors, run SVGD-RD with each width and δ, and compute the members' probabilities."""
        rows: list[list[Entry]] = []
        for spread in self.spreads:
            found = [
                self._posterior(space, spread, number)
                for number in follow(range(self.posteriors), f"posteriors of deviation {spread:g}")
            ]
            modes, sets = torch.tensor([one[0] for one in found]), torch.stack([one[1] for one in found])
            for place, variance in enumerate(get_args(Variance)):
                means = [mean_estimate(sets[:, place, column]) for column in range(len(self.deltas))]
                fall = mean_estimate(sets[:, place, 0] - sets[:, place, -1])
                rows.append([spread, variance, mean_estimate(modes), *means, fall])
        columns = ["deviation of logits", "σ² counts", "most probable"]
        columns += [*(f"δ = {delta:g}" for delta in self.deltas), "first less last δ"]
        what = f"{self.posteriors} random posteriors, n = {self.size}, {self.steps:,} steps"
        return Findings(
            [
                Table(
                    "members",
                    f"How probable SVGD-RD's members are: {what}",
                    columns,
                    rows,
                    _WIDTHS_NOTE,
                )
            ]
        )

    def _posterior(self, space: SearchSpace, spread: float, number: int) -> tuple[float, torch.Tensor]:
        """Return log p of the mode, and the mean log p of the members, (widths, deltas)."""
        distribution, random = Architectures(space), generator(self.seed, number)
        logits = {
            name: spread * torch.randn(group.shape, generator=random) for name, group in space.groups.items()
        }
        mode = float(distribution.log_probability(logits, distribution.mode(logits)))
        values = [list(self._members(space, distribution, logits, v, number)) for v in get_args(Variance)]
        return mode, torch.tensor(values)

    def _members(
        self,
        space: SearchSpace,
        distribution: Architectures,
        logits: dict[str, torch.Tensor],
        variance: Variance,
        number: int,
    ) -> Iterator[float]:
        relaxed = RelaxedArchitectures(distribution.decisions, distribution.probabilities(logits), variance)
        start = relaxed.start(self.size, generator(self.seed, number, 1))
        for delta in self.deltas:
            particles = svgd_rd(start, relaxed.score, delta=delta, steps=self.steps)
            members = set_of_particles(space, relaxed, particles)
            log_p = [float(distribution.log_probability(logits, space.one_hot(one))) for one in members]
            yield sum(log_p) / len(log_p)
