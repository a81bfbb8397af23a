"""How published cells and variants of them converge (Y. Shu's thesis, 2022, 4.3.1; figures 4.3–4.5, 4.10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from nas_lightning.checks import DISTINCT, NonNegativeInt, PositiveFloat, PositiveInt, Seed, checked, entries
from nas_lightning.cost.counts import count_parameters
from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.darts.base import TwoCellSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.studies.base import Study
from nas_lightning.studies.figures import draw_bars, overlay
from nas_lightning.studies.statistics import Values, estimate, spearman
from nas_lightning.studies.theory.convergence import Case, train_cases
from nas_lightning.studies.theory.topology import depth, width
from nas_lightning.studies.theory.variants import random_connections, random_operations
from nas_lightning.tables import Entry, Table
from nas_lightning.tasks.multi_class import task_of

FILE = "curves.csv"
_NOTE = (
    "Scores (%), of classes accuracies, of images that no training saw: after the last epoch, and the mean "
    "over epochs, which is more for the sooner of two that end alike; nothing where the training diverged"
)
_VERDICT = (
    "Spearman's ρ over cells and their variants with random connections, ± the bootstrap's standard error. "
    "The thesis finds that wide and shallow cells converge faster"
)


class Variant(NamedTuple):
    """A cell to train.

    Args:
        name: of its lines in tables.
        genotype: of both kinds of cells.
        same_operations: whether it differs from a published one in its connections at most.
    """

    name: str
    genotype: Genotype
    same_operations: bool

    @property
    def shape(self) -> tuple[float, int]:
        """Width and depth of the normal cell."""
        return float(width(self.genotype["normal"])), depth(self.genotype["normal"])


Curves = dict[tuple[str, float], Values]
"""Scores after each epoch, by variant and learning rate."""


@checked
class CellVariants(Study):
    """Cells and their variants, trained alike at several learning rates without regularisation.

    Args:
        cells: published cells of DARTS' notation, by name.
        connections: variants of each with random connections.
        operations: variants of each with random operations.
        lrs: learning rates of the first epoch; a cosine takes them to 0.
        epochs: of each training, on the weights' side of the images.
        seed: of variants, weights and order.

    >>> cell = [("sep_conv_3x3", 0), ("skip_connect", 1)] * 4
    >>> mine = {"normal": cell, "normal_concat": [2, 3, 4, 5], "reduce": cell, "reduce_concat": [2, 3, 4, 5]}
    >>> from nas_lightning.spaces import DartsSpace
    >>> study = CellVariants(cells={"mine": mine}, connections=2, operations=1)
    >>> [variant.name for variant in study.variants(DartsSpace())]
    ['mine', 'mine, connections 1', 'mine, connections 2', 'mine, operations 1']
    """

    def __init__(
        self,
        *,
        cells: Mapping[str, Mapping[str, Any]],
        connections: NonNegativeInt = 4,
        operations: NonNegativeInt = 2,
        lrs: Annotated[Sequence[PositiveFloat], entries(1), DISTINCT] = (0.0025, 0.025, 0.25),
        epochs: PositiveInt = 10,
        seed: Seed = 0,
    ) -> None:
        self.cells = {name: dict(given) for name, given in cells.items()}
        self.connections, self.operations = connections, operations
        self.lrs, self.epochs, self.seed = list(lrs), epochs, seed

    def variants(self, space: TwoCellSpace) -> Iterator[Variant]:
        """Each cell as published, then its variants; of those with other connections the narrowest first."""
        for name, given in self.cells.items():
            yield Variant(name, space.parse(given), True)
            seeds = range(self.seed + 1, self.seed + 1 + self.connections)
            rewired = [Variant("", space.parse(random_connections(given, seed)), True) for seed in seeds]
            rewired.sort(key=lambda variant: (variant.shape[0], -variant.shape[1]))
            for number, variant in enumerate(rewired, 1):
                yield variant._replace(name=f"{name}, connections {number}")
            for number in range(1, self.operations + 1):
                genotype = space.parse(random_operations(given, self.seed + number))
                yield Variant(f"{name}, operations {number}", genotype, False)

    def run(self, space: TwoCellSpace, network: NetworkFactory, data: SearchData, folder: Path) -> Findings:
        """Train what is not in the file yet; tables and figures of all."""
        variants = list(self.variants(space))
        cases = [Case(v.name, v.genotype, lr) for v in variants for lr in self.lrs]
        found = train_cases(cases, network, data, folder / FILE, epochs=self.epochs, seed=self.seed)
        curves = {(case.network, case.lr): found[case.name].score for case in cases}
        sizes = [count_parameters(network(variant.genotype)) for variant in variants]
        what, score = f"{self.epochs} epochs on {data.name}", task_of(data).score
        tables = [self._results(variants, sizes, curves, what), self._verdict(variants, curves, what)]
        panels = {f"lr {lr:g}": {v.name: curves[v.name, lr] for v in variants} for lr in self.lrs}
        ends = {title: {name: c[-1] for name, c in lines.items()} for title, lines in panels.items()}
        figures = {"convergence": overlay(panels, f"{score} (%)", "epoch")}
        figures["accuracies"] = draw_bars(ends, f"{score} after the last epoch (%)")
        return Findings(tables, figures)

    def _results(self, variants: Sequence[Variant], sizes: Sequence[int], curves: Curves, what: str) -> Table:
        columns = ["cell", "normal width", "normal depth", "params"]
        columns += [f"{kind}, lr {lr:g}" for lr in self.lrs for kind in ("last", "mean")]
        rows: list[list[Entry]] = []
        for variant, size in zip(variants, sizes, strict=True):
            found = [curves[variant.name, lr] for lr in self.lrs]
            numbers = [_known(value) for curve in found for value in (curve[-1], curve.mean())]
            rows.append([variant.name, *variant.shape, size, *numbers])
        return Table("variants", f"Cells and their variants trained alike: {what}", columns, rows, _NOTE)

    def _verdict(self, variants: Sequence[Variant], curves: Curves, what: str) -> Table:
        """Whether the wide and shallow get there sooner; a diverged one is the last."""
        rewired = [variant for variant in variants if variant.same_operations]
        rows: list[list[Entry]] = []
        for lr in self.lrs:
            speed = np.nan_to_num([curves[variant.name, lr].mean() for variant in rewired], nan=-np.inf)
            shapes = [[float(v.shape[side]) for v in rewired] for side in (0, 1)]
            found = [estimate(spearman, shape, speed, seed=self.seed) for shape in shapes]
            rows.append([f"{lr:g}", len(rewired), *found])
        columns = ["lr", "cells", "width and mean score", "depth and mean score"]
        return Table("verdict", f"Shape and speed of convergence: {what}", columns, rows, _VERDICT)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
