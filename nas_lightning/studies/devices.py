"""How well a few measured cells predict the latencies of a new device (as HELP asks, arXiv:2106.08630).

A table of latencies is split by device: the known ones are the prior, settings are chosen on the devices of
`chosen_on`, and the first table is of unseen devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import nn

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.counts import cost
from nas_lightning.objectives.latency import (
    Array,
    Features,
    KnownDevices,
    LatencyTable,
    Prior,
    Regression,
    indices_to_measure,
)
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.studies.base import Study
from nas_lightning.studies.scoring import spearman
from nas_lightning.utils.progress import follow
from nas_lightning.utils.tables import Entry, Estimate, Table
from nas_lightning.validation import DISTINCT, PositiveInt, Seed, at_least, checked, entries

NOISES, OWN_VARIANCES = (0.1, 0.2, 0.3, 0.5), (0.1, 0.4, 1.0)
CHOICES = ("chosen, devices known", "random, devices known", "random, none known")
COUNTED = 200  # cells whose multiply-adds are counted; each takes building a network
Names = Annotated[Sequence[str], entries(1), DISTINCT]


class Prediction(NamedTuple):
    """The quality of the predictions for one device.

    Args:
        rho: Spearman's ρ with the latencies.
        error: median relative error.
        within: share of cells within two standard deviations.

    >>> Prediction(0.9, error=0.1, within=0.95).rho
    0.9
    """

    rho: float
    error: float
    within: float


class Devices(Study):
    """Rank correlations of predicted and measured latencies, over draws of the measured cells.

    Args:
        table: file of latencies of a space's cells, one column per device.
        known: devices whose latencies are all known.
        chosen_on: devices that settings are chosen on.
        unseen: devices that predictions are judged on.
        measured: numbers of cells that are measured on a new device.
        draws: number of draws of candidates to measure.
        candidates: number of cells of a draw, of which those to measure are chosen.
        cells: number of cells that predictions are judged on.
        seed: seed of all draws.

    >>> Devices(table="latency.csv", known=["phone"], chosen_on=["board"], unseen=["phone"])
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: Devices must be in one part only, got 'phone' (in study)
    """

    @checked
    def __init__(
        self,
        *,
        table: str,
        known: Names,
        chosen_on: Names,
        unseen: Names,
        measured: Annotated[Sequence[Annotated[int, at_least(3)]], entries(1)] = (10, 50),
        draws: PositiveInt = 10,
        candidates: PositiveInt = 400,
        cells: Annotated[int, at_least(4)] = 1000,
        seed: Seed = 0,
    ) -> None:
        if shared := {*known} & {*chosen_on} | {*known} & {*unseen} | {*chosen_on} & {*unseen}:
            raise InputError("Devices must be in one part only", got=sorted(shared)[0], where="study")
        if max(measured) > candidates:
            raise InputError(
                "`candidates` must be at least `judged`", got=candidates, where="study.candidates"
            )
        self.table, self.known, self.chosen_on = table, list(known), list(chosen_on)
        self.unseen, self.measured, self.draws = list(unseen), list(measured), draws
        self.candidates, self.cells, self.seed = candidates, cells, seed

    def run(self, space: SearchSpace, network: Callable[..., nn.Module], data: SearchData) -> Findings:
        """Choose settings on some devices, and judge them on others."""
        table = LatencyTable(self.table, space)
        known = KnownDevices(table.choose(self.known))
        valid, unseen = table.choose(self.chosen_on), table.choose(self.unseen)
        cells = _draw(table.names, self.cells, self.seed, space)
        draws = [_draw(table.names, self.candidates, self.seed + 1 + d, space) for d in range(self.draws)]
        bench = Bench(space, known, cells, draws)
        counted = cells[:COUNTED]
        macs = _macs(counted, network, data.image)
        by_macs = [spearman(_latencies(latency, counted, space), macs) for latency in unseen.values()]
        judged, numbers = self._judge(bench, unseen, by_macs)
        return Findings([judged, self._choose(bench, valid)], numbers=numbers)

    def _judge(
        self, bench: Bench, devices: Mapping[str, Mapping[str, float]], by_macs: Sequence[float]
    ) -> tuple[Table, dict[str, float]]:
        rows: list[list[Entry]] = [["multiply-adds", 0, *by_macs, float(np.mean(by_macs)), None, None]]
        numbers = {}
        for count in self.measured:
            for choice in CHOICES:
                found = bench.predict(devices, count, choice, Prior())
                rho = np.array([[one.rho for one in draw] for draw in found])  # (draws, devices)
                mean = Estimate(float(rho.mean()), float(rho.mean(axis=1).std()))
                rest = [float(np.mean([p[i] for draw in found for p in draw])) for i in (1, 2)]
                spread = [Estimate(float(x.mean()), float(x.std())) for x in rho.T]
                rows.append([choice, count, *spread, mean, *rest])
                if choice == CHOICES[0]:
                    numbers[f"rho_{count}"] = mean.value
        columns = ["cells to measure", "of them", *devices, "mean ρ", "median error", "within 2 σ"]
        note = (
            f"Spearman's ρ on {len(bench.cells):,} cells, ± its deviation over {len(bench.draws)} draws of "
            f"{self.candidates} candidates; multiply-adds of {min(COUNTED, self.cells)}. Errors are shares"
        )
        title = f"Latencies on devices that were never seen, {len(self.known)} known"
        return Table("devices", title, columns, rows, note), numbers

    def _choose(self, bench: Bench, devices: Mapping[str, Mapping[str, float]]) -> Table:
        rows: list[list[Entry]] = []
        for noise in NOISES:
            for variance in OWN_VARIANCES:
                prior = Prior(noise, variance)
                found = bench.predict(devices, self.measured[0], CHOICES[0], prior)
                rho = np.array([[one.rho for one in draw] for draw in found]).mean(axis=1)
                mark = "the default" if prior == Prior() else ""
                rows.append([noise, variance, Estimate(float(rho.mean()), float(rho.std())), mark])
        title = f"The prior, chosen on {', '.join(devices)}: {self.measured[0]} cells"
        return Table("prior", title, ["σ", "variance of the counts' part", "mean ρ", ""], rows)


class Bench(NamedTuple):
    """Cells and known devices that predictions are made and judged with.

    Args:
        space: the space of the cells.
        known: the known devices.
        cells: cells that predictions are judged on.
        draws: candidates to measure, in random order.

    >>> Bench._fields
    ('space', 'known', 'cells', 'draws')
    """

    space: SearchSpace
    known: KnownDevices
    cells: Sequence[Genotype]
    draws: Sequence[Sequence[Genotype]]

    def predict(
        self, devices: Mapping[str, Mapping[str, float]], count: int, choice: str, prior: Prior
    ) -> list[list[Prediction]]:
        """Return a prediction for each device, for every draw."""
        features = Features(self.space, None if choice == CHOICES[2] else self.known, prior)
        judged = features.rows(self.cells)
        truths = [_latencies(latency, self.cells, self.space) for latency in devices.values()]
        found = []
        for draw in follow(self.draws, "draws"):
            rows = features.rows(draw)
            chosen = indices_to_measure(features, rows, count) if choice == CHOICES[0] else range(count)
            cells = [draw[index] for index in chosen]
            measured = [_latencies(latency, cells, self.space) for latency in devices.values()]
            models = [Regression(rows[list(chosen)], ms, prior.noise) for ms in measured]
            pairs = zip(models, truths, strict=True)
            found.append([_judge_prediction(*model.predict(judged), truth) for model, truth in pairs])
        return found


def _judge_prediction(ms: Array, error: Array, truth: Array) -> Prediction:
    off = np.abs(ms - truth)
    return Prediction(spearman(ms, truth), float(np.median(off / truth)), float((off < 2 * error).mean()))


def _latencies(latency: Mapping[str, float], genotypes: Sequence[Genotype], space: SearchSpace) -> Array:
    return np.array([latency[space.notation(genotype)] for genotype in genotypes])


def _macs(
    genotypes: Sequence[Genotype], network: Callable[..., nn.Module], image: tuple[int, int, int]
) -> Array:
    return np.array([float(cost(network(genotype), image).macs) for genotype in genotypes])


def _draw(names: Sequence[str], count: int, seed: int, space: SearchSpace) -> list[Genotype]:
    if count > len(names):
        raise InputError(f"The table has only {len(names)} cells", got=count, where="study")
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed))
    return [space.parse(names[row]) for row in order[:count].tolist()]
