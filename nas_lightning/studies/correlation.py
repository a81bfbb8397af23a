"""How well metrics rank architectures: correlations, and in which settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import isnan
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn

from nas_lightning.data import ImageData, SearchData
from nas_lightning.frozen_map import FrozenMap
from nas_lightning.metrics.recording import Scheme
from nas_lightning.objectives.rankings import COMBINED, EXPONENTS, trade_off
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.studies import figures
from nas_lightning.studies.scoring import (
    MAIN,
    RANDOM,
    EstimatedStudy,
    Pool,
    Setting,
    Statistic,
    Values,
    Variation,
    agnostic,
    batch_sizes,
    check_metrics,
    data_sets,
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
from nas_lightning.utils.devices import CPU
from nas_lightning.utils.tables import Entry, Estimate, Table
from nas_lightning.validation import (
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    at_least,
    checked,
    entries,
)

# The four scenarios of the thesis' table 7.5: a metric alone, with HNAS' trade-off, with κ, and with both.
#
# The formula is in `nas_lightning.objectives.rankings`. μ and ν are searched on a grid that suits metrics
# from 10⁻² to 10³⁰: √ν at the quantiles of the metric, and μ = 10^c with c in `EXPONENTS`, the range of HNAS'
# search, in the unit that makes both terms equal for the median architecture. So a pair (c, quantile) has the
# same meaning in another setting, whatever the scale of the metric there.
#
# The authors report the best of a grid on the architectures that it was chosen on, which is optimistic. The
# tables also have the mean over halves: parameters chosen on one half, the correlation on the other.

Rows = NDArray[np.int64]


class Parameters(NamedTuple):
    """μ and ν on a scale that all metrics share.

    Args:
        exponent: c of μ = 10^c.
        quantile: quantile of the metric that is √ν.
    """

    exponent: float
    quantile: float


GRID = [
    Parameters(c, q) for c in np.linspace(*EXPONENTS, 11).tolist() for q in np.linspace(0, 1, 21).tolist()
]


class TradeOffObjective:
    """HNAS' objective for a metric and κ of some architectures.

    Args:
        metric: larger is better, (n,).
        kappa: condition numbers, (n,); None: without them.
        power: exponent of F(x) = |x|^power.

    >>> metric, kappa = np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])
    >>> int(TradeOffObjective(metric, kappa).with_kappa().argmax())
    2
    """

    def __init__(self, metric: Values, kappa: Values | None = None, power: float = 2.0) -> None:
        values = torch.as_tensor(metric, dtype=torch.float64)
        self.kappa = torch.ones_like(values) if kappa is None else torch.as_tensor(kappa, dtype=torch.float64)
        self.sound = torch.isfinite(values) & (values > 0) & torch.isfinite(self.kappa)
        self.unit = float(values[self.sound].max()) if bool(self.sound.any()) else 1.0
        self.metric, self.power = values / self.unit, power  # powers of Synflow overflow float64

    def with_kappa(self) -> Values:
        """Return −κ/M, (n,); larger is better."""
        return self._minus_trade_off(0.0, 0.0)

    def scores(self, parameters: Parameters) -> Values:
        """Return minus the objective, (n,); larger is better."""
        return self._minus_trade_off(*self._scales(parameters))

    def best(self, accuracy: Values, rows: Rows | None = None) -> Parameters:
        """Return the parameters of the grid with the largest Spearman correlation, on some of the rows."""
        from scipy.stats import rankdata

        chosen = np.arange(len(accuracy)) if rows is None else rows
        ranks = _center(rankdata(self._on_grid[:, chosen], axis=1))  # (g, n)
        found = ranks @ _center(rankdata(accuracy[chosen])[None])[0]
        return GRID[int(np.argmax(np.nan_to_num(found, nan=-np.inf)))]

    def raw(self, parameters: Parameters) -> tuple[float, float]:
        """Return μ and ν of the formula for the metric itself."""
        mu, nu = self._scales(parameters)
        return mu / self.unit ** (1 + 2 * self.power), nu * self.unit**2

    def held_out(
        self, accuracy: Values, statistics: Sequence[Statistic], splits: int, seed: int = 0
    ) -> list[float]:
        """Return the mean statistics on halves whose parameters were chosen on the other half."""
        found = []
        for chosen_on, reported_on in _halves(len(accuracy), splits, seed):
            scores = self.scores(self.best(accuracy, chosen_on))
            found.append([statistic(scores[reported_on], accuracy[reported_on]) for statistic in statistics])
        return np.mean(found, axis=0).tolist()

    @cached_property
    def _on_grid(self) -> Values:
        """Scores for all parameters of the grid, (g, n)."""
        mu, nu = torch.tensor([self._scales(p) for p in GRID], dtype=torch.float64).T[:, :, None]  # (g, 1)
        return self._minus_trade_off(mu, nu)

    def _scales(self, parameters: Parameters) -> tuple[float, float]:
        """Return μ and ν for the metric in units of its largest value."""
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
    """Return rows with mean 0 and length 1; NaN where a row does not vary."""
    ranks = ranks - ranks.mean(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return ranks / np.linalg.norm(ranks, axis=-1, keepdims=True)


# How well training-free metrics order architectures, against the accuracies of a table.
#
# Tables 7.1, 7.4, 7.5 and 7.12 of Y. Shu's thesis (2022; chapter 7 is HNAS, arXiv:2201.09785), on random
# architectures. Scores are computed on one batch of one data set; accuracies are all columns of the table.

_GRID = (
    "Trade-off and both: μ and ν are the best of a grid on the same cells, as the authors report it. Held "
    "out: they are chosen on one half of the cells, the correlation is that of the other half"
)

IN_OBJECTIVE = (
    *("grad_norm", "grad_norm_whole", "snip", "snip_whole", "grasp"),
    *("ntk_sqrt_mean_diag", "ntk_frobenius", "fisher", "synflow", "naswot"),
)


@checked
@dataclass(frozen=True, kw_only=True)
class Correlation(EstimatedStudy):
    """Correlate each metric with accuracies: alone, in HNAS' objective, and with the other metrics.

    Args:
        objective: metrics that are also put into HNAS' objective and compared in pairs.
        kappa: name of the condition number among the metrics.
        agreement: number of cells that are scored again with other weights; 0: none.
        scheme: initialization of the weights.
        power: exponent of F(x) = |x|^power in the objective.
        splits: number of random halves that a held-out correlation is averaged over.
        metrics, cells, resamples, scores, seed, workers, backend: see `EstimatedStudy`.

    >>> from nas_lightning.metrics import GradNorm, NTKCondition
    >>> metrics = {"grad_norm": GradNorm(), "ntk_condition": NTKCondition()}
    >>> study = Correlation(metrics=metrics, objective=["grad_norm"], cells=200)
    >>> [name for name, needed in study.wants().items() if needed]
    ['space', 'network', 'data', 'benchmark', 'folder']
    """

    objective: Sequence[str] = IN_OBJECTIVE
    kappa: str = "ntk_condition"
    agreement: NonNegativeInt = 24
    scheme: Scheme = "lecun"
    power: PositiveFloat = 2.0
    splits: PositiveInt = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_metrics([*self.objective, self.kappa], self.metrics)

    def run(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        data: SearchData,
        benchmark: TabularBenchmark,
        folder: Path,
        accelerator: torch.device = CPU,
    ) -> Findings:
        """Score the architectures on one batch, look up their accuracies, and correlate the two."""
        genotypes, accuracies = self.draw_known(benchmark, space)
        pool = self.scored_pool(space, genotypes, folder, accelerator)
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
        """Return the default ranking, if its metrics are among those computed."""
        if any(self.metrics.get(name) != metric for name, metric in COMBINED.items()):
            return {}
        return {"combined": scores_of(values, COMBINED)}

    def _alone(
        self, scores: Mapping[str, Values], accuracies: Mapping[str, Values], target: str, what: str
    ) -> Table:
        others = [name for name in accuracies if name != target]
        rows = []
        for name, x in scores.items():
            found = [self.estimate(s, x, accuracies[target]) for s in (spearman, kendall, pearson)]
            rows.append([name, *found, *(self.estimate(spearman, x, accuracies[other]) for other in others)])
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
        count = min(self.agreement, self.cells)
        values = second_scores(pool, setting, count) if count else {}
        second = {**orient(self.metrics, values), **self._combination(values)} if values else {}
        sets = {name: {name: self.metrics[name]} if name in self.metrics else COMBINED for name in ranked}
        seconds = seconds_of(pool, setting, sets)
        rows = []
        for name, x in ranked.items():
            again = self.estimate(spearman, x[:count], second[name]) if second else None
            rows.append([name, again, top_mean(x, accuracy), seconds[name]])
        return Table(
            "reliability",
            f"Metrics against themselves, their best, and what they cost: {what}",
            ["metric", "ρ with itself", "accuracy of the best tenth", "seconds"],
            rows,
            f"ρ with itself: two draws of weights, {count} cells. All cells: {accuracy.mean():.2f}. "
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
                    found = [self.estimate(statistic, scores, accuracy) for scores in scenarios]
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
                [a, b, *(self.estimate(s, scores[a], scores[b]) for s in (pearson, spearman, kendall))]
                for a, b in combinations(scores, 2)
            ],
            "Signs are such that larger is better",
            long=True,
        )


# How much correlations depend on the setting that metrics are evaluated in.
#
# Tables 7.6 (data sets), 7.9 (initialization), 7.10 (batch size) and 7.11 (width) of Y. Shu's thesis (2022),
# and the label- and data-agnosticism of NASI (arXiv:2109.00817, figure 6.1 of the thesis). As there, the
# parameters of HNAS' objective are chosen once, in the main setting; of batch size and width, the metric's
# and κ's are varied separately.

_CHOSEN = "μ and ν: the best of a grid on these cells in the main setting, the same in all rows"
_NASI = "t(A)"
Scores = Mapping[str, Mapping[str, Values]]  # pool → metric → (n,)


@checked
@dataclass(frozen=True, kw_only=True)
class CorrelationSettings(EstimatedStudy):
    """Correlations by initialization, batch size, width, and data set, and for random labels and inputs.

    An empty list leaves out its table.

    Args:
        kappa: name of the condition number among the metrics.
        gradient: name of the norm of the whole gradient among them, whose square is NASI's t(A).
        schemes: initializations; the first is that of the main setting.
        objective: metrics whose correlations are shown.
        batch_sizes: batch sizes besides that of the data set, which is that of the main setting.
        channels: widths of the network.
        others: further data sets, by name.
        agnostic: whether to score with random labels, and with Gaussian inputs.
        power: exponent of F(x) = |x|^power in the objective.
        metrics, cells, resamples, scores, seed, workers, backend: see `EstimatedStudy`.

    >>> from nas_lightning.metrics import GradNorm, NTKCondition
    >>> metrics = {"norm": GradNorm(), "whole": GradNorm(per_layer=False), "kappa": NTKCondition()}
    >>> names = {"objective": ["norm"], "kappa": "kappa", "gradient": "whole"}
    >>> CorrelationSettings(metrics=metrics, **names, channels=[]).cells
    20
    """

    kappa: str = "ntk_condition"
    gradient: str = "grad_norm_whole"
    cells: Annotated[int, at_least(4)] = 20
    schemes: Annotated[Sequence[Scheme], entries(1)] = ("lecun", "xavier", "kaiming")
    objective: Sequence[str] = ("grad_norm", "snip", "grasp", "ntk_sqrt_mean_diag")
    batch_sizes: Sequence[Annotated[int, at_least(2)]] = (4, 8, 16, 32)
    channels: Sequence[PositiveInt] = (4, 8, 16, 32)
    others: Mapping[str, ImageData] = FrozenMap()
    agnostic: bool = True
    power: PositiveFloat = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_metrics([*self.objective, self.kappa, self.gradient], self.metrics)

    def run(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        data: SearchData,
        benchmark: TabularBenchmark,
        folder: Path,
        accelerator: torch.device = CPU,
    ) -> Findings:
        """Score the architectures in each setting, and correlate all scores with the same accuracies."""
        genotypes, accuracies = self.draw_known(benchmark, space)
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
        scores = self.scored_pool(space, genotypes, folder, accelerator).score(settings)
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
            row = [self._correlate(name, scores, accuracy, statistic, *pools) for name in self.objective]
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
                        self._correlate(name, scores, accuracy, spearman, pool, pool if kappa else None)
                        for name in self.objective
                    ),
                ]
                for kappa in (False, True)
                for column, accuracy in accuracies.items()
                for images, pool in pools.items()
            ],
            _CHOSEN,
        )

    def _correlate(
        self, name: str, scores: Scores, accuracy: Values, statistic: Statistic, pool: str, kappa: str | None
    ) -> Estimate | None:
        """Correlate a metric of one pool, alone or in the objective with κ of another pool."""
        values = scores[pool][name]
        if kappa is not None:
            main = TradeOffObjective(scores[MAIN][name], scores[MAIN][self.kappa], self.power)
            chosen = main.best(accuracy)
            values = TradeOffObjective(values, scores[kappa][self.kappa], self.power).scores(chosen)
        return self.estimate(statistic, values, accuracy)

    def _agnosticism(self, scores: Scores, what: str) -> Table:
        kinds = {"Pearson": pearson, "Spearman": spearman, "Kendall": kendall}
        true, *random = ({_NASI: self._t(scores[pool]), **scores[pool]} for pool in (MAIN, *RANDOM))
        rows: list[list[Entry]] = [
            [
                name,
                *(
                    self.estimate(statistic, true[name], other[name])
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
        """Return t(A) = ‖b⁻¹ Σ ∇L‖² (NASI, equation 12); −∞ stays the worst."""
        norm = scores[self.gradient]
        return norm * abs(norm)

    def _figures(self, varied: Sequence[Variation], scores: Scores, accuracy: Values) -> dict[str, Figure]:
        pictures = {}
        if varied:
            panels = {
                one.title: {
                    name: {
                        label: self._correlate(name, scores, accuracy, spearman, pool, None)
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
