"""NASI (Shu et al. 2022, arXiv:2109.00817; thesis, chapter 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from math import prod
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from nas_lightning.data import SearchData
from nas_lightning.data.batches import Batch
from nas_lightning.frozen_map import FrozenMap
from nas_lightning.genotype import Genotype
from nas_lightning.metrics import GradNorm, NTKSqrtMeanDiagonal
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.gradients import SampleGradNorm
from nas_lightning.metrics.pool import PoolFile
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.plots.style import COLORS, GRAY, INK, tidy
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.nasi import Computed, Inputs, Labels, Nasi, derive_mode, replace_batch
from nas_lightning.studies import figures
from nas_lightning.studies.base import Study
from nas_lightning.studies.scoring import (
    MAIN,
    EstimatedStudy,
    Setting,
    Statistic,
    Values,
    batch_sizes,
    draw_genotypes,
    estimate,
    kendall,
    mean_estimate,
    pearson,
    spearman,
)
from nas_lightning.utils.devices import CPU
from nas_lightning.utils.progress import follow
from nas_lightning.utils.randomness import generator
from nas_lightning.utils.tables import Entry, Estimate, Table
from nas_lightning.validation import (
    DISTINCT,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seed,
    at_least,
    at_most,
    checked,
    entries,
)

# NASI's samples once, its step for any ν and μ afterwards (Shu et al. 2022, arXiv:2109.00817, section 4.1).
#
# All samples are taken at α₀ = 0, so neither the architectures A_t nor ∇t(A_t) depend on ν, μ or T:
#
#     Δ* = ξ/T Σ_t G_t / max(‖G_1‖, …, ‖G_t‖),   G_t = (1 − μ [t(A_t) > ν_t]) ∇t(A_t)   (thesis, 6.13)
#     ν_t = ν, or ν_t = t⁻¹ (ν + Σ_{s<t} t(A_s))                                                  (6.14, 6.15)


class TraceSamples(NamedTuple):
    """Traces and gradients of the sampled architectures A_1, …, A_T.

    Args:
        traces: t(A_t), (T,).
        slopes: ∇_α t(A_t), (T, decisions), the groups concatenated.
    """

    traces: Tensor
    slopes: Tensor

    def first(self, steps: int) -> TraceSamples:
        """Return the samples of a search of `steps` steps.

        >>> TraceSamples(torch.arange(3.0), torch.zeros(3, 2)).first(2).traces
        tensor([0., 1.])
        """
        return TraceSamples(self.traces[:steps], self.slopes[:steps])


def trace_step(samples: TraceSamples, mu: float, nu: float, *, adaptive: bool = False) -> Tensor:
    """Return Δ* with ξ = 1, (decisions,).

    >>> samples = TraceSamples(torch.tensor([1.0, 9.0]), torch.tensor([[2.0, 0.0], [0.0, 4.0]]))
    >>> trace_step(samples, mu=2.0, nu=5.0)  # t of the second is above ν: the step leads away from it
    tensor([ 0.5000, -0.5000])
    """
    traces, slopes = samples
    numbers = torch.arange(1, len(traces) + 1, dtype=traces.dtype)
    before = traces.cumsum(0) - traces
    nus = (nu + before) / numbers if adaptive else torch.full_like(traces, nu)
    G = torch.where(traces > nus, 1 - mu, 1.0)[:, None] * slopes
    largest = G.norm(dim=1).cummax(0).values.clamp_min(torch.finfo(G.dtype).tiny)
    return (G / largest[:, None]).mean(dim=0)


def draw_samples(
    strategy: Nasi, data: SearchData, path: Path, *, steps: int, batch_size: int, settings: Mapping[str, Any]
) -> TraceSamples:
    """Return the samples of a search, each on a new mini-batch; draw and append those not in the file."""
    sizes = [parameter.numel() for parameter in strategy.arch_list]
    columns = ["trace", *(f"slope {number}" for number in range(sum(sizes)))]
    file = PoolFile(path, columns, {**settings, "batch": batch_size, "seed": strategy.seed})
    rows = file.read()
    batches = _batches(strategy, data, batch_size)
    for step, batch in enumerate(islice(batches, steps)):
        if str(step) in rows:  # advance the generator as when it was drawn
            strategy.sample(dict(strategy.arch))
            continue
        slopes, t, _ = strategy.trace_slopes(*batch)
        values = [float(t), *torch.cat([slope.flatten() for slope in slopes]).tolist()]
        rows[str(step)] = dict(zip(columns, values, strict=True))
        file.append(str(step), rows[str(step)])
    found = torch.tensor([[rows[str(step)][name] for name in columns] for step in range(steps)])
    return TraceSamples(found[:, 0].double(), found[:, 1:].double())


def _batches(strategy: Nasi, data: SearchData, batch_size: int) -> Iterator[Batch]:
    kinds = strategy.labels, strategy.inputs, data.num_classes
    for epoch in count():
        random = generator(strategy.seed, epoch)
        for batch in data.train.shuffled_pass(epoch, batch_size, strategy.seed):
            yield replace_batch(batch, *kinds, random)


# t(A) against accuracies: in bins, and conditioned on t ≤ ν (Y. Shu's thesis, 2022, fig. 6.3, table 6.5).

TRACE: Mapping[str, Metric] = {"norm": GradNorm(per_layer=False)}
"""‖b⁻¹ Σ ∇L‖, whose square is t."""

SHARES = (0.25, 0.5, 0.75, 0.9, 1.0)
_BINS = "As many cells in each bin; the mean of accuracies ± its standard error, their deviation, the best"
_CONDITIONED = "ν is a quantile of t; the correlation is of those cells alone whose t is not above it"


class Bin(NamedTuple):
    """Cells with similar t.

    Args:
        t: mean t.
        values: accuracies.
        mean: mean accuracy.

    >>> Bin(1.0, np.array([90.0, 92.0]), mean_estimate([90.0, 92.0])).best
    92.0
    """

    t: float
    values: Values
    mean: Estimate

    @property
    def deviation(self) -> float:
        """Standard deviation of the accuracies; 0 for a single one."""
        return float(self.values.std(ddof=1)) if len(self.values) > 1 else 0.0

    @property
    def best(self) -> float:
        """The largest accuracy."""
        return float(self.values.max())


def bins_of(
    norms: Values, accuracy: Values, *, bins: int, what: str, resamples: int, seed: int
) -> tuple[list[Table], dict[str, Figure]]:
    """Return two tables and a figure; cells that no input reaches, with norm −∞, have t = 0."""
    t = np.clip(norms, 0, None) ** 2
    found = [
        Bin(float(t[part].mean()), accuracy[part], mean_estimate(accuracy[part]))
        for part in np.array_split(np.argsort(t, kind="stable"), bins)
    ]
    rows: list[list[Entry]] = [
        [number, len(one.values), one.t, one.mean, one.deviation, one.best]
        for number, one in enumerate(found, 1)
    ]
    columns = ["bin", "cells", "mean t", "accuracy", "deviation", "best"]
    binned = Table("bins", f"Accuracy (%) by bins of t(A): {what}", columns, rows, _BINS)
    conditioned = [conditioned_row(t, accuracy, share, resamples, seed) for share in SHARES]
    columns = ["cells with the smallest t", "cells", "ν", "Spearman", "Kendall"]
    title = f"t(A) against accuracy, conditioned on t ≤ ν: {what}"
    return [binned, Table("conditioned", title, columns, conditioned, _CONDITIONED)], {
        "bins": _picture(found)
    }


def conditioned_row(t: Values, accuracy: Values, share: float, resamples: int, seed: int) -> list[Entry]:
    """Return a row with the correlations over the share of cells with the smallest t.

    >>> t, accuracy = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0, 0.0])
    >>> conditioned_row(t, accuracy, 0.75, resamples=20, seed=0)[:3]
    ['75%', 3, 3.25]
    """
    nu = float(np.quantile(t, share))
    kept = t <= nu
    found = [
        estimate(s, t[kept], accuracy[kept], resamples=resamples, seed=seed) for s in (spearman, kendall)
    ]
    return [f"{share:.0%}", int(kept.sum()), nu, *found]


def _picture(bins: Sequence[Bin]) -> Figure:
    t, means = np.array([one.t for one in bins]), [one.mean.value for one in bins]
    figure = Figure(figsize=(3.6, 2.6), layout="constrained")
    axes = figure.subplots()
    style: dict[str, Any] = {"color": COLORS[0], "marker": "o", "markersize": 4, "capsize": 2}
    axes.errorbar(t, means, yerr=[one.deviation / 2 for one in bins], label="mean ± ½ deviation", **style)
    axes.plot(t, [one.best for one in bins], color=GRAY, marker="^", markersize=4, label="best")
    if (t > 0).all():
        axes.set_xscale("log")
    axes.set_xlabel("mean t(A) of a bin", fontsize=8, color=INK)
    axes.set_ylabel("accuracy (%)", fontsize=8, color=INK)
    axes.legend(frameon=False, fontsize=7, labelcolor=INK)
    tidy(axes)
    return figure


# Results of NASI searches over ν, μ, budgets, and settings, as tables and figures.

_GRID = "ν is a quantile of the t sampled by a search; means over searches ± their standard errors"
_BUDGETS = "ν at a quantile of t, at their mean (equation 6.14), at the running mean (6.15); μ = {mu:g}"
_SETTINGS = "ν at the {nu:.0%} quantile of the t sampled, μ = {mu:g}"
_EMPTY = "Empty where a search ended in an architecture that the table lacks"


class Rule(NamedTuple):
    """The constraint of a search.

    Args:
        nu: ν as a quantile of the sampled t.
        mu: weight of the penalty.
    """

    nu: float
    mu: float


class Found(NamedTuple):
    """Samples of searches, and the table for their results.

    Args:
        space: the searched space.
        benchmark: the table of accuracies.
        samples: samples of each setting's searches.
        random: mean accuracy of random cells, by data set.
    """

    space: SearchSpace
    benchmark: TabularBenchmark
    samples: Mapping[str, Sequence[TraceSamples]]
    random: Mapping[str, float]

    def genotype(self, step: torch.Tensor) -> Genotype:
        """Return the mode of p_{α*}, α* = Δ*, without `none`."""
        groups = self.space.groups
        parts = step.split([prod(group.shape) for group in groups.values()])
        pairs = zip(groups.items(), parts, strict=True)
        return derive_mode(self.space, {name: p.view(group.shape).softmax(-1) for (name, group), p in pairs})

    def accuracies(
        self, samples: Sequence[TraceSamples], rule: Rule, kind: str = "quantile"
    ) -> list[Estimate | None]:
        """Return the mean over searches for each data set; None if the table lacks one of the results."""
        ends = [self.genotype(step_of(one, rule, kind)) for one in samples]
        if not all(map(self.benchmark.knows, ends)):
            return [None] * len(self.random)
        return [mean_estimate([self.benchmark.column(name, end) for end in ends]) for name in self.random]


def step_of(samples: TraceSamples, rule: Rule, kind: str = "quantile") -> torch.Tensor:
    """Return Δ* with ν by the rule (`quantile`), by equation 6.14 (`mean`), or by 6.15 (`adaptive`)."""
    mean = float(samples.traces.mean())
    nu = float(samples.traces.quantile(rule.nu)) if kind == "quantile" else mean
    return trace_step(samples, rule.mu, nu, adaptive=kind == "adaptive")


def grid_table(found: Found, nus: Sequence[float], mus: Sequence[float], what: str) -> tuple[Table, Figure]:
    """Return accuracies over ν and μ."""
    main, place = found.samples[MAIN], list(found.random).index(found.benchmark.dataset)
    cells = [[found.accuracies(main, Rule(nu, mu))[place] for mu in mus] for nu in nus]
    rows: list[list[Entry]] = []
    for nu, line in zip(nus, cells, strict=True):
        rows.append([f"{nu:.0%}", mean_estimate([float(one.traces.quantile(nu)) for one in main]), *line])
    columns = ["quantile", "ν", *(f"μ = {mu:g}" for mu in mus)]
    table = Table("grid", f"Accuracy over ν and μ: {what}", columns, rows, _note(_GRID, rows))
    values = np.array([[np.nan if cell is None else cell.value for cell in line] for line in cells])
    names = [[f"{nu:.0%}" for nu in nus], [f"{mu:g}" for mu in mus]]
    return table, figures.heat_map(values, *names, row="ν, quantile of t", column="μ", label="accuracy (%)")


def budget_tables(found: Found, budgets: Sequence[int], rule: Rule, what: str) -> tuple[Table, Figure]:
    """Return accuracies over the number of samples, for three choices of ν."""
    main, place = found.samples[MAIN], list(found.random).index(found.benchmark.dataset)
    names = {"quantile": f"ν at {rule.nu:.0%}", "mean": "ν by 6.14", "adaptive": "ν by 6.15"}
    curves: dict[str, dict[str, Estimate | None]] = {name: {} for name in names.values()}
    for budget in budgets:
        some = [one.first(budget) for one in main]
        for kind, name in names.items():
            curves[name][str(budget)] = found.accuracies(some, rule, kind)[place]
    rows: list[list[Entry]] = [
        [budget, *(curve[str(budget)] for curve in curves.values())] for budget in budgets
    ]
    random = found.random[found.benchmark.dataset]
    note = _note(f"{_BUDGETS.format(mu=rule.mu)}. Random cells have {random:.2f} in the mean", rows)
    table = Table("budgets", f"Accuracy over T: {what}", ["T", *names.values()], rows, note)
    return table, figures.lines({"T": curves}, "accuracy (%)", "samples")


def settings_table(found: Found, rule: Rule, what: str) -> Table:
    """Return accuracies of the searches' results by setting, and of random cells."""
    rows: list[list[Entry]] = []
    for name, samples in found.samples.items():
        rows.append([name, *found.accuracies(samples, rule)])
    rows.append(["random cells", *found.random.values()])
    note = _note(_SETTINGS.format(nu=rule.nu, mu=rule.mu), rows)
    return Table("settings", f"Accuracy by setting: {what}", ["setting", *found.random], rows, note)


def _note(text: str, rows: Sequence[Sequence[Entry]]) -> str:
    """Return the note of a table, with the reason for empty entries."""
    return f"{text}. {_EMPTY}" if any(None in row for row in rows) else text


# What NASI's search depends on (Shu et al. 2022, arXiv:2109.00817; Y. Shu's thesis, 2022, section 6.6).
#
# Figure 6.3 and the conditioned row of table 6.5: t(A) against accuracies. Figures 6.2, 6.4, and 6.6 and
# tables 6.4, 6.6, and 6.8: searches over budgets, ν and μ, widths, batch sizes, random labels and inputs. ν
# is a quantile of the sampled t, so that it has the same meaning at every width and batch size.

Quantile = Annotated[float, at_least(0), at_most(1)]


class SearchSetting(NamedTuple):
    """The conditions that samples are drawn under.

    Args:
        sizes: changed sizes of the supernet.
        batch_size: number of images of a step.
        labels: true or random.
        inputs: true or Gaussian.
    """

    sizes: dict[str, int]
    batch_size: int
    labels: Labels = "true"
    inputs: Inputs = "true"


@checked
@dataclass(frozen=True, kw_only=True)
class NasiAblation(EstimatedStudy):
    """NASI's trace against accuracies, and its search when one setting varies.

    The samples of a search serve for all ν, μ, and budgets, which are computed from them exactly.

    Args:
        bins: number of bins of t, of equal size.
        steps: T of each search.
        searches: searches of each setting, with other weights, samples, and order of images; 0: only the
            bins, which need no supernet.
        nus: ν as quantiles of the sampled t; 1 is a search without constraint.
        mus: values of μ.
        nu: ν where it does not vary.
        mu: μ where it does not vary.
        budgets: numbers of steps; those above T are left out.
        channels: widths of the supernet besides its own.
        batch_sizes: batch sizes besides that of the data set.
        agnostic: whether to search with random labels, and with Gaussian inputs.
        computed: which operations are computed, see `Nasi`.
        cells, resamples, scores, seed, workers, backend: see `EstimatedStudy`.

    >>> study = NasiAblation(steps=4, channels=[2], batch_sizes=[], agnostic=False)
    >>> list(study.settings(16))
    ['main', '2 channels']
    """

    metrics: Mapping[str, Metric] = field(default_factory=lambda: TRACE, init=False)
    cells: Annotated[int, at_least(4)] = 300
    bins: Annotated[int, at_least(2)] = 10
    steps: PositiveInt = 100
    searches: NonNegativeInt = 5
    nus: Annotated[Sequence[Quantile], entries(1), DISTINCT] = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
    mus: Annotated[Sequence[NonNegativeFloat], entries(1), DISTINCT] = (0.5, 1.0, 2.0, 4.0, 8.0)
    nu: Quantile = 0.5
    mu: NonNegativeFloat = 1.0
    budgets: Annotated[Sequence[PositiveInt], DISTINCT] = (1, 2, 5, 10, 20, 50, 100, 200, 500)
    channels: Annotated[Sequence[PositiveInt], DISTINCT] = (2, 4, 16)
    batch_sizes: Annotated[Sequence[Annotated[int, at_least(2)]], DISTINCT] = (8, 16, 64)
    agnostic: bool = True
    computed: Computed = "sampled"

    def settings(self, batch_size: int) -> dict[str, SearchSetting]:
        """Return the settings by name, the main one first."""
        found = {MAIN: SearchSetting({}, batch_size)}
        for channels in self.channels:
            found[f"{channels} channels"] = SearchSetting({"channels": channels}, batch_size)
        for size in self.batch_sizes:
            found[f"batches of {size}"] = SearchSetting({}, size)
        if self.agnostic:
            found["random labels"] = SearchSetting({}, batch_size, labels="random")
            found["gaussian inputs"] = SearchSetting({}, batch_size, inputs="gaussian")
        return found

    def run(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        supernet: Callable[..., Supernet],
        data: SearchData,
        benchmark: TabularBenchmark,
        folder: Path,
        accelerator: torch.device = CPU,
    ) -> Findings:
        """Score cells, draw the samples that are not in files, and look up accuracies."""
        if self.searches:
            with torch.device("meta"):
                supernet()  # raises in a space without one, before anything is scored
        genotypes, accuracies = self.draw_known(benchmark, space)
        pool = self.scored_pool(space, genotypes, folder, accelerator)
        norms = pool.score_main(Setting(network, data.train_batches(1)[0]))["norm"]
        what = f"{self.cells:,} cells scored on {data.name}"
        options = {"bins": self.bins, "resamples": self.resamples, "seed": self.seed}
        tables, pictures = bins_of(norms, accuracies[benchmark.dataset], what=what, **options)
        if not self.searches:
            return Findings(tables, pictures)

        settings = self.settings(data.batch_size)
        cases = [(name, seed) for name in settings for seed in range(self.seed, self.seed + self.searches)]
        samples: dict[str, list[TraceSamples]] = {name: [] for name in settings}
        for name, seed in follow(cases, "searches"):
            path = folder / "samples" / f"{name.replace(' ', '_')}_{seed}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            samples[name].append(self._search(settings[name], space, supernet, data, path, seed))
        found = Found(space, benchmark, samples, {k: float(v.mean()) for k, v in accuracies.items()})
        what = f"{self.searches} searches of {space.name} on {data.name}"
        budgets = sorted({budget for budget in self.budgets if budget < self.steps} | {self.steps})
        rule = Rule(self.nu, self.mu)
        grid, picture = grid_table(found, sorted(self.nus), sorted(self.mus), what)
        budget, lines = budget_tables(found, budgets, rule, what)
        tables += [grid, budget, settings_table(found, rule, what)]
        return Findings(tables, {**pictures, "grid": picture, "budgets": lines})

    def _search(
        self,
        setting: SearchSetting,
        space: SearchSpace,
        supernet: Callable[..., Supernet],
        data: SearchData,
        path: Path,
        seed: int,
    ) -> TraceSamples:
        options: dict[str, Any] = {"labels": setting.labels, "inputs": setting.inputs, "seed": seed}
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            net = supernet(**setting.sizes)
            strategy = Nasi(space, net, data, nu=1.0, computed=self.computed, **options)
        facts = {**setting._asdict(), "parameters": sum(p.numel() for p in strategy.theta)}
        sizes = {"steps": self.steps, "batch_size": setting.batch_size}
        return draw_samples(strategy, data, path, settings=facts, **sizes)


# The kernel's trace norm against NASI's approximations (Y. Shu's thesis, 2022, table 6.7).
#
# ‖Θ₀‖_tr = Σ_x ‖∇_θ f(x)‖²_F  ≈  Σ_x ‖∇_θ L_x‖² (6.6)  ≈  ‖b⁻¹ Σ_{x ≤ b} ∇_θ L_x‖² (6.7)

_EXACT = {"exact": NTKSqrtMeanDiagonal(output="all"), "sum": SampleGradNorm()}
_NOTE_APPROXIMATION = (
    "± the bootstrap's standard error. The exact trace is that of all outputs; rows of the kernel are what "
    "flows through each image's activations"
)


@checked
@dataclass(frozen=True, kw_only=True)
class TraceApproximation(EstimatedStudy):
    """The trace norm of random architectures' kernels, and its approximations by gradients of the loss.

    Args:
        spaces: the spaces that architectures are drawn from, by name.
        sizes: sizes of the networks.
        batch_sizes: b of the mini-batches; the trace is of as many images as the data set's batch has.
        cells: number of architectures of each space.
        resamples, scores, seed, workers, backend: see `EstimatedStudy`.

    >>> from nas_lightning.spaces import NasBench201
    >>> study = TraceApproximation(spaces={"NB201": NasBench201()}, batch_sizes=[8, 4])
    >>> list(study.wants())
    ['data', 'folder']
    """

    metrics: Mapping[str, Metric] = field(default_factory=lambda: TRACE, init=False)
    spaces: Annotated[Mapping[str, SearchSpace], entries(1)]
    sizes: Mapping[str, int] = FrozenMap({"channels": 8, "cells": 1})
    cells: Annotated[int, at_least(4)] = 60
    batch_sizes: Annotated[Sequence[Annotated[int, at_least(2)]], entries(1), DISTINCT] = (
        4,
        8,
        16,
        32,
        64,
        128,
    )

    def run(self, data: SearchData, folder: Path, accelerator: torch.device = CPU) -> Findings:
        """Score each space's architectures, and correlate the approximations with the trace."""
        traces = {
            name: self._traces(name, space, data, folder, accelerator) for name, space in self.spaces.items()
        }
        kinds: dict[str, Statistic] = {"pearson": pearson, "spearman": spearman}
        what = f"{self.cells} architectures, {data.batch_size} images of {data.name}"
        tables = [self._table(name, statistic, traces, what) for name, statistic in kinds.items()]
        points = {
            f"{name}, {kind}": (of["exact"], of[kind])
            for name, of in traces.items()
            for kind in (f"b = {max(self.batch_sizes)}", "sum")
        }
        figure = figures.against(points, "trace of the kernel", "approximation")
        return Findings(tables, {"approximations": figure})

    def _traces(
        self, name: str, space: SearchSpace, data: SearchData, folder: Path, device: torch.device
    ) -> dict[str, Values]:
        """Return the trace and its approximations, (architectures,) each."""
        sizes: dict[str, Any] = {"in_channels": data.image[0], "num_classes": data.num_classes, **self.sizes}
        genotypes = draw_genotypes(space, self.cells, self.seed)
        main = Setting(partial(space.network, **sizes), data.train_batches(1)[0])
        varied = batch_sizes(main, data, sorted(self.batch_sizes))
        pool = self.scored_pool(space, genotypes, folder, device)
        parts = replace(pool, folder=pool.folder / name / "batches")
        norms = replace(pool, metrics=_EXACT, folder=pool.folder / name / "trace").score_main(main)
        scores = parts.score({MAIN: main, **varied.settings})
        batches = {f"b = {size}": _squares(scores[pool]["norm"]) for size, pool in varied.pools.items()}
        wanted = {f"b = {size}": batches[f"b = {size}"] for size in sorted(self.batch_sizes)}
        return {"exact": _squares(norms["exact"]), **wanted, "sum": _squares(norms["sum"])}

    def _table(
        self, name: str, statistic: Statistic, traces: Mapping[str, Mapping[str, Values]], what: str
    ) -> Table:
        columns = [f"b = {size}" for size in sorted(self.batch_sizes)] + ["sum"]
        rows: list[list[Entry]] = []
        for space, of in traces.items():
            rows.append([space, *(self.estimate(statistic, of["exact"], of[kind]) for kind in columns)])
        title = f"The kernel's trace against its approximations, {name.capitalize()}: {what}"
        return Table(name, title, ["space", *columns], rows, _NOTE_APPROXIMATION)


def _squares(norms: Values) -> Values:
    """Return squared norms; an architecture that no input reaches, with norm −∞, has trace 0."""
    return np.clip(norms, 0, None) ** 2


# t(A) of random paths at initialization, for choosing NASI's ν (Shu et al. 2022, arXiv:2109.00817).
#
#     ν = N⁻¹ Σ_i t(A_i) over random architectures                                          (thesis, 6.14)
#
# is a mean of a heavy-tailed distribution; the table also has the median and the mean without the largest.

_NOTE_PATHS = (
    "Mean ± standard error over draws of weights, each of as many paths; a path has a fresh mini-batch. "
    "Last: the mean of all draws' paths but the largest of all"
)
_COLUMNS = ("mean", "median", "largest", "share above ν")


@checked
class PathTraces(Study):
    """The distribution of t(A) in a space, and how often it is above a ν.

    Args:
        paths: number of paths of a draw of weights.
        draws: number of draws of weights.
        nu: ν.
        seed: seed of weights and paths.

    >>> PathTraces(paths=3).draws
    5
    """

    def __init__(
        self,
        *,
        paths: PositiveInt = 12,
        draws: PositiveInt = 5,
        nu: PositiveFloat = 100.0,
        seed: Seed = 0,
    ) -> None:
        self.paths, self.draws, self.nu, self.seed = paths, draws, nu, seed

    def run(
        self, space: SearchSpace, supernet: Callable[[], Supernet], data: SearchData, folder: Path
    ) -> Findings:
        """Draw weights and paths, except those of an earlier run in the folder."""
        numbers = follow(range(self.draws), "draws of weights")
        found = [self._traces(space, supernet(), data, folder, number).numpy() for number in numbers]
        each = [
            [float(t.mean()), float(np.median(t)), float(t.max()), float((t > self.nu).mean())] for t in found
        ]
        rest = np.sort(np.concatenate(found))[:-1]
        row: list[Entry] = [space.name, *(mean_estimate(values) for values in zip(*each, strict=True))]
        row.append(float(rest.mean()) if len(rest) else None)
        what = (
            f"{self.draws} times {self.paths} paths, {data.batch_size} images of {data.name}, ν = {self.nu:g}"
        )
        columns = ["space", *_COLUMNS, "mean without the largest"]
        table = Table("traces", f"t(A) at initialization: {what}", columns, [row], _NOTE_PATHS)
        return Findings([table])

    def _traces(
        self, space: SearchSpace, net: Supernet, data: SearchData, folder: Path, number: int
    ) -> Tensor:
        strategy = Nasi(space, net, data, nu=self.nu, computed="sampled", seed=self.seed + number)
        path = folder / "samples" / f"{number}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        settings = {"space": space.name, "parameters": sum(p.numel() for p in net.parameters())}
        samples = draw_samples(
            strategy, data, path, steps=self.paths, batch_size=data.batch_size, settings=settings
        )
        return samples.traces
