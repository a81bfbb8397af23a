"""How well metrics rank architectures: correlations, and in which settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from math import isnan
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn

from nas_lightning.backends import Backend
from nas_lightning.data import ImageData, SearchData
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.recording import Scheme
from nas_lightning.objectives.rankings import COMBINED, EXPONENTS, trade_off
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.studies import figures
from nas_lightning.studies.base import Study
from nas_lightning.studies.scoring import (
    MAIN,
    RANDOM,
    Pool,
    Scorer,
    Setting,
    Statistic,
    Values,
    Variation,
    agnostic,
    batch_sizes,
    check_names,
    data_sets,
    draw_known,
    estimate,
    initializations,
    kendall,
    orient,
    pearson,
    scores_of,
    second_scores,
    seconds_of,
    spearman,
    top_mean,
    widths,
)
from nas_lightning.utils.machine import Processes
from nas_lightning.utils.tables import Entry, Estimate, Table
from nas_lightning.validation import (
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seed,
    at_least,
    checked,
    entries,
)

# The four scenarios of the thesis' table 7.5: a metric alone, with HNAS' trade-off, with κ, and with both.
#
# `nas_lightning.objectives.rankings` has the formula. Its μ and ν are searched on a grid that suits metrics
# from 10⁻² to 10³⁰: √ν at the quantiles of the metric, μ = 10^c with c in `EXPONENTS`, where HNAS searches,
# in
# the unit in which both terms are as large as each other for the median architecture. So a pair (c, quantile)
# means the same in another setting, whatever the scale that the metric has there.
#
# The best of a grid on the architectures that it was chosen on is what the authors report, and flatters. So
# beside it stands the mean over halves: the parameters chosen on one half, the correlation on the other.

Rows = NDArray[np.int64]


class Parameters(NamedTuple):
    """μ and ν on scales that all metrics share.

    Args:
        exponent: c of μ = 10^c.
        quantile: of the metric, where √ν is.
    """

    exponent: float
    quantile: float


GRID = [
    Parameters(c, q) for c in np.linspace(*EXPONENTS, 11).tolist() for q in np.linspace(0, 1, 21).tolist()
]


class TradeOffObjective:
    """A metric and κ of some architectures, in HNAS' objective.

    Args:
        metric: larger is better, (n,).
        kappa: (n,); None leaves the condition number out.
        power: of F(x) = |x|^power.

    >>> metric, kappa = np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])
    >>> int(TradeOffObjective(metric, kappa).with_kappa().argmax())
    2
    """

    def __init__(self, metric: Values, kappa: Values | None = None, power: float = 2.0) -> None:
        values = torch.as_tensor(metric, dtype=torch.float64)
        self.kappa = torch.ones_like(values) if kappa is None else torch.as_tensor(kappa, dtype=torch.float64)
        self.sound = torch.isfinite(values) & (values > 0) & torch.isfinite(self.kappa)
        self.unit = float(values[self.sound].max()) if bool(self.sound.any()) else 1.0
        self.metric, self.power = values / self.unit, power  # Synflow's powers are no float64

    def with_kappa(self) -> Values:
        """−κ/M, larger is better: (n,)."""
        return self._minus_trade_off(0.0, 0.0)

    def scores(self, parameters: Parameters) -> Values:
        """Minus the objective, so that larger is better: (n,)."""
        return self._minus_trade_off(*self._scales(parameters))

    def best(self, accuracy: Values, rows: Rows | None = None) -> Parameters:
        """Of the grid, what has the largest Spearman correlation with the accuracy (on some of the rows)."""
        from scipy.stats import rankdata

        chosen = np.arange(len(accuracy)) if rows is None else rows
        ranks = _center(rankdata(self._on_grid[:, chosen], axis=1))  # (g, n)
        found = ranks @ _center(rankdata(accuracy[chosen])[None])[0]
        return GRID[int(np.argmax(np.nan_to_num(found, nan=-np.inf)))]

    def raw(self, parameters: Parameters) -> tuple[float, float]:
        """μ and ν of the formula for the metric as it is."""
        mu, nu = self._scales(parameters)
        return mu / self.unit ** (1 + 2 * self.power), nu * self.unit**2

    def held_out(
        self, accuracy: Values, statistics: Sequence[Statistic], splits: int, seed: int = 0
    ) -> list[float]:
        """Means on halves whose parameters were chosen on the other half, both ways of random splits."""
        found = []
        for chosen_on, reported_on in _halves(len(accuracy), splits, seed):
            scores = self.scores(self.best(accuracy, chosen_on))
            found.append([statistic(scores[reported_on], accuracy[reported_on]) for statistic in statistics])
        return np.mean(found, axis=0).tolist()

    @cached_property
    def _on_grid(self) -> Values:
        """The scores for all parameters of the grid, (g, n)."""
        mu, nu = torch.tensor([self._scales(p) for p in GRID], dtype=torch.float64).T[:, :, None]  # (g, 1)
        return self._minus_trade_off(mu, nu)

    def _scales(self, parameters: Parameters) -> tuple[float, float]:
        """μ and ν for the metric in units of its largest value."""
        metric, kappa = self.metric[self.sound], self.kappa[self.sound]
        if not len(metric):
            return 1.0, 0.0
        nu = float(torch.quantile(metric, parameters.quantile)) ** 2
        first = float((kappa / metric).median())
        second = float(((metric.square() - nu).abs() ** self.power).median())
        return 10**parameters.exponent * first / second if second else 0.0, nu

    def _minus_trade_off(self, mu: Tensor | float, nu: Tensor | float) -> Values:
        return -trade_off(self.kappa, self.metric, mu, nu, self.power).numpy()


def _halves(count: int, splits: int, seed: int) -> Iterator[tuple[Rows, Rows]]:
    random = np.random.default_rng(seed)
    for _ in range(splits):
        one, other = np.array_split(random.permutation(count), 2)
        yield one, other
        yield other, one


def _center(ranks: Values) -> Values:
    """Rows with mean 0 and length 1; NaN where a row does not vary."""
    ranks = ranks - ranks.mean(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return ranks / np.linalg.norm(ranks, axis=-1, keepdims=True)


# How well training-free metrics order architectures: against the accuracies of a table (thesis, 7.5–7.6).
#
# Tables 7.1, 7.4, 7.5 and 7.12 of Y. Shu's thesis (2022; chapter 7 is HNAS, arXiv:2201.09785), on
# architectures
# drawn at random. Scores come from one batch of one data set; accuracies from every column that the table
# has.

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


# How much correlations depend on what metrics are evaluated on (thesis, section 7.6; NASI, figure 6.1).
#
# Tables 7.6 (data sets), 7.9 (initialization), 7.10 (batch size) and 7.11 (width) of Y. Shu's thesis (2022),
# and the label- and data-agnosticism of NASI (arXiv:2109.00817). As there, the parameters of HNAS' objective
# are chosen once, in the main setting; of batch size and width, the metric's and κ's are varied separately.

_CHOSEN = "μ and ν: the best of a grid on these cells in the main setting, the same in all rows"
_NASI = "t(A)"
Scores = Mapping[str, Mapping[str, Values]]  # pool → metric → (n,)


class CorrelationSettings(Study):
    """The correlations over initializations, batch sizes, widths, data sets, labels and inputs.

    An empty list leaves its table out.

    Args:
        metrics: what is computed, by name.
        objective: those whose correlations are shown.
        kappa: the condition number among the metrics.
        gradient: the norm of the whole gradient among them, whose square is NASI's t(A).
        cells: architectures, drawn without repetition.
        schemes: initializations; the first is the main setting's.
        batch_sizes: beside that of the data set, which is the main setting's.
        channels: widths of the network.
        others: further data sets, by name.
        agnostic: whether to score with random labels, and with Gaussian inputs.
        power, resamples, workers, backend, scores, seed: as of `Correlation`.

    >>> from nas_lightning.metrics import GradNorm, NTKCondition
    >>> metrics = {"norm": GradNorm(), "whole": GradNorm(per_layer=False), "kappa": NTKCondition()}
    >>> names = {"objective": ["norm"], "kappa": "kappa", "gradient": "whole"}
    >>> study = CorrelationSettings(metrics=metrics, **names, channels=[])
    >>> study.schemes, study.channels
    (['lecun', 'xavier', 'kaiming'], [])
    """

    @checked
    def __init__(
        self,
        *,
        metrics: Mapping[str, Metric],
        kappa: str = "ntk_condition",
        gradient: str = "grad_norm_whole",
        cells: Annotated[int, at_least(4)] = 20,
        schemes: Annotated[Sequence[Scheme], entries(1)] = ("lecun", "xavier", "kaiming"),
        objective: Sequence[str] = ("grad_norm", "snip", "grasp", "ntk_trace"),
        batch_sizes: Sequence[Annotated[int, at_least(2)]] = (4, 8, 16, 32),
        channels: Sequence[PositiveInt] = (4, 8, 16, 32),
        others: Mapping[str, ImageData] = MappingProxyType({}),
        agnostic: bool = True,
        power: PositiveFloat = 2.0,
        resamples: PositiveInt = 200,
        workers: Processes = 1,
        backend: Backend = "processes",
        scores: str | Path | None = None,
        seed: Seed = 0,
    ) -> None:
        check_names([*objective, kappa, gradient], metrics)
        self.metrics, self.objective = dict(metrics), list(objective)
        self.kappa, self.gradient, self.cells = kappa, gradient, cells
        self.schemes, self.batch_sizes, self.channels = list(schemes), list(batch_sizes), list(channels)
        self.others, self.agnostic = dict(others), agnostic
        self.power, self.resamples, self.seed = power, resamples, seed
        self.scorer = Scorer(self.metrics, workers, backend, scores)

    def run(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        data: SearchData,
        benchmark: TabularBenchmark,
        folder: Path,
    ) -> Findings:
        """Score the architectures in each setting, correlate all of them with the same accuracies."""
        genotypes, accuracies = draw_known(benchmark, space, self.cells, self.seed)
        main = Setting(network, data.train_batches(1)[0], self.schemes[0])
        varied = [
            initializations(main, self.schemes),
            batch_sizes(main, data, self.batch_sizes),
            widths(main, network, self.channels, genotypes[0]),
        ]
        varied = [one for one in varied if len(one.pools) > 1]
        settings = {MAIN: main} | {name: s for one in varied for name, s in one.settings.items()}
        settings |= data_sets(main, network, self.others)
        if self.agnostic:
            settings |= agnostic(main, data.num_classes, self.seed)
        scores = self.scorer.pool(space, genotypes, folder).score(settings)
        accuracy, what = accuracies[benchmark.dataset], f"{self.cells:,} cells scored on {data.name}"
        tables = [
            self._table_of(one, scores, accuracy, s, what) for one in varied for s in (spearman, kendall)
        ]
        tables.append(self._by_data_set(scores, accuracies, data.name))
        if self.agnostic:
            tables.append(self._agnosticism(scores, what))
        return Findings(tables, self._figures(varied, scores, accuracy))

    def _table_of(
        self, one: Variation, scores: Scores, accuracy: Values, statistic: Statistic, what: str
    ) -> Table:
        rows: list[list[Entry]] = []
        for metric_at, kappa_at in one.pairs():
            pools = one.pools[metric_at], None if kappa_at is None else one.pools[kappa_at]
            row = [self._estimate(name, scores, accuracy, statistic, *pools) for name in self.objective]
            rows.append([metric_at, kappa_at or "alone", *row])
        kind = "Spearman" if statistic is spearman else "Kendall"
        return Table(
            f"{one.title.replace(' ', '_')}_{kind.lower()}",
            f"Correlation with test accuracy by {one.title}, {kind}: {what}",
            ["metric at", "κ at", *self.objective],
            rows,
            _CHOSEN,
            long=statistic is kendall,
        )

    def _by_data_set(self, scores: Scores, accuracies: Mapping[str, Values], own: str) -> Table:
        pools = {own: MAIN, **{name: f"data_{name}" for name in self.others}}
        return Table(
            "data_sets",
            f"Correlation by the data sets of scores and of accuracies, Spearman: {self.cells:,} cells",
            ["images of", "accuracy on", "κ", *self.objective],
            [
                [
                    *(images, column, "with both" if kappa else "alone"),
                    *(
                        self._estimate(name, scores, accuracy, spearman, pool, pool if kappa else None)
                        for name in self.objective
                    ),
                ]
                for kappa in (False, True)
                for column, accuracy in accuracies.items()
                for images, pool in pools.items()
            ],
            _CHOSEN,
        )

    def _estimate(
        self, name: str, scores: Scores, accuracy: Values, statistic: Statistic, pool: str, kappa: str | None
    ) -> Estimate | None:
        """The correlation of a metric of one pool, alone or in the objective with κ of another."""
        values = scores[pool][name]
        if kappa is not None:
            main = TradeOffObjective(scores[MAIN][name], scores[MAIN][self.kappa], self.power)
            chosen = main.best(accuracy)
            values = TradeOffObjective(values, scores[kappa][self.kappa], self.power).scores(chosen)
        return estimate(statistic, values, accuracy, resamples=self.resamples, seed=self.seed)

    def _agnosticism(self, scores: Scores, what: str) -> Table:
        kinds = {"Pearson": pearson, "Spearman": spearman, "Kendall": kendall}
        true, *random = ({_NASI: self._t(scores[pool]), **scores[pool]} for pool in (MAIN, *RANDOM))
        rows: list[list[Entry]] = [
            [
                name,
                *(
                    estimate(statistic, true[name], other[name], resamples=self.resamples, seed=self.seed)
                    for other in random
                    for statistic in kinds.values()
                ),
            ]
            for name in true
        ]
        header = ["metric", *(f"{kind}, {pool.replace('_', ' ')}" for pool in RANDOM for kind in kinds)]
        title = f"Scores with true images and labels against scores with random ones: {what}"
        return Table(
            "agnosticism", title, header, rows, f"t(A): the square of {self.gradient}, which NASI maximizes"
        )

    def _t(self, scores: Mapping[str, Values]) -> Values:
        """t(A) = ‖b⁻¹ Σ ∇L‖² (NASI, equation 12); −∞ stays the worst."""
        norm = scores[self.gradient]
        return norm * abs(norm)

    def _figures(self, varied: Sequence[Variation], scores: Scores, accuracy: Values) -> dict[str, Figure]:
        pictures = {}
        if varied:
            panels = {
                one.title: {
                    name: {
                        label: self._estimate(name, scores, accuracy, spearman, pool, None)
                        for label, pool in one.pools.items()
                    }
                    for name in self.objective
                }
                for one in varied
            }
            pictures["settings"] = figures.lines(panels, "Spearman's ρ of the metric alone")
        if self.agnostic:
            true, *random = (self._t(scores[pool]) for pool in (MAIN, *RANDOM))
            points = {pool.replace("_", " "): (true, t) for pool, t in zip(RANDOM, random, strict=True)}
            pictures["agnosticism"] = figures.against(points, "t(A), true images and labels", "t(A), random")
        return pictures
