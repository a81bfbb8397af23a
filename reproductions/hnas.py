"""HNAS (Shu 2022, thesis, chapter 7)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from nas_lightning.backends import Backend, check_backend
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Genotype
from nas_lightning.metrics import Grasp, NTKCondition, NTKTrace
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.gradients import SampleGrasp
from nas_lightning.metrics.infinite import moments
from nas_lightning.metrics.pool import score_pool
from nas_lightning.metrics.recording import Scheme
from nas_lightning.objectives.tables import OracleAccuracy, TabularBenchmark, table_accuracy
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.darts import TwoCellSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.black_box.hnas import check_condition, check_metric, objective_values, propose
from nas_lightning.studies import figures
from nas_lightning.studies.base import Study
from nas_lightning.studies.figures import overlay
from nas_lightning.studies.scoring import (
    Scorer,
    Setting,
    Values,
    check_names,
    draw_genotypes,
    draw_known,
    estimate,
    mean_estimate,
    orient,
    spearman,
)
from nas_lightning.utils.files import json_text, read_records, write_whole
from nas_lightning.utils.machine import Processes
from nas_lightning.utils.progress import follow
from nas_lightning.utils.randomness import generator, seed_of, seed_of_name
from nas_lightning.utils.tables import Entry, Estimate, Table
from nas_lightning.validation import (
    DISTINCT,
    Channels,
    PositiveFloat,
    PositiveInt,
    Seed,
    at_least,
    at_most,
    checked,
    entries,
)
from reproductions.eigen_nas import Trained, WideMlp, train
from reproductions.thesis_topology import adapted, deepest, depth, descend, width

# Kernels of wide and deep linear networks (Y. Shu's thesis, 2022, equation 7.5 and theorem 7.4).
#
# f(x) = 1ᵀ Σ_i W⁽ⁱ⁾ x,    f′(x) = 1ᵀ W⁽ᴸ⁾ ⋯ W⁽¹⁾ x,    W⁽ⁱ⁾ of (n, n), entries N(0, 1),    Xᵀ X = I
#
# Θ = L n I,    E Θ′ = L nᴸ I


def wide_kernel(W: Tensor, x: Tensor) -> Tensor:
    """Θ = Σ_i J⁽ⁱ⁾ J⁽ⁱ⁾ᵀ with ∂f/∂W⁽ⁱ⁾ = 1 xᵀ, whatever W (L, n, n) is: x (m, n) → (m, m)."""
    layers, n = W.shape[:2]
    return layers * n * x @ x.T


def deep_kernel(W: Tensor, x: Tensor) -> Tensor:
    """Θ′ = Σ_i ‖1ᵀ W⁽ᴸ⁾ ⋯ W⁽ⁱ⁺¹⁾‖² (W⁽ⁱ⁻¹⁾ ⋯ W⁽¹⁾ x)ᵀ (W⁽ⁱ⁻¹⁾ ⋯ W⁽¹⁾ x′) (D.47): (m, m).

    >>> deep_kernel(2 * torch.eye(2)[None].repeat(2, 1, 1), torch.eye(2))  # both layers: ‖1ᵀ 2 I‖² + n · 2²
    tensor([[16.,  0.],
            [ 0., 16.]])
    """
    layers, n = W.shape[:2]
    before, inputs = x, []
    for matrix in W:
        inputs.append(before)
        before = before @ matrix.T
    after, total = torch.ones(n, dtype=x.dtype), torch.zeros(len(x), len(x), dtype=x.dtype)
    for layer in reversed(range(layers)):
        total = total + after.square().sum() * inputs[layer] @ inputs[layer].T
        after = after @ W[layer]
    return total


def orthonormal(samples: int, n: int, generator: torch.Generator) -> Tensor:
    """Inputs with Xᵀ X = I: (samples, n), samples ≤ n."""
    x = torch.randn(n, samples, dtype=torch.float64, generator=generator)
    return torch.linalg.qr(x).Q.T


# Searches in a pool whose scores and accuracies are all known: HNAS, a metric alone, and chance.
#
# HNAS is algorithm 7.1 of Y. Shu's thesis (2022), by the functions of the strategy's own rounds
# (`nas_lightning.strategies.black_box.hnas`); here nothing is built, scored or trained on the way.


class KnownPool(NamedTuple):
    """Architectures of which everything is known, each (n,).

    Args:
        metric: M.
        kappa: κ.
        worth: what an evaluation says.
    """

    metric: Values
    kappa: Values
    worth: Values

    def of(self, rows: Sequence[int]) -> KnownPool:
        """Some of them."""
        return KnownPool(*(values[list(rows)] for values in self))


class SearchTrace(NamedTuple):
    """A search, evaluation by evaluation.

    Args:
        chosen: the number of the architecture.
        parameters: c and q of HNAS that have chosen it.
    """

    chosen: list[int]
    parameters: list[dict[str, float]]

    def best(self, worth: Values) -> list[int]:
        """The step that has chosen the best so far, after each step; of equal ones the first.

        >>> SearchTrace([2, 0, 1], []).best(np.array([3.0, 3.0, 1.0]))
        [0, 1, 1]
        """
        values = worth[self.chosen]
        return [int(values[: count + 1].argmax()) for count in range(len(values))]


def hnas_search(pool: KnownPool, rounds: int, *, t: float, starts: int, seed: int) -> SearchTrace:
    """Each round proposes (μ, ν) and evaluates the best by them that was not evaluated yet."""
    trace = SearchTrace([], [])
    for number in range(rounds):
        seen = list(zip(trace.parameters, pool.worth[trace.chosen].tolist(), strict=True))
        parameters = propose(seen, starts, seed_of_name(seed, f"round {number}"))
        values = values_of(pool, parameters, t)
        new = values.copy()
        new[trace.chosen] = -np.inf
        trace.chosen.append(int((new if np.isfinite(new).any() else values).argmax()))
        trace.parameters.append(parameters)
    return trace


def values_of(pool: KnownPool, parameters: Mapping[str, float], t: float) -> Values:
    """Minus the objective (7.7) of each, so that larger is better: (n,)."""
    metric, kappa = (torch.as_tensor(values, dtype=torch.float64) for values in (pool.metric, pool.kappa))
    return objective_values(metric, kappa, parameters, t).numpy()


def metric_order(pool: KnownPool, rounds: int) -> SearchTrace:
    """The largest metrics first (ZERO-COST, Abdelfattah et al. 2021, arXiv:2101.08134)."""
    return SearchTrace(np.argsort(-pool.metric, kind="stable")[:rounds].tolist(), [])


def random_order(pool: KnownPool, rounds: int, seed: int) -> SearchTrace:
    """Without repetition."""
    return SearchTrace(np.random.default_rng(seed).permutation(len(pool.worth))[:rounds].tolist(), [])


# Tables and figures of HNAS' searches by a table (Y. Shu's thesis, 2022, sections 7.5.4 and 7.6).

HNAS, ALONE, RANDOM = "HNAS", "metric alone", "random"
_ENDS = (
    "Test accuracies (%), mean ± standard deviation over searches. An oracle evaluates by test accuracies, "
    "which no search could. Seconds: of all evaluations, by the table"
)
_BINS = (
    "Accuracies, mean ± standard error, and Spearman's ρ of them with −κ, ± the bootstrap's standard error"
)


class Searched(NamedTuple):
    """What sort of search it was.

    Args:
        search: `HNAS`, `ALONE` or `RANDOM`.
        metric: M; none where chance has chosen.
        judge: what its evaluations read.
    """

    search: str
    metric: str
    judge: str


@dataclass(frozen=True)
class HnasSearches:
    """What searches have chosen, and what that is worth.

    Args:
        traces: of each kind.
        pools: all architectures, by the name of the metric.
        accuracies: of all, by data set.
        dataset: the one that searches are about.
        t: of the objective.
        worth: what evaluations say of all, by what they read.
        seconds: of an evaluation; None where the table has none.
    """

    traces: Mapping[Searched, Sequence[SearchTrace]]
    pools: Mapping[str, KnownPool]
    accuracies: Mapping[str, Values]
    dataset: str
    t: float
    worth: Mapping[str, Values]
    seconds: Sequence[float | None]

    def ends(self, what: str) -> Table:
        """Tables 7.3 and 7.13."""
        rows: list[list[Entry]] = []
        for kind, traces in self.traces.items():
            ends = [trace.chosen[self._best(kind, trace)[-1]] for trace in traces]
            row: list[Entry] = [kind.search, kind.metric, kind.judge]
            for accuracy in self.accuracies.values():
                row += [float(accuracy[ends].mean()), float(accuracy[ends].std(ddof=1))]
            rows.append([*row, self._spent([step for trace in traces for step in trace.chosen], len(traces))])
        columns = [column for name in self.accuracies for column in (name, f"± {name}")]
        columns = ["search", "metric", "evaluations by", *columns, "seconds"]
        return Table("ends", f"What searches end in: {what}", columns, rows, _ENDS)

    def budgets(self, what: str) -> Table:
        """Figure 7.3."""
        rows: list[list[Entry]] = [
            [
                *kind,
                count,
                accuracy,
                self._spent([s for trace in traces for s in trace.chosen[:count]], len(traces)),
            ]
            for kind, traces in self.traces.items()
            for count, accuracy in self._over_budget(kind).items()
        ]
        columns = ["search", "metric", "evaluations by", "evaluations", self.dataset, "seconds"]
        note = "The best so far by evaluations: its test accuracy (%), mean ± standard error over searches"
        return Table("budgets", f"Accuracy over the budget: {what}", columns, rows, note, long=True)

    def steps(self, what: str) -> Table:
        """Figure 7.5."""
        rows: list[list[Entry]] = [
            [kind.metric, kind.judge, step, rho]
            for kind in self.traces
            if kind.search == HNAS
            for step, rho in self._over_steps(kind).items()
        ]
        columns = ["metric", "evaluations by", "step", "Spearman"]
        note = "Of test accuracy and HNAS' objective, all cells; μ and ν are the best so far of a search"
        return Table(
            "steps", f"The objective's correlation over rounds: {what}", columns, rows, note, long=True
        )

    def figures(self) -> dict[str, Figure]:
        """Figures 7.3 and 7.5: the first by what a search may know, the second by that and by the oracle."""
        judge = next(iter(self.traces)).judge
        budgets = {
            metric: {
                search: self._over_budget(Searched(search, "" if search == RANDOM else metric, judge))
                for search in (HNAS, ALONE, RANDOM)
            }
            for metric in self.pools
        }
        steps = {
            metric: {
                kind.judge.replace("_", " "): self._over_steps(kind)
                for kind in self.traces
                if (kind.search, kind.metric) == (HNAS, metric)
            }
            for metric in self.pools
        }
        return {
            "budgets": figures.lines(budgets, f"test accuracy on {self.dataset} (%)", "evaluations"),
            "steps": figures.lines(steps, "Spearman's ρ of objective and accuracy", "round"),
        }

    def _best(self, kind: Searched, trace: SearchTrace) -> list[int]:
        return trace.best(self.worth[kind.judge])

    def _over_budget(self, kind: Searched) -> dict[int, Estimate]:
        accuracy = self.accuracies[self.dataset]
        found = [accuracy[np.array(trace.chosen)[self._best(kind, trace)]] for trace in self.traces[kind]]
        return {count: mean_estimate(values) for count, values in enumerate(np.transpose(found), 1)}

    def _over_steps(self, kind: Searched) -> dict[int, Estimate]:
        pool, accuracy = self.pools[kind.metric], self.accuracies[self.dataset]
        found = []
        for trace in self.traces[kind]:
            best = self._best(kind, trace)
            rho = {
                step: spearman(values_of(pool, trace.parameters[step], self.t), accuracy)
                for step in set(best)
            }
            found.append([rho[step] for step in best])
        return {step: mean_estimate(values) for step, values in enumerate(np.transpose(found), 1)}

    def _spent(self, chosen: Sequence[int], searches: int) -> float | None:
        seconds = [self.seconds[cell] for cell in chosen]
        known = [second for second in seconds if second is not None]
        return sum(known) / searches if len(known) == len(seconds) else None


class MetricBins(NamedTuple):
    """Architectures by their metric.

    Args:
        table: of all metrics.
        figures: their accuracies, and what κ says of these.
    """

    table: Table
    figures: dict[str, Figure]


def bins_of(
    pools: Mapping[str, KnownPool], dataset: str, bins: int, what: str, *, resamples: int, seed: int
) -> MetricBins:
    """Figure 7.4: as many architectures in each bin of a metric."""
    rows: list[list[Entry]] = []
    accuracy: dict[str, dict[str, dict[int, Estimate | None]]] = {}
    kappa: dict[str, dict[str, dict[int, Estimate | None]]] = {}
    for name, pool in pools.items():
        means, best, rho = (dict[int, Estimate | None]() for _ in range(3))
        for number, part in enumerate(np.array_split(np.argsort(pool.metric, kind="stable"), bins), 1):
            worth, middle = pool.worth[part], float(np.median(pool.metric[part]))
            means[number], best[number] = mean_estimate(worth), Estimate(float(worth.max()), 0.0)
            rho[number] = estimate(spearman, -pool.kappa[part], worth, resamples=resamples, seed=seed)
            median = middle if np.isfinite(middle) else None
            rows.append([name, number, len(part), median, means[number], float(worth.max()), rho[number]])
        accuracy[name], kappa[name] = {"mean": means, "best": best}, {"−κ": rho}
    columns = ["metric", "bin", "cells", "median of the metric", dataset, "best", "ρ with −κ"]
    table = Table("bins", f"Accuracy (%) by bins of metrics: {what}", columns, rows, _BINS, long=True)
    x_label = "bin of the metric, the smallest first"
    drawn = {
        "bins": figures.lines(accuracy, f"accuracy on {dataset} (%)", x_label),
        "bins_kappa": figures.lines(kappa, "Spearman's ρ of −κ and accuracy", x_label),
    }
    return MetricBins(table, drawn)


# HNAS by a table: over its budget, metric by metric, round by round (Y. Shu's thesis, 2022, 7.5.4 and 7.6).
#
# Tables 7.3 and 7.13 and figure 7.3: what searches end in whose evaluations read the table, beside a metric
# alone and chance. Figure 7.4: accuracies by bins of a metric, and what κ says within each. Figure 7.5: how
# well the objective orders all architectures with the μ and ν that are the best so far.

FILE = "searches.json"
IN_OBJECTIVE = ("ntk_trace", "grad_norm", "snip", "grasp", "knas", "synflow")


@checked
class HnasAblation(Study):
    """Searches in pools of scored architectures, each in a random part of them of its own.

    Args:
        metrics: what is computed, by name.
        objective: M, of searches and of bins.
        kappa: the condition number among the metrics.
        cells: architectures that are scored, drawn without repetition.
        pool: how many of them a search has; all where there are fewer.
        rounds: K, evaluations of a search.
        searches: repetitions.
        bins: of a metric, with as many architectures in each.
        t: of F(x) = |x|^2t.
        starts: rounds before the Gaussian process proposes.
        scheme: how weights are drawn.
        resamples: of the bootstrap.
        workers: processes that score.
        backend: whose processes, see `nas_lightning.backends.spread`.
        scores: the folder of the scores, which runs may share; None: `scores` in the run's own.
        seed: of all that is drawn.

    >>> from nas_lightning.metrics import NTKCondition, NTKTrace
    >>> metrics = {"ntk_trace": NTKTrace(), "ntk_condition": NTKCondition()}
    >>> HnasAblation(metrics=metrics, objective=["ntk_trace"], cells=40, pool=100).pool
    40
    """

    def __init__(
        self,
        *,
        metrics: Mapping[str, Metric],
        objective: Annotated[Sequence[str], entries(1), DISTINCT] = IN_OBJECTIVE,
        kappa: str = "ntk_condition",
        cells: Annotated[int, at_least(4)] = 300,
        pool: Annotated[int, at_least(2)] = 150,
        rounds: PositiveInt = 20,
        searches: Annotated[int, at_least(2)] = 10,
        bins: PositiveInt = 20,
        t: PositiveFloat = 1.0,
        starts: PositiveInt = 5,
        scheme: Scheme = "lecun",
        resamples: PositiveInt = 200,
        workers: Processes = 1,
        backend: Backend = "processes",
        scores: str | Path | None = None,
        seed: Seed = 0,
    ) -> None:
        check_names([*objective, kappa], metrics)
        for name in objective:
            check_metric(metrics[name], f"study.metrics.{name}")
        check_condition(metrics[kappa], "study.kappa")
        self.metrics, self.objective, self.kappa = dict(metrics), list(objective), kappa
        self.cells, self.pool, self.bins = cells, min(pool, cells), min(bins, cells)
        self.rounds, self.searches, self.t, self.starts = rounds, searches, t, starts
        self.scheme, self.resamples, self.seed = scheme, resamples, seed
        self.scorer = Scorer(self.metrics, workers, backend, scores)

    def run(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        data: SearchData,
        benchmark: TabularBenchmark,
        folder: Path,
    ) -> Findings:
        """Score the architectures on one batch, search among them, look at what was found."""
        genotypes, accuracies = draw_known(benchmark, space, self.cells, self.seed)
        evaluate = table_accuracy(benchmark)
        judges = {j.name: np.array([j(g) for g in genotypes]) for j in (evaluate, OracleAccuracy(benchmark))}
        seconds = [evaluate.seconds(genotype) for genotype in genotypes]
        setting = Setting(network, data.train_batches(1)[0], self.scheme)
        values = self.scorer.pool(space, genotypes, folder).score_main(setting)
        oriented = orient(self.metrics, values)
        pools = {
            name: KnownPool(oriented[name], values[self.kappa], accuracies[benchmark.dataset])
            for name in self.objective
        }
        done = self._search(pools, judges, folder / FILE)
        what = f"{len(genotypes):,} cells scored on {data.name}, {self.searches} searches among {self.pool}"
        found = HnasSearches(done, pools, accuracies, benchmark.dataset, self.t, judges, seconds)
        bins = bins_of(pools, benchmark.dataset, self.bins, what, resamples=self.resamples, seed=self.seed)
        return Findings(
            [found.ends(what), found.budgets(what), found.steps(what), bins.table],
            {**found.figures(), **bins.figures},
        )

    def _search(
        self, pools: Mapping[str, KnownPool], judges: Mapping[str, Values], path: Path
    ) -> dict[Searched, list[SearchTrace]]:
        """The searches of each kind; those that are in the file are not made again."""
        settings = f"{self.cells} {self.pool} {self.rounds} {self.t:g} {self.starts} {self.seed}"
        kinds = list(self._kinds(judges))
        todo = [(kind, number) for kind in kinds for number in range(self.searches)]
        records = read_records(path)
        found: dict[Searched, list[SearchTrace]] = {kind: [] for kind in kinds}
        for kind, number in follow(todo, "searches"):
            key = f"{settings}: {', '.join(kind)}, {number + 1}"
            if key not in records:
                pool = next(iter(pools.values())) if kind.search == RANDOM else pools[kind.metric]
                records[key] = self._trace(kind, number, pool._replace(worth=judges[kind.judge]))._asdict()
                write_whole(path, json_text(records) + "\n")
            found[kind].append(SearchTrace(**records[key]))
        return found

    def _kinds(self, judges: Mapping[str, Values]) -> Iterator[Searched]:
        for judge in judges:
            for metric in self.objective:
                yield Searched(HNAS, metric, judge)
                yield Searched(ALONE, metric, judge)
            yield Searched(RANDOM, "", judge)

    def _trace(self, kind: Searched, number: int, pool: KnownPool) -> SearchTrace:
        """A search among its own part of the pool; what it has chosen is counted in all."""
        rows = np.random.default_rng(seed_of(self.seed, number)).permutation(self.cells)[: self.pool].tolist()
        part, rounds = pool.of(rows), min(self.rounds, self.pool)
        if kind.search == HNAS:
            trace = hnas_search(part, rounds, t=self.t, starts=self.starts, seed=seed_of(self.seed, number))
        elif kind.search == ALONE:
            trace = metric_order(part, rounds)
        else:
            trace = random_order(part, rounds, seed_of(self.seed, number, 1))
        return trace._replace(chosen=[rows[cell] for cell in trace.chosen])


# Kernels of cells from wide to deep, and theorem 7.4 (Y. Shu's thesis, 2022, section 7.3.5, table 7.2).

METRICS: Mapping[str, Metric] = {
    "M_Trace": NTKTrace(),
    "κ": NTKCondition(),
    "M_Trace, whole batch": NTKTrace(coupled=True),
    "κ, whole batch": NTKCondition(coupled=True),
}
_NOTE = (
    "Means over seeds of the weights ± their standard errors. The first two are of the kernel with each "
    "image's row alone, the others of the kernel of the whole batch's forward pass (J Jᵀ under batch norm)"
)
_LINEAR = "Wide: the largest distance from L n I, over L n. Deep: the mean trace over m L n^L, and κ's median"


@checked
class TopologyKernel(Study):
    """Published cells, their widest and their deepest form; and theorem 7.4 on linear networks.

    Args:
        cells: of DARTS' notation, by name.
        rewired: whose operations the cells WIDE and DEEP have.
        seeds: of the weights.
        images: that the kernels are of.
        layers: L, of the linear networks.
        width: n, of the linear networks.
        draws: of their weights.
        workers: processes that score.
        backend: whose processes, see `nas_lightning.backends.spread`.

    >>> cell = [("sep_conv_3x3", 0), ("skip_connect", 1)] * 4
    >>> mine = {"normal": cell, "normal_concat": [2, 3, 4, 5], "reduce": cell, "reduce_concat": [2, 3, 4, 5]}
    >>> from nas_lightning.spaces import DartsSpace
    >>> study = TopologyKernel(cells={"mine": mine}, rewired="mine")
    >>> [(name, depth(g["normal"])) for name, g in study.genotypes(DartsSpace()).items()]
    [('mine', 2), ('WIDE', 2), ('DEEP', 5)]
    """

    def __init__(
        self,
        *,
        cells: Annotated[Mapping[str, Mapping[str, Any]], entries(1)],
        rewired: str = "darts_v2",
        seeds: PositiveInt = 10,
        images: Annotated[int, at_least(2)] = 32,
        layers: PositiveInt = 3,
        width: Annotated[int, at_least(2)] = 8,
        draws: PositiveInt = 3000,
        workers: Processes = 1,
        backend: Backend = "processes",
    ) -> None:
        self.cells = {name: dict(given) for name, given in cells.items()}
        if rewired not in self.cells:
            expected = f"expected one of the cells ({near_match(rewired, self.cells)})"
            raise InputError(expected, got=rewired, where="study.rewired")
        self.rewired, self.seeds, self.images, self.workers = rewired, seeds, images, workers
        check_backend(backend, "study.backend")
        self.backend = backend
        self.layers, self.width, self.draws = layers, width, draws

    def genotypes(self, space: TwoCellSpace) -> dict[str, Genotype]:
        """The cells as published, then WIDE and DEEP."""
        of, forms = self.cells[self.rewired], {"WIDE": adapted, "DEEP": deepest}
        return {
            **{name: space.parse(given) for name, given in self.cells.items()},
            **{name: space.parse(form(of)) for name, form in forms.items()},
        }

    def run(self, space: TwoCellSpace, network: NetworkFactory, data: SearchData, folder: Path) -> Findings:
        """Score every cell with each seed, and draw linear networks."""
        genotypes = self.genotypes(space)
        x, y = data.train.plain_images(self.images)
        found = []
        for seed in range(self.seeds):
            path = folder / "scores" / f"{seed}.csv"
            options: dict[str, Any] = {"path": path, "seed": seed}
            options |= {"workers": self.workers, "backend": self.backend}
            found.append(score_pool(space, network, genotypes.values(), (x, y), METRICS, **options))
        rows: list[list[Entry]] = []
        for number, (name, genotype) in enumerate(genotypes.items()):
            shape = float(width(genotype["normal"])), depth(genotype["normal"])
            values = [mean_estimate([scores[number][metric] for scores in found]) for metric in METRICS]
            rows.append([name, *shape, *values])
        what = f"{self.seeds} seeds, {self.images} images of {data.name}"
        columns = ["cell", "normal width", "normal depth", *METRICS]
        kernels = Table("kernels", f"Kernels of cells from wide to deep: {what}", columns, rows, _NOTE)
        return Findings([kernels, self._linear()])

    def _linear(self) -> Table:
        """Theorem 7.4, of which the wide part holds for every draw and the deep part for their mean."""
        L, n, random = self.layers, self.width, generator(0)
        x = orthonormal(n, n, random)
        traces, conditions, distance = [], [], 0.0
        for _ in range(self.draws):
            W = torch.randn(L, n, n, dtype=torch.float64, generator=random)
            wide, deep = wide_kernel(W, x), deep_kernel(W, x)
            distance = max(distance, float((wide / (L * n) - torch.eye(n)).abs().max()))
            eigenvalues = torch.linalg.eigvalsh(deep)
            traces.append(float(eigenvalues.sum()) / (n * L * n**L))
            conditions.append(float(eigenvalues[-1] / eigenvalues[0].clamp_min(1e-300)))
        rows: list[list[Entry]] = [["wide", distance, 1.0]]
        rows.append(["deep", mean_estimate(traces), float(np.median(conditions))])
        title = f"Theorem 7.4: L = {L}, n = {n}, {self.draws:,} draws"
        return Table("linear", title, ["network", "against the theorem", "κ"], rows, _LINEAR)


# What batch norm and the batch's mean change in scores (Y. Shu's thesis, 2022, equations 7.1 to 7.3).
#
# Θ = J Jᵀ takes an image's row of J through the norms of the whole batch, and so through the other images'
# activations; by default a row here is of what flows through the image's own. M_GraSP in equation 7.3 has
# every
# sample's Hessian and gradient; by default, as in the public code, it has the batch's, and weights alone.

PAIRS: Mapping[str, tuple[Metric, Metric]] = {
    "M_Trace": (NTKTrace(), NTKTrace(coupled=True)),
    "κ": (NTKCondition(), NTKCondition(coupled=True)),
    "M_GraSP": (Grasp(), SampleGrasp()),
}
"""As they are by default, and as the equations have them."""

_NOTE_COUPLING = (
    "Medians over architectures whose two scores are finite and positive; the logarithm's mean ± standard "
    "error; Spearman's ρ ± the bootstrap's"
)


@checked
class Coupling(Study):
    """Random architectures' scores by default beside those of the equations to the letter.

    Args:
        architectures: how many.
        resamples: of the bootstrap.
        workers: processes that score.
        backend: whose processes, see `nas_lightning.backends.spread`.
        seed: of the architectures.

    >>> Coupling(architectures=5).architectures
    5
    """

    def __init__(
        self,
        *,
        architectures: Annotated[int, at_least(4)] = 20,
        resamples: PositiveInt = 200,
        workers: Processes = 1,
        backend: Backend = "processes",
        seed: Seed = 0,
    ) -> None:
        self.architectures, self.resamples, self.seed = architectures, resamples, seed
        metrics = {_column(name, place): pair[place] for name, pair in PAIRS.items() for place in (0, 1)}
        self.scorer = Scorer(metrics, workers, backend)

    def run(
        self, space: SearchSpace, network: Callable[..., nn.Module], data: SearchData, folder: Path
    ) -> Findings:
        """Score the architectures in both ways on one batch."""
        genotypes = draw_genotypes(space, self.architectures, self.seed)
        setting = Setting(network, data.train_batches(1)[0])
        values = self.scorer.pool(space, genotypes, folder).score_main(setting)
        pairs = {name: (values[_column(name, 0)], values[_column(name, 1)]) for name in PAIRS}
        rows: list[list[Entry]] = [[name, *self._row(*pair)] for name, pair in pairs.items()]
        columns = ["metric", "architectures", "by default", "equation", "log₁₀ of default over equation", "ρ"]
        what = f"{self.architectures} of {space.name}, {data.batch_size} images of {data.name}"
        table = Table("forms", f"Scores by default and to the letter: {what}", columns, rows, _NOTE_COUPLING)
        return Findings([table], {"forms": figures.against(pairs, "by default", "equation")})

    def _row(self, ours: Values, theirs: Values) -> list[Entry]:
        sound = np.isfinite(ours) & np.isfinite(theirs) & (ours > 0) & (theirs > 0)
        x, y = ours[sound], theirs[sound]
        if not len(x):
            return [0, None, None, None, None]
        order = estimate(spearman, x, y, resamples=self.resamples, seed=self.seed)
        return [
            len(x),
            float(np.median(x)),
            float(np.median(y)),
            mean_estimate(np.log10(x) - np.log10(y)),
            order,
        ]


def _column(name: str, place: int) -> str:
    return f"{name}, {('by default', 'equation')[place]}"


# The bounds of Shu's thesis (2022) that have no unknown constants.
#
# Proposition 6.1 for one output, as k → ∞, and the first term of corollary 7.2 for the same loss, where
# e = η/m is what its η is to the former, M² = λ̄ and c = 1:
#
#     1/m ‖f_t − y‖² ≤ m (1 − ηλ̄)^q,  q = 2t where t < ½, and 1 from there on          (6.1)
#     1/m ‖f_t − y‖² ≤ m (1 − eλ̄)^2t                                                   (7.2)
#
# The second takes Σ_i (1 − eλ_i)^2t ≤ m (1 − eλ̄)^2t from Jensen's
# inequality, which says the opposite of the convex x^2t.
#
# Proposition 6.2, with Z = Σ_x |P(x) − Q(x)|, |σ(x)| ≤ |x| and slopes of at most 1, and lemma D.9, which
# theorem 7.3 stands on and which lacks the depth:
#
#     |E_P Θ(x, x) − E_Q Θ(x, x)| ≤ Z L / n₀        and        ≤ Z / n₀
#
# Theorem 7.1, for losses of slope β and curvature γ, θ₀ ~ N(0, 1)^d and R² = d + 2√(d ln 1/δ) + 2 ln 1/δ:
#
#     M_Grad ≤ β M_Trace,   M_SNIP ≤ β R M_Trace,   M_GraSP ≤ β (γρ₁² + βρ₂) R M_Trace,   M_KNAS ≤ M_Trace

BETA, GAMMA = 1.0, 0.25
"""The largest slope and curvature of ℓ(f, y) = ln(1 + e^(−yf))."""


def power_bound(kernel: Tensor, eta: float, t: Tensor) -> Tensor:
    """m (1 − ηλ̄)^2t of corollary 7.2, for each t."""
    return len(kernel) * (1 - eta * kernel.diagonal().mean()) ** (2 * t)


def mean_bound(kernel: Tensor, eta: float, t: Tensor) -> Tensor:
    """m (1 − ηλ̄)^q of proposition 6.1, for each t.

    >>> kernel = torch.diag(torch.tensor([1.0, 3.0]))
    >>> mean_bound(kernel, 0.25, torch.tensor([0.0, 1.0, 2.0]))
    tensor([2., 1., 1.])
    """
    q = torch.where(t < 0.5, 2 * t, torch.ones_like(t))
    return len(kernel) * (1 - eta * kernel.diagonal().mean()) ** q


def kernel_diagonal(name: str, lengths: Tensor, depth: int) -> Tensor:
    """Θ(x, x) of infinitely wide perceptrons for inputs of ‖x‖²/n₀ = lengths, (p,):

        Σ¹ = Θ¹ = ‖x‖²/n₀,   Σˡ⁺¹ = E σ(u)²,   Θˡ⁺¹ = Θˡ E σ′(u)² + Σˡ⁺¹,   u ~ N(0, Σˡ)

    >>> kernel_diagonal("relu", torch.tensor([1.0], dtype=torch.float64), 3)  # L / 2^(L − 1)
    tensor([0.7500], dtype=torch.float64)
    """
    covariance = kernel = lengths
    for _ in range(depth - 1):
        layer = moments(name, torch.diag(covariance))
        covariance = layer.product.diagonal()
        kernel = kernel * layer.slopes.diagonal() + covariance
    return kernel


def radius(count: int, delta: float) -> float:
    """R, which ‖θ₀‖ of so many weights is below with probability 1 − δ (lemma D.1)."""
    log = math.log(1 / delta)
    return math.sqrt(count + 2 * math.sqrt(count * log) + 2 * log)


def metric_shares(mlp: WideMlp, x: Tensor, y: Tensor, delta: float) -> dict[str, float]:
    """What share of its bound by theorem 7.1 each metric reaches, for y of −1 and 1.

    ρ₁ and ρ₂ are those of the drawn weights: the largest ‖∇f‖, and norm of ∇²f, of the images.
    """
    jacobian, theta = mlp.jacobian(x), mlp.weights
    f = mlp.outputs(theta, x)
    slope, curve = -y * torch.sigmoid(-y * f), torch.sigmoid(f) * torch.sigmoid(-f)
    gradients = slope[:, None] * jacobian  # of ℓ, (m, d)
    second = torch.stack(
        [
            torch.autograd.functional.hessian(lambda w, one=one: mlp.outputs(w, one[None])[0], theta)
            for one in x
        ]
    )  # (m, d, d)
    hessians = (
        curve[:, None, None] * jacobian[:, :, None] * jacobian[:, None, :] + slope[:, None, None] * second
    )
    trace = float(jacobian.square().sum(dim=1).mean().sqrt())
    grasp = abs(float(torch.einsum("d,mde,me->m", theta, hessians, gradients).mean()))
    curvature = GAMMA * float(jacobian.square().sum(dim=1).max())
    curvature += BETA * float(torch.linalg.matrix_norm(second, ord=2).max())
    bound = BETA * trace
    return {
        "M_Grad": float(gradients.mean(dim=0).norm()) / bound,
        "M_SNIP": float((gradients @ theta).abs().mean()) / (bound * radius(len(theta), delta)),
        "M_GraSP": grasp / (bound * curvature * radius(len(theta), delta / 2)),
        "M_KNAS": math.sqrt(abs(float((jacobian @ jacobian.T).mean()))) / trace,
    }


# Shu 2022 on perceptrons: theorems 4.2 and 7.1, propositions 6.1 and 6.2, corollary 7.2, lemma D.9.

Depth = Annotated[int, at_least(2), at_most(1000)]
RATE = 0.99
"""η as a share of the largest that the propositions allow."""
DELTA = 0.05
BOUNDS = {"proposition 6.1": mean_bound, "corollary 7.2": power_bound}
ACTIVATIONS = ("relu", "leaky_relu", "tanh")
"""Of slopes up to 1, and |σ(x)| ≤ |x|."""
_TRAINING = (
    "Over draws, ± the standard error: the largest ‖f_t − f_lin‖ between the network and the linearized one, "
    "and the share of steps in which each bound is above the loss of either"
)
_DATA = (
    "The largest n₀ |E_P Θ − E_Q Θ| / Z of all drawn P and Q and of the two that differ most, and its bounds"
)
_METRICS = "What share of its bound by M_Trace a metric reaches, and of how many draws it stays below"
_ITERATE = (
    "The mean of ‖∇F‖² over iterates, and what share of its bound that is, ± the standard error over runs"
)


class ThesisBounds(Study):
    """Do they hold, and how tight are they, where everything in them can be computed?

    Args:
        widths: k of the perceptrons, which have tanh and three layers.
        draws: of perceptrons for each width, of P and Q, and of perceptrons whose metrics are compared.
        images: m, of norms up to 1.
        inputs: n₀.
        steps: of gradient descent.
        depths: L of the infinitely wide perceptrons.
        runs: of stochastic gradient descent, for each of its step sizes.
        seed: of all that is drawn.

    >>> findings = ThesisBounds(widths=[8], draws=2, images=4, inputs=3, steps=5, depths=[2], runs=3).run()
    >>> [table.name for table in findings.tables]
    ['training', 'data', 'metrics', 'iterates']
    """

    @checked
    def __init__(
        self,
        *,
        widths: Annotated[Sequence[Channels], entries(1)] = (32, 64, 128, 256, 512),
        draws: Annotated[int, at_least(2)] = 10,
        images: Annotated[int, at_least(2)] = 16,
        inputs: Annotated[int, at_least(2)] = 8,
        steps: Annotated[int, at_least(2)] = 200,
        depths: Annotated[Sequence[Depth], entries(1)] = (2, 3, 5, 8),
        runs: Annotated[int, at_least(2)] = 100,
        seed: Seed = 0,
    ) -> None:
        self.widths, self.draws, self.depths, self.steps = sorted(widths), draws, sorted(depths), steps
        self.inputs, self.runs, self.seed = inputs, runs, seed
        random = generator(seed)
        x = torch.randn(images, inputs, dtype=torch.float64, generator=random)
        lengths = torch.rand(images, 1, dtype=torch.float64, generator=random)
        self.x = x / x.norm(dim=1, keepdim=True) * lengths.sqrt()
        self.y = torch.rand(images, dtype=torch.float64, generator=random)

    def run(self) -> Findings:
        """Draw, train and compare."""
        training, figure = self._training()
        tables = [training, self._data(), self._metrics(), self._iterates()]
        return Findings(tables, {"losses": figure})

    def _training(self) -> tuple[Table, Figure]:
        """Proposition 6.1, and the first term of corollary 7.2."""
        rows: list[list[Entry]] = []
        for size in follow(self.widths, "widths"):
            drawn = [self._trained(size, number) for number in range(self.draws)]
            apart = [float((one.outputs - one.linear).norm(dim=1).max()) for one in drawn]
            held = [self._held(one, f) for one in drawn for f in (one.outputs, one.linear)]
            shares = [
                mean_estimate([100 * one[name] for one in some])
                for some in (held[::2], held[1::2])
                for name in BOUNDS
            ]
            rows.append([size, mean_estimate(apart), *shares])
        columns = [
            "width",
            "apart",
            *(f"{name} {whose} (%)" for whose in ("holds", "holds, linearized") for name in BOUNDS),
        ]
        title = f"Training of perceptrons, {self.steps} steps of {RATE:g}/λ_max: {len(self.x)} images"
        return Table("training", title, columns, rows, _TRAINING), self._figure(drawn[0])

    def _trained(self, size: int, number: int) -> Trained:
        random = generator(self.seed, size, number)
        mlp = WideMlp(self.inputs, width=size, depth=3, sigma=torch.tanh, generator=random)
        return train(mlp, self.x, self.y, share=RATE, steps=self.steps)

    def _held(self, trained: Trained, outputs: Tensor) -> dict[str, float]:
        """The share of steps after the first whose loss each bound is above."""
        losses = (outputs - self.y).square().mean(dim=1)[1:]
        return {
            name: float((losses <= bound[1:]).double().mean())
            for name, bound in self._bounds(trained).items()
        }

    def _bounds(self, trained: Trained) -> dict[str, Tensor]:
        eta = RATE / float(torch.linalg.eigvalsh(trained.kernel)[-1])
        t = torch.arange(self.steps + 1, dtype=torch.float64)
        return {name: bound(trained.kernel, eta, t) for name, bound in BOUNDS.items()}

    def _figure(self, trained: Trained) -> Figure:
        losses = {"network": trained.outputs, "linearized": trained.linear}
        curves = {name: (f - self.y).square().mean(dim=1) for name, f in losses.items()} | self._bounds(
            trained
        )
        floor = float(curves["network"].min()) / 100  # what falls further would leave the losses one line
        panel = {name: values.clamp_min(floor).log10().numpy()[1:] for name, values in curves.items()}
        return overlay({f"width {self.widths[-1]}": panel}, "log₁₀ of the loss", "step")

    def _data(self) -> Table:
        """Proposition 6.2, and lemma D.9 of theorem 7.3."""
        rows: list[list[Entry]] = []
        for name in ACTIVATIONS:
            for layers in self.depths:
                random = generator(self.seed, layers)
                reached = max(self._apart(name, layers, random) for _ in range(self.draws))
                ends = torch.tensor([0.0, 1.0], dtype=torch.float64) / self.inputs
                least, most = kernel_diagonal(name, ends, layers)
                reached = max(reached, self.inputs * float(most - least) / 2)
                held = ["yes" if reached <= bound else "no" for bound in (layers, 1)]
                rows.append([name, layers, reached, layers, held[0], 1, held[1]])
        columns = ["activation", "L", "reached", "proposition 6.2", "it holds", "lemma D.9", "that holds"]
        return Table("data", f"Kernels' traces on other data, n₀ = {self.inputs}", columns, rows, _DATA)

    def _apart(self, name: str, depth: int, random: torch.Generator) -> float:
        """n₀ |E_P Θ − E_Q Θ| / Z for two distributions over the images."""
        P, Q = torch.rand(2, len(self.x), dtype=torch.float64, generator=random).pow(4)
        P, Q = P / P.sum(), Q / Q.sum()
        diagonal = kernel_diagonal(name, self.x.square().sum(dim=1) / self.inputs, depth)
        return self.inputs * abs(float((P - Q) @ diagonal)) / float((P - Q).abs().sum())

    def _metrics(self) -> Table:
        """Theorem 7.1."""
        labels = torch.where(self.y > 0.5, 1.0, -1.0).double()
        shares = []
        for number in follow(range(self.draws), "metrics"):
            random = generator(self.seed, 0, number)
            depth = 2 + number % 3
            mlp = WideMlp(self.inputs, width=8, depth=depth, sigma=torch.tanh, generator=random)
            shares.append(metric_shares(mlp, self.x, labels, DELTA))
        rows: list[list[Entry]] = []
        for name in shares[0]:
            reached = [one[name] for one in shares]
            rows.append(
                [name, mean_estimate(reached), max(reached), sum(r <= 1 for r in reached), len(reached)]
            )
        columns = ["metric", "share of the bound", "most", "below", "draws"]
        return Table(
            "metrics",
            "Metrics against M_Trace: theorem 7.1, perceptrons of 2 to 4 layers",
            columns,
            rows,
            _METRICS,
        )

    def _iterates(self) -> Table:
        """Theorem 4.2."""
        rows: list[list[Entry]] = []
        for share in (0.01, 0.1, 0.5, 0.99):
            random = generator(self.seed, round(100 * share))
            found = descend(
                self.x, self.y.round(), share=share, steps=self.steps, runs=self.runs, generator=random
            )
            reached = mean_estimate(found.found / found.bound)
            rows.append([f"{share:g}/L", float(found.found.mean()), found.bound, reached])
        title = f"A random iterate of {self.steps}: theorem 4.2, logistic units, {self.runs} runs"
        return Table("iterates", title, ["step size", "‖∇F‖²", "bound", "share of the bound"], rows, _ITERATE)
