"""HNAS (Shu 2022, thesis, chapter 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Genotype
from nas_lightning.metrics import Grasp, NTKCondition, NTKSqrtMeanDiagonal
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.engine import Passes
from nas_lightning.metrics.gradients import SampleGrasp
from nas_lightning.metrics.pool import score_pool
from nas_lightning.metrics.recording import Scheme
from nas_lightning.objectives.tables import OracleAccuracy, TabularBenchmark, table_accuracy
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.darts import TwoCellSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.black_box.hnas import check_condition, check_metric, objective_values, propose
from nas_lightning.studies import figures
from nas_lightning.studies.scoring import (
    EstimatedStudy,
    ParallelStudy,
    Setting,
    Values,
    check_metrics,
    draw_genotypes,
    estimate,
    mean_estimate,
    orient,
    spearman,
)
from nas_lightning.utils.devices import CPU
from nas_lightning.utils.files import json_text, read_records, write_whole
from nas_lightning.utils.progress import follow
from nas_lightning.utils.randomness import generator, seed_of, seed_of_name
from nas_lightning.utils.tables import Entry, Estimate, Table
from nas_lightning.validation import (
    DISTINCT,
    PositiveFloat,
    PositiveInt,
    at_least,
    checked,
    entries,
)
from reproductions.thesis_topology import adapted, deepest, depth, width

# Kernels of wide and deep linear networks (Y. Shu's thesis, 2022, equation 7.5 and theorem 7.4).
#
# f(x) = 1ᵀ Σ_i W⁽ⁱ⁾ x,    f′(x) = 1ᵀ W⁽ᴸ⁾ ⋯ W⁽¹⁾ x,    W⁽ⁱ⁾ of (n, n), entries N(0, 1),    Xᵀ X = I
#
# Θ = L n I,    E Θ′ = L nᴸ I


def wide_kernel(W: Tensor, x: Tensor) -> Tensor:
    """Return Θ = Σ_i J⁽ⁱ⁾ J⁽ⁱ⁾ᵀ with ∂f/∂W⁽ⁱ⁾ = 1 xᵀ, for any W (L, n, n): x (m, n) → (m, m)."""
    layers, n = W.shape[:2]
    return layers * n * x @ x.T


def deep_kernel(W: Tensor, x: Tensor) -> Tensor:
    """Return Θ′ = Σ_i ‖1ᵀ W⁽ᴸ⁾ ⋯ W⁽ⁱ⁺¹⁾‖² (W⁽ⁱ⁻¹⁾ ⋯ W⁽¹⁾ x)ᵀ (W⁽ⁱ⁻¹⁾ ⋯ W⁽¹⁾ x′) (D.47): (m, m).

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
    """Draw inputs with Xᵀ X = I, (samples, n), samples ≤ n."""
    x = torch.randn(n, samples, dtype=torch.float64, generator=generator)
    return torch.linalg.qr(x).Q.T


# Searches in a pool with known scores and accuracies: HNAS, a metric alone, and random search.
#
# HNAS is algorithm 7.1 of Y. Shu's thesis (2022), with the functions of the strategy
# (`nas_lightning.strategies.black_box.hnas`); nothing is built, scored, or trained here.


class KnownPool(NamedTuple):
    """Architectures with known scores and accuracies, each (n,).

    Args:
        metric: M.
        kappa: κ.
        worth: results of evaluations.
    """

    metric: Values
    kappa: Values
    worth: Values

    def of(self, rows: Sequence[int]) -> KnownPool:
        """Return these rows."""
        return KnownPool(*(values[list(rows)] for values in self))


class SearchTrace(NamedTuple):
    """A search, evaluation by evaluation.

    Args:
        chosen: index of the architecture.
        parameters: c and q of HNAS that chose it.
    """

    chosen: list[int]
    parameters: list[dict[str, float]]

    def best(self, worth: Values) -> list[int]:
        """Return the step that chose the best so far, after each step; ties by position.

        >>> SearchTrace([2, 0, 1], []).best(np.array([3.0, 3.0, 1.0]))
        [0, 1, 1]
        """
        values = worth[self.chosen]
        return [int(values[: count + 1].argmax()) for count in range(len(values))]


def hnas_search(pool: KnownPool, rounds: int, *, t: float, starts: int, seed: int) -> SearchTrace:
    """Run HNAS: each round proposes (μ, ν), and evaluates their best architecture not evaluated so far."""
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
    """Return minus the objective (7.7), (n,); larger is better."""
    metric, kappa = (torch.as_tensor(values, dtype=torch.float64) for values in (pool.metric, pool.kappa))
    return objective_values(metric, kappa, parameters, t).numpy()


def metric_order(pool: KnownPool, rounds: int) -> SearchTrace:
    """Evaluate the largest metrics first (ZERO-COST, Abdelfattah et al. 2021, arXiv:2101.08134)."""
    return SearchTrace(np.argsort(-pool.metric, kind="stable")[:rounds].tolist(), [])


def random_order(pool: KnownPool, rounds: int, seed: int) -> SearchTrace:
    """Evaluate random architectures without repetition."""
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
    """A kind of search.

    Args:
        search: `HNAS` with its exponent, `ALONE`, or `RANDOM`, see `hnas_name`.
        metric: name of M; empty for random search.
        judge: name of the accuracies that evaluations read.
        t: exponent of HNAS' objective; None for the others.
    """

    search: str
    metric: str
    judge: str
    t: float | None = None

    @property
    def row(self) -> list[Entry]:
        """The first entries of its rows."""
        return [self.search, self.metric, self.judge]


def hnas_name(t: float) -> str:
    """Return the name of a search by F(x) = |x|^2t.

    >>> hnas_name(1.0), hnas_name(0.5)
    ('HNAS, t = 1', 'HNAS, t = 0.5')
    """
    return f"{HNAS}, t = {t:g}"


@dataclass(frozen=True)
class HnasSearches:
    """The searches and the accuracies of their results.

    Args:
        traces: searches of each kind.
        pools: all architectures, by the name of the metric.
        accuracies: test accuracies, by data set.
        dataset: the data set of the searches.
        worth: results of evaluations of all architectures, by the name of the judge.
        seconds: duration of each evaluation; None if the table has none.
    """

    traces: Mapping[Searched, Sequence[SearchTrace]]
    pools: Mapping[str, KnownPool]
    accuracies: Mapping[str, Values]
    dataset: str
    worth: Mapping[str, Values]
    seconds: Sequence[float | None]

    def ends(self, what: str) -> Table:
        """Return tables 7.3 and 7.13."""
        rows: list[list[Entry]] = []
        for kind, traces in self.traces.items():
            ends = [trace.chosen[self._best(kind, trace)[-1]] for trace in traces]
            row = kind.row
            for accuracy in self.accuracies.values():
                row += [float(accuracy[ends].mean()), float(accuracy[ends].std(ddof=1))]
            rows.append([*row, self._spent([step for trace in traces for step in trace.chosen], len(traces))])
        columns = [column for name in self.accuracies for column in (name, f"± {name}")]
        columns = ["search", "metric", "evaluations by", *columns, "seconds"]
        return Table("ends", f"What searches end in: {what}", columns, rows, _ENDS)

    def budgets(self, what: str) -> Table:
        """Return the numbers of figure 7.3."""
        rows: list[list[Entry]] = [
            [
                *kind.row,
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
        """Return the numbers of figure 7.5."""
        rows: list[list[Entry]] = [
            [*kind.row, step, rho]
            for kind in self.traces
            if kind.t is not None
            for step, rho in self._over_steps(kind).items()
        ]
        columns = ["search", "metric", "evaluations by", "step", "Spearman"]
        note = "Of test accuracy and HNAS' objective, all cells; μ and ν are the best so far of a search"
        return Table(
            "steps", f"The objective's correlation over rounds: {what}", columns, rows, note, long=True
        )

    def figures(self) -> dict[str, Figure]:
        """Draw figure 7.3 without an oracle, and figure 7.5 with and without one."""
        judge = next(iter(self.traces)).judge
        budgets = {
            metric: {
                kind.search: self._over_budget(kind)
                for kind in self.traces
                if kind.judge == judge and kind.metric in (metric, "")
            }
            for metric in self.pools
        }
        steps = {
            metric: {
                f"{kind.search}: {kind.judge.replace('_', ' ')}": self._over_steps(kind)
                for kind in self.traces
                if kind.t is not None and kind.metric == metric
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
        assert kind.t is not None
        found = []
        for trace in self.traces[kind]:
            best = self._best(kind, trace)
            rho = {
                step: spearman(values_of(pool, trace.parameters[step], kind.t), accuracy)
                for step in set(best)
            }
            found.append([rho[step] for step in best])
        return {step: mean_estimate(values) for step, values in enumerate(np.transpose(found), 1)}

    def _spent(self, chosen: Sequence[int], searches: int) -> float | None:
        seconds = [self.seconds[cell] for cell in chosen]
        known = [second for second in seconds if second is not None]
        return sum(known) / searches if len(known) == len(seconds) else None


class MetricBins(NamedTuple):
    """Accuracies of architectures in bins of a metric.

    Args:
        table: table of all metrics.
        figures: accuracies by bin, and their correlation with κ.
    """

    table: Table
    figures: dict[str, Figure]


def bins_of(
    pools: Mapping[str, KnownPool], dataset: str, bins: int, what: str, *, resamples: int, seed: int
) -> MetricBins:
    """Return figure 7.4, with equally many architectures in each bin of a metric."""
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
# Tables 7.3 and 7.13 and figure 7.3: results of searches that evaluate by the table, compared with a metric
# alone and random search. Figure 7.4: accuracies by bins of a metric, and their correlation with κ. Figure
# 7.5: how well the objective orders all architectures with the best μ and ν so far.

SEARCHES_FILE = "searches.json"
IN_OBJECTIVE = ("ntk_sqrt_mean_diag", "grad_norm", "snip", "knas", "synflow")


@checked
@dataclass(frozen=True, kw_only=True)
class HnasAblation(EstimatedStudy):
    """Searches in pools of scored architectures; each has a random part of them.

    Args:
        objective: metrics M of the searches and bins.
        kappa: name of the condition number among the metrics.
        pool: number of the scored cells that a search has; all if there are fewer.
        rounds: K, evaluations of a search.
        searches: number of repetitions.
        bins: number of bins of a metric, of equal size.
        ts: exponents of F(x) = |x|^2t; each has its own searches.
        starts: rounds before the Gaussian process proposes.
        scheme: initialization of the weights.
        metrics, cells, resamples, scores, seed, workers, backend: see `EstimatedStudy`.

    >>> from nas_lightning.metrics import NTKCondition, NTKSqrtMeanDiagonal
    >>> metrics = {"ntk_sqrt_mean_diag": NTKSqrtMeanDiagonal(), "ntk_condition": NTKCondition()}
    >>> HnasAblation(metrics=metrics, objective=["ntk_sqrt_mean_diag"], cells=40, pool=100).pool_size
    40
    """

    objective: Annotated[Sequence[str], entries(1), DISTINCT] = IN_OBJECTIVE
    kappa: str = "ntk_condition"
    cells: Annotated[int, at_least(4)] = 1100
    pool: Annotated[int, at_least(2)] = 1000
    rounds: PositiveInt = 20
    searches: Annotated[int, at_least(2)] = 10
    bins: PositiveInt = 20
    ts: Annotated[Sequence[PositiveFloat], entries(1), DISTINCT] = (1.0, 0.5)
    starts: PositiveInt = 5
    scheme: Scheme = "lecun"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_metrics([*self.objective, self.kappa], self.metrics)
        for name in self.objective:
            check_metric(self.metrics[name], f"study.metrics.{name}")
        check_condition(self.metrics[self.kappa], "study.kappa")

    @property
    def pool_size(self) -> int:
        """Number of architectures of a search."""
        return min(self.pool, self.cells)

    def run(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        data: SearchData,
        benchmark: TabularBenchmark,
        folder: Path,
        accelerator: torch.device = CPU,
    ) -> Findings:
        """Score the architectures on one batch, and search among them."""
        genotypes, accuracies = self.draw_known(benchmark, space)
        evaluate = table_accuracy(benchmark)
        judges = {j.name: np.array([j(g) for g in genotypes]) for j in (evaluate, OracleAccuracy(benchmark))}
        seconds = [evaluate.seconds(genotype) for genotype in genotypes]
        setting = Setting(network, data.train_batches(1)[0], self.scheme)
        values = self.scored_pool(space, genotypes, folder, accelerator).score_main(setting)
        oriented = orient(self.metrics, values)
        pools = {
            name: KnownPool(oriented[name], values[self.kappa], accuracies[benchmark.dataset])
            for name in self.objective
        }
        done = self._search(pools, judges, folder / SEARCHES_FILE)
        what = (
            f"{len(genotypes):,} cells scored on {data.name}, {self.searches} searches among {self.pool_size}"
        )
        found = HnasSearches(done, pools, accuracies, benchmark.dataset, judges, seconds)
        bins = bins_of(
            pools,
            benchmark.dataset,
            min(self.bins, self.cells),
            what,
            resamples=self.resamples,
            seed=self.seed,
        )
        return Findings(
            [found.ends(what), found.budgets(what), found.steps(what), bins.table],
            {**found.figures(), **bins.figures},
        )

    def _search(
        self, pools: Mapping[str, KnownPool], judges: Mapping[str, Values], path: Path
    ) -> dict[Searched, list[SearchTrace]]:
        """Return the searches of each kind; run and save those that are not in the file."""
        settings = f"{self.cells} {self.pool_size} {self.rounds} {self.starts} {self.seed}"
        kinds = list(self._kinds(judges))
        todo = [(kind, number) for kind in kinds for number in range(self.searches)]
        records = read_records(path)
        found: dict[Searched, list[SearchTrace]] = {kind: [] for kind in kinds}
        for kind, number in follow(todo, "searches"):
            key = f"{settings}: {kind.search}, {kind.metric}, {kind.judge}, {number + 1}"
            if key not in records:
                pool = next(iter(pools.values())) if kind.search == RANDOM else pools[kind.metric]
                records[key] = self._trace(kind, number, pool._replace(worth=judges[kind.judge]))._asdict()
                write_whole(path, json_text(records) + "\n")
            found[kind].append(SearchTrace(**records[key]))
        return found

    def _kinds(self, judges: Mapping[str, Values]) -> Iterator[Searched]:
        for judge in judges:
            for metric in self.objective:
                for t in self.ts:
                    yield Searched(hnas_name(t), metric, judge, t)
                yield Searched(ALONE, metric, judge)
            yield Searched(RANDOM, "", judge)

    def _trace(self, kind: Searched, number: int, pool: KnownPool) -> SearchTrace:
        """Run a search in its part of the pool; chosen architectures are indices of the whole pool."""
        rows = (
            np.random.default_rng(seed_of(self.seed, number))
            .permutation(self.cells)[: self.pool_size]
            .tolist()
        )
        part, rounds = pool.of(rows), min(self.rounds, self.pool_size)
        if kind.t is not None:
            trace = hnas_search(part, rounds, t=kind.t, starts=self.starts, seed=seed_of(self.seed, number))
        elif kind.search == ALONE:
            trace = metric_order(part, rounds)
        else:
            trace = random_order(part, rounds, seed_of(self.seed, number, 1))
        return trace._replace(chosen=[rows[cell] for cell in trace.chosen])


# Kernels of cells from wide to deep, and theorem 7.4 (Y. Shu's thesis, 2022, section 7.3.5, table 7.2).

KERNELS: Mapping[str, Metric] = {
    "M_Trace": NTKSqrtMeanDiagonal(),
    "κ": NTKCondition(),
    "M_Trace, whole batch": NTKSqrtMeanDiagonal(coupled=True),
    "κ, whole batch": NTKCondition(coupled=True),
}
_KERNELS_NOTE = (
    "Means over seeds of the weights ± their standard errors. The first two are of the kernel with each "
    "image's row alone, the others of the kernel of the whole batch's forward pass (J Jᵀ under batch norm)"
)
_LINEAR = "Wide: the largest distance from L n I, over L n. Deep: the mean trace over m L n^L, and κ's median"


@checked
@dataclass(frozen=True, kw_only=True)
class TopologyKernel(ParallelStudy):
    """Kernels of published cells and their widest and deepest forms; theorem 7.4 on linear networks.

    Args:
        cells: cells in DARTS' notation, by name.
        rewired: name of the cell whose operations WIDE and DEEP have.
        seeds: number of seeds of the weights.
        images: number of images of a kernel.
        layers: L of the linear networks.
        width: n of the linear networks.
        draws: number of draws of their weights.
        workers, backend: processes that score, see `ParallelStudy`.

    >>> cell = [("sep_conv_3x3", 0), ("skip_connect", 1)] * 4
    >>> mine = {"normal": cell, "normal_concat": [2, 3, 4, 5], "reduce": cell, "reduce_concat": [2, 3, 4, 5]}
    >>> from nas_lightning.spaces import DartsSpace
    >>> study = TopologyKernel(cells={"mine": mine}, rewired="mine")
    >>> [(name, depth(g["normal"])) for name, g in study.genotypes(DartsSpace()).items()]
    [('mine', 2), ('WIDE', 2), ('DEEP', 5)]
    """

    cells: Annotated[Mapping[str, Mapping[str, Any]], entries(1)]
    rewired: str = "darts_v2"
    seeds: PositiveInt = 10
    images: Annotated[int, at_least(2)] = 32
    layers: PositiveInt = 3
    width: Annotated[int, at_least(2)] = 8
    draws: PositiveInt = 3000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rewired not in self.cells:
            expected = f"expected one of the cells ({near_match(self.rewired, self.cells)})"
            raise InputError(expected, got=self.rewired, where="study.rewired")

    def genotypes(self, space: TwoCellSpace) -> dict[str, Genotype]:
        """Return the published cells, WIDE, and DEEP."""
        of, forms = self.cells[self.rewired], {"WIDE": adapted, "DEEP": deepest}
        return {
            **{name: space.parse(given) for name, given in self.cells.items()},
            **{name: space.parse(form(of)) for name, form in forms.items()},
        }

    def run(
        self,
        space: TwoCellSpace,
        network: NetworkFactory,
        data: SearchData,
        folder: Path,
        accelerator: torch.device = CPU,
    ) -> Findings:
        """Score every cell with each seed, and draw linear networks."""
        genotypes = self.genotypes(space)
        x, y = data.train.plain_images(self.images)
        found = []
        for seed in range(self.seeds):
            path = folder / "scores" / f"{seed}.csv"
            options: dict[str, Any] = {"path": path, "seed": seed, "device": accelerator}
            options |= {"workers": self.workers, "backend": self.backend}
            found.append(score_pool(space, network, genotypes.values(), (x, y), KERNELS, **options))
        rows: list[list[Entry]] = []
        for number, (name, genotype) in enumerate(genotypes.items()):
            shape = float(width(genotype["normal"])), depth(genotype["normal"])
            values = [mean_estimate([scores[number][metric] for scores in found]) for metric in KERNELS]
            rows.append([name, *shape, *values])
        what = f"{self.seeds} seeds, {self.images} images of {data.name}"
        columns = ["cell", "normal width", "normal depth", *KERNELS]
        kernels = Table(
            "kernels", f"Kernels of cells from wide to deep: {what}", columns, rows, _KERNELS_NOTE
        )
        return Findings([kernels, self._linear()])

    def _linear(self) -> Table:
        """Check theorem 7.4: its wide part for every draw, its deep part for the mean."""
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


# NASWOT as the public code of HNAS computes it (shuyao95/HNAS).


@dataclass(frozen=True)
class NaswotPublicCode(Metric):
    """ln |Σ_l z_l z_lᵀ| of the real inputs z_l (m, units) of every ReLU, in place of their binary codes.

    Mellor et al. (2021) count the units that agree on two samples, as `Naswot` does.

    >>> network = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2))
    >>> _ = nn.init.eye_(network[0].weight)
    >>> batch = torch.tensor([[2.0, 0.0], [0.0, -3.0]]), torch.tensor([0, 1])
    >>> NaswotPublicCode()(network, batch).exp().item()  # |diag(4, 9)|
    36.0
    """

    def compute(self, passes: Passes) -> Tensor:
        with torch.no_grad(), _ReluInputs() as inputs:
            passes.network(passes.x)
        return torch.linalg.slogdet(sum(z @ z.T for z in inputs.all)).logabsdet


class _ReluInputs(TorchFunctionMode):
    """Collects the inputs of ReLUs, (m, units), by modules or functions."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.relu:
            self.all.append(args[0].flatten(1).double())
        return func(*args, **(kwargs or {}))


# The effect of batch norm and of the batch's mean on scores (Y. Shu's thesis, 2022, equations 7.1 to 7.3).
#
# In Θ = J Jᵀ an image's row of J includes the paths through the batch norms and so through the other images'
# activations; the default metrics leave these paths out. M_GraSP in equation 7.3 has the Hessian and gradient
# of every sample; by default, as in the public code, it has those of the batch, and weights alone.

PAIRS: Mapping[str, tuple[Metric, Metric]] = {
    "M_Trace": (NTKSqrtMeanDiagonal(), NTKSqrtMeanDiagonal(coupled=True)),
    "κ": (NTKCondition(), NTKCondition(coupled=True)),
    "M_GraSP": (Grasp(), SampleGrasp()),
}
"""The default metric, and the metric of the equation."""

_FORMS_NOTE = (
    "Medians over architectures whose two scores are finite and positive; the logarithm's mean ± standard "
    "error; Spearman's ρ ± the bootstrap's"
)


def _column(name: str, place: int) -> str:
    return f"{name}, {('by default', 'equation')[place]}"


FORMS = {_column(name, place): pair[place] for name, pair in PAIRS.items() for place in (0, 1)}
"""The metrics of all pairs, by the columns of the file of scores."""


@checked
@dataclass(frozen=True, kw_only=True)
class Coupling(EstimatedStudy):
    """Compare the default scores of random architectures with those of the exact equations.

    Args:
        cells, resamples, scores, seed, workers, backend: see `EstimatedStudy`.

    >>> Coupling(cells=5).cells
    5
    """

    metrics: Mapping[str, Metric] = field(default_factory=lambda: FORMS, init=False)
    cells: Annotated[int, at_least(4)] = 20

    def run(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        data: SearchData,
        folder: Path,
        accelerator: torch.device = CPU,
    ) -> Findings:
        """Score the architectures in both ways on one batch."""
        genotypes = draw_genotypes(space, self.cells, self.seed)
        setting = Setting(network, data.train_batches(1)[0])
        values = self.scored_pool(space, genotypes, folder, accelerator).score_main(setting)
        pairs = {name: (values[_column(name, 0)], values[_column(name, 1)]) for name in PAIRS}
        rows: list[list[Entry]] = [[name, *self._row(*pair)] for name, pair in pairs.items()]
        columns = ["metric", "architectures", "by default", "equation", "log₁₀ of default over equation", "ρ"]
        what = f"{self.cells} of {space.name}, {data.batch_size} images of {data.name}"
        table = Table("forms", f"Scores by default and to the letter: {what}", columns, rows, _FORMS_NOTE)
        return Findings([table], {"forms": figures.against(pairs, "by default", "equation")})

    def _row(self, ours: Values, theirs: Values) -> list[Entry]:
        sound = np.isfinite(ours) & np.isfinite(theirs) & (ours > 0) & (theirs > 0)
        x, y = ours[sound], theirs[sound]
        if not len(x):
            return [0, None, None, None, None]
        order = self.estimate(spearman, x, y)
        return [
            len(x),
            float(np.median(x)),
            float(np.median(y)),
            mean_estimate(np.log10(x) - np.log10(y)),
            order,
        ]
