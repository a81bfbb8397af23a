"""How much correlations depend on what metrics are evaluated on (thesis, section 7.6; NASI, figure 6.1).

Tables 7.6 (data sets), 7.9 (initialisation), 7.10 (batch size) and 7.11 (width) of Y. Shu's thesis (2022),
and the label- and data-agnosticism of NASI (arXiv:2109.00817). As there, the parameters of HNAS' objective
are chosen once, in the main setting; of batch size and width, the metric's and κ's are varied separately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from matplotlib.figure import Figure
from torch import nn

from nas_lightning.backends import Backend
from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.checks import PositiveFloat, PositiveInt, Seed, at_least, checked, entries
from nas_lightning.data import ImageData, SearchData
from nas_lightning.machine import Processes
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes.initialise import Scheme
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.studies import figures
from nas_lightning.studies.base import Study
from nas_lightning.studies.pools import MAIN, Scorer, Setting, check_names, draw_known
from nas_lightning.studies.scenarios import TradeOffObjective
from nas_lightning.studies.settings import (
    RANDOM,
    Variation,
    agnostic,
    batch_sizes,
    data_sets,
    initialisations,
    widths,
)
from nas_lightning.studies.statistics import Statistic, Values, estimate, kendall, pearson, spearman
from nas_lightning.tables import Entry, Estimate, Table

_CHOSEN = "μ and ν: the best of a grid on these cells in the main setting, the same in all rows"
_NASI = "t(A)"
Scores = Mapping[str, Mapping[str, Values]]  # pool → metric → (n,)


class CorrelationSettings(Study):
    """The correlations over initialisations, batch sizes, widths, data sets, labels and inputs.

    An empty list leaves its table out.

    Args:
        metrics: what is computed, by name.
        objective: those whose correlations are shown.
        kappa: the condition number among the metrics.
        gradient: the norm of the whole gradient among them, whose square is NASI's t(A).
        cells: architectures, drawn without repetition.
        schemes: initialisations; the first is the main setting's.
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
            initialisations(main, self.schemes),
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
            "agnosticism", title, header, rows, f"t(A): the square of {self.gradient}, which NASI maximises"
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
