"""Tables and figures of HNAS' searches by a table (Y. Shu's thesis, 2022, sections 7.5.4 and 7.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from nas_lightning.studies import figures
from nas_lightning.studies.statistics import Values, estimate, mean_estimate, spearman
from nas_lightning.studies.theory.pool_searches import KnownPool, SearchTrace, values_of
from nas_lightning.tables import Entry, Estimate, Table

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
