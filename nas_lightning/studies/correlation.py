"""How well training-free metrics order architectures: against the accuracies of a table (thesis, 7.5–7.6).

Tables 7.1, 7.4, 7.5 and 7.12 of Y. Shu's thesis (2022; chapter 7 is HNAS, arXiv:2201.09785), on architectures
drawn at random. Scores come from one batch of one data set; accuracies from every column that the table has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import isnan
from pathlib import Path
from typing import Annotated

from torch import nn

from nas_lightning.backends import Backend
from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.checks import NonNegativeInt, PositiveFloat, PositiveInt, Seed, at_least, checked
from nas_lightning.data import SearchData
from nas_lightning.machine import Processes
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes.initialise import Scheme
from nas_lightning.objectives.log_ranks import COMBINED
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.studies import figures
from nas_lightning.studies.base import Study
from nas_lightning.studies.pools import Pool, Scorer, Setting, check_names, draw_known, orient
from nas_lightning.studies.ranked_sets import scores_of
from nas_lightning.studies.reliability import second_scores, seconds_of, top_mean
from nas_lightning.studies.scenarios import TradeOffObjective
from nas_lightning.studies.statistics import Statistic, Values, estimate, kendall, pearson, spearman
from nas_lightning.tables import Entry, Estimate, Table

_GRID = (
    "Trade-off and both: μ and ν are the best of a grid on the same cells, as the authors report it. Held "
    "out: they are chosen on one half of the cells, the correlation is that of the other half"
)

IN_OBJECTIVE = (
    *("grad_norm", "grad_norm_whole", "snip", "snip_whole", "grasp"),
    *("ntk_trace", "ntk_frobenius", "fisher", "synflow", "naswot"),
)


class Correlation(Study):
    """Each metric alone, in HNAS' objective, and against the other metrics.

    Args:
        metrics: what is computed, by name; all are in the first table.
        objective: those that are also put into HNAS' objective and compared in pairs.
        kappa: the condition number among the metrics.
        cells: architectures, drawn without repetition; of a table of one's own, among its rows.
        agreement: how many of them are scored again with other weights; 0: none.
        scheme: how their weights are drawn.
        power: of F(x) = |x|^power in the objective.
        splits: random halves that a held-out correlation is the mean of.
        resamples: of the bootstrap.
        workers: processes that score.
        backend: whose processes, see `nas_lightning.backends.spread`.
        scores: the folder of the scores, which runs may share; None: `scores` in the run's own.
        seed: of the architectures; their weights follow from their names.

    >>> from nas_lightning.metrics import GradNorm, NTKCondition
    >>> metrics = {"grad_norm": GradNorm(), "ntk_condition": NTKCondition()}
    >>> study = Correlation(metrics=metrics, objective=["grad_norm"], cells=200)
    >>> [name for name, needed in study.wants().items() if needed]  # what `run` is to be given
    ['space', 'network', 'data', 'benchmark', 'folder']
    """

    @checked
    def __init__(
        self,
        *,
        metrics: Mapping[str, Metric],
        objective: Sequence[str] = IN_OBJECTIVE,
        kappa: str = "ntk_condition",
        cells: Annotated[int, at_least(4)] = 50,
        agreement: NonNegativeInt = 24,
        scheme: Scheme = "lecun",
        power: PositiveFloat = 2.0,
        splits: PositiveInt = 5,
        resamples: PositiveInt = 200,
        workers: Processes = 1,
        backend: Backend = "processes",
        scores: str | Path | None = None,
        seed: Seed = 0,
    ) -> None:
        check_names([*objective, kappa], metrics)
        self.metrics, self.objective, self.kappa = dict(metrics), list(objective), kappa
        self.agreement = min(agreement, cells)
        self.cells, self.scheme, self.power, self.splits = cells, scheme, power, splits
        self.resamples, self.seed = resamples, seed
        self.scorer = Scorer(self.metrics, workers, backend, scores)

    def run(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        data: SearchData,
        benchmark: TabularBenchmark,
        folder: Path,
    ) -> Findings:
        """Score the architectures on one batch, look their accuracies up, correlate."""
        genotypes, accuracies = draw_known(benchmark, space, self.cells, self.seed)
        pool = self.scorer.pool(space, genotypes, folder)
        setting = Setting(network, data.train_batches(1)[0], self.scheme)
        values = pool.score_main(setting)
        target = benchmark.dataset
        oriented = orient(self.metrics, values)
        what = f"{self.cells:,} cells scored on {data.name}"
        ranked = {**oriented, **self._combination(values)}
        alone = {f"spearman/{name}": spearman(x, accuracies[target]) for name, x in ranked.items()}
        return Findings(
            tables=[
                self._alone(ranked, accuracies, target, what),
                self._reliability(pool, setting, ranked, accuracies[target], what),
                *self._objective(values, accuracies, what),
                self._pairs({name: oriented[name] for name in (*self.objective, self.kappa)}, what),
            ],
            figures={
                "scatter": figures.scatter(ranked, accuracies[target], f"test accuracy on {target} (%)"),
                "pairs": figures.matrix(
                    list(ranked),
                    [[spearman(a, b) for b in ranked.values()] for a in ranked.values()],
                    "Spearman's ρ between metrics, larger is better",
                ),
            },
            numbers={name: value for name, value in alone.items() if not isnan(value)},
        )

    def _combination(self, values: Mapping[str, Values]) -> dict[str, Values]:
        """The ranking that the suite offers by default, where its metrics are among those computed."""
        if any(self.metrics.get(name) != metric for name, metric in COMBINED.items()):
            return {}
        return {"combined": scores_of(values, COMBINED)}

    def _alone(
        self, scores: Mapping[str, Values], accuracies: Mapping[str, Values], target: str, what: str
    ) -> Table:
        others = [name for name in accuracies if name != target]
        rows = []
        for name, x in scores.items():
            found = [self._estimate(s, x, accuracies[target]) for s in (spearman, kendall, pearson)]
            rows.append([name, *found, *(self._estimate(spearman, x, accuracies[other]) for other in others)])
        return Table(
            "metrics",
            f"Metrics alone against test accuracy: {what}",
            ["metric", *(f"{s} {target}" for s in ("ρ", "τ", "r")), *(f"ρ {other}" for other in others)],
            rows,
            "ρ Spearman, τ Kendall, r Pearson (of finite values), ± the standard error of the bootstrap",
        )

    def _reliability(
        self, pool: Pool, setting: Setting, ranked: Mapping[str, Values], accuracy: Values, what: str
    ) -> Table:
        values = second_scores(pool, setting, self.agreement) if self.agreement else {}
        second = {**orient(self.metrics, values), **self._combination(values)} if values else {}
        sets = {name: {name: self.metrics[name]} if name in self.metrics else COMBINED for name in ranked}
        seconds = seconds_of(pool, setting, sets)
        rows = []
        for name, x in ranked.items():
            again = self._estimate(spearman, x[: self.agreement], second[name]) if second else None
            rows.append([name, again, top_mean(x, accuracy), seconds[name]])
        return Table(
            "reliability",
            f"Metrics against themselves, their best, and what they cost: {what}",
            ["metric", "ρ with itself", "accuracy of the best tenth", "seconds"],
            rows,
            f"ρ with itself: two draws of weights, {self.agreement} cells. All cells: {accuracy.mean():.2f}. "
            "Seconds of one processor for a cell and a batch, the metric alone",
        )

    def _objective(
        self, values: Mapping[str, Values], accuracies: Mapping[str, Values], what: str
    ) -> list[Table]:
        kinds: dict[str, Statistic] = {"Spearman": spearman, "Kendall": kendall}
        rows: dict[str, list[list[Entry]]] = {kind: [] for kind in kinds}
        for metric in self.objective:
            without = TradeOffObjective(values[metric], None, self.power)
            both = TradeOffObjective(values[metric], values[self.kappa], self.power)
            for column, accuracy in accuracies.items():
                trade_off, chosen = without.best(accuracy), both.best(accuracy)
                scenarios = (
                    *(values[metric], without.scores(trade_off)),
                    *(both.with_kappa(), both.scores(chosen)),
                )
                held_out = both.held_out(accuracy, list(kinds.values()), self.splits, self.seed)
                mu, nu = both.raw(chosen)
                for (kind, statistic), value in zip(kinds.items(), held_out, strict=True):
                    found = [self._estimate(statistic, scores, accuracy) for scores in scenarios]
                    error = found[-1].error if found[-1] is not None else None
                    other = None if error is None or isnan(value) else Estimate(value, error)
                    rows[kind].append([metric, column, *found, other, mu, nu**0.5])
        columns = ["metric", "accuracy", "alone", "with trade-off", "with κ", "with both", "both, held out"]
        return [
            Table(
                f"objective_{kind.lower()}",
                f"HNAS' objective κ/M + μ|M² − ν|^{self.power:g} against test accuracy, {kind}: {what}",
                [*columns, "μ", "√ν"],
                rows[kind],
                _GRID,
                long=kind == "Kendall",
            )
            for kind in kinds
        ]

    def _pairs(self, scores: Mapping[str, Values], what: str) -> Table:
        return Table(
            "pairs",
            f"Metrics against each other: {what}",
            ["metric", "other", "Pearson", "Spearman", "Kendall"],
            [
                [a, b, *(self._estimate(s, scores[a], scores[b]) for s in (pearson, spearman, kendall))]
                for a, b in combinations(scores, 2)
            ],
            "Signs are such that larger is better",
            long=True,
        )

    def _estimate(self, statistic: Statistic, x: Values, y: Values) -> Estimate | None:
        return estimate(statistic, x, y, resamples=self.resamples, seed=self.seed)
