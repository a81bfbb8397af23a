"""Fronts of error and latency: the share of the true front that training-free choices find."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import nn

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.pool import MetricValues, score_pool
from nas_lightning.objectives.counts import cost
from nas_lightning.objectives.fronts import Array, Rows, front_of, fronts_of, hypervolume
from nas_lightning.objectives.latency import LatencyTable
from nas_lightning.objectives.rankings import MetricsChoice, log_ranks, named_metrics
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.constrained import COUNTED, HELD_OUT, fit_costs
from nas_lightning.strategies.black_box.pool import forest, graph_counts
from nas_lightning.studies.scoring import ParallelStudy, spearman
from nas_lightning.utils.devices import CPU
from nas_lightning.utils.progress import follow
from nas_lightning.utils.tables import Entry, Estimate, Table
from nas_lightning.validation import DISTINCT, PositiveFloat, PositiveInt, Seed, at_least, checked, entries

# Rules that choose cells for a front of error and latency, and the value of their choices.
#
# The value of a choice is the hypervolume of its errors and latencies, as a share of that of all cells. No
# rule reads an error; some read a few validation accuracies.

TREES = 100
FAR = -1e3
"""Replaces −∞, which a forest does not accept."""
LAYERS = 500
"""Number of cells that evaluations are drawn from: the first fronts of scores and latency."""


@dataclass(frozen=True, eq=False)
class Bench:
    """The latencies of a device and the errors on a data set.

    Args:
        ms: milliseconds of all cells, NaN if not measured, (cells,).
        errors: errors in percent, (cells,).
        reference: error below which a cell counts.

    >>> bench = Bench(np.array([1.0, 3.0, np.nan]), np.array([10.0, 0.0, 0.0]), reference=20.0)
    >>> bench.share(np.array([0])), bench.share(np.array([0, 1]))
    (1.0, 1.0)
    """

    ms: Array
    errors: Array
    reference: float

    def share(self, chosen: Rows) -> float:
        """Return HV(chosen) / HV(all), below the reference error and the slowest cell."""
        return self._volume(chosen) / self.true_volume

    @cached_property
    def true_volume(self) -> float:
        """The hypervolume of all cells."""
        return self._volume(np.arange(len(self.ms)))

    def _volume(self, rows: Rows) -> float:
        rows = self.measured(rows)
        points = np.stack([self.ms[rows], self.errors[rows]], axis=1)
        return hypervolume(points, np.array([np.nanmax(self.ms), self.reference]))

    def measured(self, rows: Rows) -> Rows:
        """Return those of the cells that were measured on the device."""
        return rows[~np.isnan(self.ms[rows])]


def front_rows(ms: Array, *scores: Array) -> Rows:
    """Return the rows that are not dominated in latency and scores; a score of −∞ is never in the front."""
    values = np.stack([ms, *(-score for score in scores)], axis=1)
    sound = np.flatnonzero(np.isfinite(values).all(axis=1))
    return sound[front_of(values[sound])]


def leading(ms: Array, scores: Sequence[Array], count: int) -> Rows:
    """Return at least `count` cells: whole fronts, one after another."""
    values = np.stack([ms, *(-score for score in scores)], axis=1)
    sound = np.flatnonzero(np.isfinite(values).all(axis=1))
    chosen = np.empty(0, dtype=np.int64)
    for rows in fronts_of(values[sound]):
        chosen = np.concatenate([chosen, sound[rows]])
        if len(chosen) >= count:
            break
    return chosen


class Look:
    """Scores and features of a draw of cells, before anything is trained.

    Args:
        rows: indices of the draw's cells among all.
        cells: the draw's cells.
        scores: their scores.
        metrics: the metrics, by name.
        ranking: metrics whose sum of log-ranks is one score.

    >>> from nas_lightning.metrics import Params
    >>> from nas_lightning.spaces import NasBench201
    >>> cell = NasBench201().parse("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|")
    >>> scores, metrics = [{"params": 1.0}, {"params": 2.0}], {"params": Params()}
    >>> look = Look(np.array([0, 2]), [cell, cell], scores, metrics, metrics)
    >>> look.front(Bench(np.array([1.0, 2.0, 3.0]), np.array([5.0, 5.0, 4.0]), 20.0), ["params"])
    array([0, 2])
    """

    def __init__(
        self,
        rows: Rows,
        cells: Sequence[Genotype],
        scores: Sequence[Mapping[str, float]],
        metrics: Mapping[str, Metric],
        ranking: Mapping[str, Metric],
    ) -> None:
        self.rows = rows
        self.ranking = np.array(log_ranks(scores, ranking))
        self.ranks = {name: np.array(log_ranks(scores, {name: one})) for name, one in metrics.items()}
        counts = [graph_counts(cell) for cell in cells]
        keys = sorted({key for count in counts for key in count})
        graph = np.array([[count.get(key, 0.0) for key in keys] for count in counts]).reshape(len(cells), -1)
        self.features = np.column_stack([self.ranking, *self.ranks.values(), graph])

    def front(self, bench: Bench, names: Sequence[str] = ()) -> Rows:
        """Return the front of latency and these scores, or of latency and the ranking without names."""
        chosen = [self.ranks[name] for name in names] or [self.ranking]
        return self.rows[front_rows(bench.ms[self.rows], *chosen)]

    def learn(self, bench: Bench, names: Sequence[str], accuracies: Array, count: int, seed: int) -> Rows:
        """Return the front of latency, scores, and accuracies predicted by a forest, and its training cells.

        Args:
            bench: the device.
            names: scores, from whose first fronts the evaluated cells are drawn.
            accuracies: accuracies of all cells, of which `count` are read.
            count: number of evaluations.
            seed: seed of the draw and the forest.
        """
        ms = bench.ms[self.rows]
        scores = [self.ranks[name] for name in names]
        candidates = leading(ms, scores, max(LAYERS, count))
        chosen = np.random.default_rng(seed).permutation(candidates)[:count]
        worth = -np.log(100.5 - accuracies[self.rows[chosen]])  # among the best cells, relative errors matter
        features = np.where(np.isfinite(self.features), self.features, FAR)
        expected, _ = forest(features[chosen], worth, features, TREES, seed)
        return self.rows[np.union1d(front_rows(ms, expected, *scores), chosen)]


# Further tables: each device by itself, and the correlation of multiply-adds with latencies.

Place = tuple[str, str]
"""A data set and a device."""
Judged = Mapping[str, tuple[float, int]]
"""rule → the share of the true front's hypervolume, and the number of chosen cells."""


def by_device(judged: Mapping[Place, Sequence[Judged]]) -> Table:
    """Return a row for each data set and device, ± the deviation over draws.

    >>> table = by_device({("cifar10", "phone"): [{"all": (1.0, 3)}, {"all": (0.5, 3)}]})
    >>> table.columns, table.rows[0][2].value
    (['data set', 'device', 'all'], 0.75)
    """
    rules = list(next(iter(judged.values()))[0])
    rows: list[list[Entry]] = []
    for (dataset, device), draws in judged.items():
        shares = np.array([[draw[rule][0] for rule in rules] for draw in draws])
        rows.append([dataset, device, *(Estimate(float(x.mean()), float(x.std())) for x in shares.T)])
    title = "Shares of the true front's hypervolume, by device"
    return Table("devices", title, ["data set", "device", *rules], rows)


def count_by_table(
    space: SearchSpace,
    network: Callable[..., nn.Module],
    image: tuple[int, int, int],
    cells: Sequence[Genotype],
) -> Array:
    """Return the multiply-adds of many cells, computed exactly from those of a few.

    Args:
        space: the space of the cells.
        network: builds the network of a genotype.
        image: (c, h, w).
        cells: all cells.

    Raises:
        InputError: multiply-adds are not a sum over operations in this space.
    """
    order = torch.randperm(len(cells), generator=torch.Generator().manual_seed(0)).tolist()
    counted = [cells[row] for row in order[: COUNTED + HELD_OUT]]
    macs_of = [float(cost(network(cell), image).macs) for cell in follow(counted, "networks")]
    table = fit_costs(space, counted, [{"macs": macs} for macs in macs_of])
    if not table.exact:
        raise InputError(
            "Multiply-adds must add up over operations, as in nasbench201", got=space.name, where="space"
        )
    macs = table.costs["macs"]
    hot = ({name: matrix.double() for name, matrix in space.one_hot(cell).items()} for cell in cells)
    return np.array([float(macs.of(weights)) for weights in hot])


def macs_table(macs: Array, benches: Mapping[Place, Bench]) -> Table:
    """Return Spearman's ρ of multiply-adds and latencies: a row for each device, a column for each data set.

    >>> bench = Bench(np.array([2.0, 1.0, np.nan]), np.ones(3), 20.0)
    >>> macs_table(np.array([1.0, 2.0, 3.0]), {("cifar10", "phone"): bench}).rows
    [['phone', 2, -1.0]]
    """
    datasets, devices = (list(dict.fromkeys(place[i] for place in benches)) for i in (0, 1))
    rows: list[list[Entry]] = []
    for device in devices:
        measured = [np.flatnonzero(~np.isnan(benches[d, device].ms)) for d in datasets]
        rho = [
            spearman(benches[d, device].ms[rows], macs[rows])
            for d, rows in zip(datasets, measured, strict=True)
        ]
        rows.append([device, len(measured[0]), *rho])
    title = "Multiply-adds are no latency: Spearman's ρ of the two"
    return Table("macs", title, ["device", "cells measured", *datasets], rows)


# How much of the true front of error and latency is found without reading an accuracy, or by reading a few.
#
# A few training-free scores are chosen on some devices and the benchmark's data set; the last table is of
# devices that were not used for the choice. Every cell is scored untrained and has a latency in a table.

RANDOM = (100, 300)
"""Numbers of cells that are drawn at random for comparison."""
Names = Annotated[Sequence[str], entries(1), DISTINCT]


@checked
@dataclass(frozen=True, kw_only=True)
class Front(ParallelStudy):
    """Shares of the true front's hypervolume, over draws of the candidate cells.

    Args:
        tables: file of latencies for each data set whose errors are used; one column per device.
        chosen_on: devices that the scores are chosen on.
        unseen: devices that are judged.
        metrics: the metrics to choose from.
        together: number of metrics in a front besides latency.
        ranking: metrics whose sum of log-ranks is one score.
        reference: error in percent below which a cell counts, by data set.
        evaluations: numbers of validation accuracies that are read.
        draws: number of draws of the candidates.
        cells: number of the table's cells that are scored, drawn at random; None: all.
        candidates: number of those in a draw; None: 95 %.
        images: number of images that cells are scored on.
        scores: CSV file of scores, shared by runs with the same settings; None: in the run's folder.
        seed: seed of all draws of cells.
        workers, backend: processes that score, see `ParallelStudy`.

    >>> Front(tables={"cifar10": "t.csv"}, chosen_on=["phone"], unseen=["phone"], reference={"cifar10": 20.0})
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: Devices must be in one part only, got 'phone' (in study)
    """

    tables: Mapping[str, str] | None = None
    chosen_on: Names
    unseen: Names
    metrics: MetricsChoice = "default"
    together: PositiveInt = 3
    ranking: MetricsChoice = "top"
    reference: Mapping[str, PositiveFloat]
    evaluations: Sequence[PositiveInt] = (20, 50)
    draws: Annotated[int, at_least(2)] = 10
    cells: Annotated[int, at_least(4)] | None = None
    candidates: Annotated[int, at_least(4)] | None = None
    images: Annotated[int, at_least(2)] = 32
    scores: str | None = None
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if shared := {*self.chosen_on} & {*self.unseen}:
            raise InputError("Devices must be in one part only", got=sorted(shared)[0], where="study")
        if not self.tables:
            raise InputError(
                "`tables` must have tables of latencies: {cifar10:…}", got="none", where="study.tables"
            )
        for name in self.tables:
            if name not in self.reference:
                where = f"study.reference.{name}"
                raise InputError("Each table needs an error", got="none", where=where)
        if self.together > len(named_metrics(self.metrics)):
            expected = f"There are only {len(named_metrics(self.metrics))} metrics"
            raise InputError(expected, got=self.together, where="study.together")

    def run(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        data: SearchData,
        benchmark: TabularBenchmark,
        folder: Path,
        accelerator: torch.device = CPU,
    ) -> Findings:
        """Score the cells, choose scores on some devices, and judge them on others."""
        tables = {name: LatencyTable(path, space, gaps=True) for name, path in (self.tables or {}).items()}
        cells = [space.parse(name) for name in next(iter(tables.values())).names]
        scored, draws = self._draw(len(cells))
        benches = self._benches(tables, space, benchmark, cells)
        accuracies = [benchmark.valid_accuracy(c, epochs=12) for c in cells] if self.evaluations else []
        found = self._score(space, network, data, [cells[row] for row in scored], folder, accelerator)
        scores = dict(zip(scored, found, strict=True))
        looks = [self._look(rows, cells, scores) for rows in draws]
        choice, names = self._choose(looks, benches, benchmark.dataset)
        judged = {
            place: [self._judge(n, look, bench, names, np.array(accuracies)) for n, look in enumerate(looks)]
            for place, bench in benches.items()
        }
        macs = macs_table(count_by_table(space, network, data.image, cells), benches)
        shares, numbers = self._shares(judged)
        return Findings([macs, choice, by_device(judged), shares], numbers=numbers)

    def _draw(self, count: int) -> tuple[list[int], list[Rows]]:
        """Return the cells that are scored, and the draws among them."""
        cells = count if self.cells is None else self.cells
        drawn = round(0.95 * cells) if self.candidates is None else self.candidates
        for name, number, most in (("cells", cells, count), ("candidates", drawn, cells)):
            if number > most:
                raise InputError(f"`{name}` must be at most {most:,}", got=number, where=f"study.{name}")
        order = torch.randperm(count, generator=torch.Generator().manual_seed(self.seed))
        scored = order[:cells].tolist()
        generators = [np.random.default_rng(self.seed + number) for number in range(self.draws)]
        return scored, [np.sort(one.choice(scored, drawn, replace=False)) for one in generators]

    def _score(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        data: SearchData,
        cells: Sequence[Genotype],
        folder: Path,
        device: torch.device,
    ) -> list[MetricValues]:
        batch = data.train.plain_images(self.images)
        path = folder / "scores.csv" if self.scores is None else Path(self.scores)
        metrics = {**named_metrics(self.metrics), **named_metrics(self.ranking)}
        options: dict[str, Any] = {"workers": self.workers, "backend": self.backend, "device": device}
        return score_pool(space, network, cells, batch, metrics, path=path, **options)

    def _look(self, rows: Rows, cells: Sequence[Genotype], scores: Mapping[int, MetricValues]) -> Look:
        drawn = rows.tolist()
        metrics, ranking = named_metrics(self.metrics), named_metrics(self.ranking)
        return Look(rows, [cells[row] for row in drawn], [scores[row] for row in drawn], metrics, ranking)

    def _benches(
        self,
        tables: Mapping[str, LatencyTable],
        space: SearchSpace,
        benchmark: TabularBenchmark,
        cells: Sequence[Genotype],
    ) -> dict[Place, Bench]:
        found = {}
        for name, table in tables.items():
            errors = np.array([100 - benchmark.column(name, cell) for cell in cells])
            for device, ms in table.choose([*self.chosen_on, *self.unseen]).items():
                column = np.array([ms.get(space.notation(cell), np.nan) for cell in cells])
                found[name, device] = bench = Bench(column, errors, self.reference[name])
                if not bench.true_volume:
                    expected = (
                        f"There must be cells faster than the slowest with errors below {bench.reference:g}"
                    )
                    raise InputError(expected, got=f"none on {device}", where=f"study.reference.{name}")
        return found

    def _choose(
        self, looks: Sequence[Look], benches: Mapping[Place, Bench], dataset: str
    ) -> tuple[Table, tuple[str, ...]]:
        """Choose the metrics whose front has the largest share on the devices `chosen_on`."""
        chosen_on = [benches[dataset, device] for device in self.chosen_on]
        worth = {
            names: float(np.mean([b.share(look.front(b, names)) for b in chosen_on for look in looks]))
            for names in combinations(named_metrics(self.metrics), self.together)
        }
        rows: list[list[Entry]] = [[", ".join(names), value] for names, value in worth.items()]
        best = max(worth, key=lambda names: worth[names])
        title = f"Scores together, chosen on {', '.join(self.chosen_on)} and errors on {dataset}"
        return Table("scores", title, ["front of latency and", "share of the true front"], rows), best

    def _judge(
        self, number: int, look: Look, bench: Bench, names: Sequence[str], accuracies: Array
    ) -> Judged:
        """Return the share of each rule, and the number of cells that it chooses."""
        seed = self.seed + number
        drawn = np.random.default_rng(seed).permutation(bench.measured(look.rows))
        chosen = {
            **{f"{count} random cells": drawn[:count] for count in RANDOM},
            "latency and the ranking": look.front(bench),
            ", ".join(["latency", *names]): look.front(bench, names),
        }
        for count in self.evaluations:
            chosen[f"with {count} evaluations"] = look.learn(bench, names, accuracies, count, seed)
        return {rule: (bench.share(rows), len(rows)) for rule, rows in chosen.items()}

    def _shares(self, judged: Mapping[Place, Sequence[Judged]]) -> tuple[Table, dict[str, float]]:
        """Return means over the unseen devices, and their deviation over draws."""
        datasets = list(self.tables or {})
        rows: list[list[Entry]] = []
        numbers: dict[str, float] = {}
        for rule in next(iter(judged.values()))[0]:
            shares = np.array(
                [[[draw[rule] for draw in judged[d, device]] for device in self.unseen] for d in datasets]
            )  # (data sets, devices, draws, 2)
            means = shares[..., 0].mean(axis=1)  # (data sets, draws)
            spread = [Estimate(float(row.mean()), float(row.std())) for row in means]
            rows.append([rule, float(shares[..., 1].mean()), *spread])
            numbers |= {f"{name}/{rule}": one.value for name, one in zip(datasets, spread, strict=True)}
        note = (
            f"Shares of the true front's hypervolume of error and latency, below errors of "
            f"{', '.join(f'{self.reference[name]:g} % ({name})' for name in datasets)} and the slowest cell; "
            f"means over devices that nothing was chosen on, ± their deviation over {self.draws} draws"
        )
        title = f"Fronts on {', '.join(self.unseen)}"
        return Table("front", title, ["rule", "cells chosen", *datasets], rows, note), numbers
