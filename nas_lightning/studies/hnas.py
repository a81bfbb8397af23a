"""HNAS by a table: over its budget, metric by metric, round by round (Y. Shu's thesis, 2022, 7.5.4 and 7.6).

Tables 7.3 and 7.13 and figure 7.3: what searches end in whose evaluations read the table, beside a metric
alone and chance. Figure 7.4: accuracies by bins of a metric, and what κ says within each. Figure 7.5: how
well the objective orders all architectures with the μ and ν that are the best so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from torch import nn

from nas_lightning.backends import Backend
from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.checks import DISTINCT, PositiveFloat, PositiveInt, Seed, at_least, checked, entries
from nas_lightning.data import SearchData
from nas_lightning.files import json_text, read_records, write_whole
from nas_lightning.machine import Processes
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes.initialise import Scheme
from nas_lightning.objectives.table import OracleAccuracy, table_accuracy
from nas_lightning.progress import follow
from nas_lightning.randomness import seed_of
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.strategies.black_box.hnas import check_condition, check_metric
from nas_lightning.studies.base import Study
from nas_lightning.studies.hnas_findings import ALONE, HNAS, RANDOM, HnasSearches, Searched, bins_of
from nas_lightning.studies.pools import Scorer, Setting, check_names, draw_known, orient
from nas_lightning.studies.statistics import Values
from nas_lightning.studies.theory.pool_searches import (
    KnownPool,
    SearchTrace,
    hnas_search,
    metric_order,
    random_order,
)

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
