"""Loss contours and gradient variance of cells (Y. Shu's thesis, 2022, section 4.3.2; figures 4.6 to 4.8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import nn

from nas_lightning.backends import Backend, check_backend, spread
from nas_lightning.checks import (
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seed,
    above,
    at_least,
    at_most,
    checked,
    entries,
)
from nas_lightning.cost.counts import count_parameters
from nas_lightning.data import SearchData
from nas_lightning.data.batches import Batch
from nas_lightning.machine import Processes
from nas_lightning.metrics.pool.file import PoolFile
from nas_lightning.progress import follow
from nas_lightning.randomness import seed_of_name
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.darts.base import TwoCellSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.studies.base import Study
from nas_lightning.studies.cell_variants import CellVariants, Variant
from nas_lightning.studies.statistics import Values, estimate, mean_estimate, spearman
from nas_lightning.studies.surfaces import draw_contours, draw_surfaces
from nas_lightning.studies.theory.convergence import train_curve
from nas_lightning.studies.theory.plane import PlanePoint, PlaneWork
from nas_lightning.studies.training import train_once
from nas_lightning.tables import Entry, Table

KINDS = PlanePoint._fields
_NOTE = (
    "log₁₀ of loss and √variance: at the centre, and the mean over a plane, of planes ± the standard error, "
    "where it is a number. Both are of images that no training saw"
)
_VERDICT = (
    "Spearman's ρ over cells, ± the bootstrap's standard error. The thesis finds smoother losses and smaller "
    "variances with wider and shallower cells"
)


@checked
class Landscape(Study):
    """Loss and gradient variance around the trained weights of cells and of their random variants.

    Args:
        cells: published cells of DARTS' notation, by name.
        connections: variants of each with random connections.
        points: on each side of the plane; an odd number, so that one is the centre.
        extent: of the plane: α and β reach from −extent to extent.
        planes: pairs of directions; pictures are of the first.
        images: that loss and variance are of.
        lr, epochs: of the training without regularisation, on the weights' side.
        workers: processes.
        backend: whose, see `nas_lightning.backends.spread`.
        seed: of variants, weights, order and directions.

    >>> cell = [("sep_conv_3x3", 0), ("skip_connect", 1)] * 4
    >>> mine = {"normal": cell, "normal_concat": [2, 3, 4, 5], "reduce": cell, "reduce_concat": [2, 3, 4, 5]}
    >>> study = Landscape(cells={"mine": mine}, points=5, extent=0.5)
    >>> study.ticks.tolist()
    [-0.5, -0.25, 0.0, 0.25, 0.5]
    """

    def __init__(
        self,
        *,
        cells: Annotated[Mapping[str, Mapping[str, Any]], entries(1)],
        connections: NonNegativeInt = 4,
        points: Annotated[int, at_least(1)] = 11,
        extent: Annotated[float, above(0), at_most(1000)] = 1.0,
        planes: PositiveInt = 2,
        images: Annotated[int, at_least(2)] = 128,
        lr: PositiveFloat = 0.025,
        epochs: PositiveInt = 10,
        workers: Processes = 1,
        backend: Backend = "processes",
        seed: Seed = 0,
    ) -> None:
        self.source = CellVariants(cells=cells, connections=connections, operations=0, seed=seed)
        self.ticks = np.linspace(-extent, extent, points + 1 - points % 2)
        self.planes, self.images, self.lr, self.epochs = planes, images, lr, epochs
        check_backend(backend, "study.backend")
        self.workers, self.backend, self.seed = workers, backend, seed

    def run(self, space: TwoCellSpace, network: NetworkFactory, data: SearchData, folder: Path) -> Findings:
        """Train what has no weights in the folder yet, and judge the points that are not in its file."""
        variants = list(self.source.variants(space))
        batch = data.valid.plain_images(self.images)
        grids = {v.name: self._grids(v, network, data, batch, folder) for v in variants}
        what = f"{len(self.ticks)}² points, {len(batch[1])} images of {data.name}"
        figures = {}
        for number, (kind, label) in enumerate(zip(KINDS, ("loss", "√Var[∇f]"), strict=True)):
            of = {name: values[0, :, :, number] for name, values in grids.items()}
            figures[f"{kind}_contours"] = draw_contours(of, self.ticks, label)
            figures[f"{kind}_surfaces"] = draw_surfaces(of, self.ticks, label)
        tables = [
            _cells(variants, grids, what),
            self._verdict(variants, grids, what),
            self._points(grids, what),
        ]
        return Findings(tables, figures)

    def _grids(
        self, variant: Variant, network: NetworkFactory, data: SearchData, batch: Batch, folder: Path
    ) -> Values:
        """(planes, α, β, kinds) of a cell."""
        places = [
            (plane, *pair) for plane in range(self.planes) for pair in product(self.ticks.tolist(), repeat=2)
        ]
        names = {f"{plane} {a:g} {b:g}": (plane, a, b) for plane, a, b in places}
        settings = {
            "cell": str(variant.genotype),
            "images": len(batch[1]),
            "epochs": self.epochs,
            "lr": self.lr,
        }
        settings |= {"seed": self.seed, "parameters": count_parameters(network(variant.genotype))}
        stem = variant.name.replace(", ", "_").replace(" ", "_")
        path = folder / "points" / f"{stem}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        file = PoolFile(path, KINDS, settings)
        rows = file.read()
        todo = [(name, place) for name, place in names.items() if name not in rows]
        if todo:
            trained = self._train(variant, network, data, path.with_suffix(".pt"))
            work = PlaneWork(trained, batch, self.seed)
            done = spread(work, todo, workers=self.workers, backend=self.backend)
            started = len(names) - len(todo)
            for name, point in follow(done, f"points of {variant.name}", total=len(names), done=started):
                rows[name] = point._asdict()
                file.append(name, rows[name])
        side = len(self.ticks)
        values = np.array([[rows[name][kind] for kind in KINDS] for name in names])
        return values.reshape(self.planes, side, side, len(KINDS))

    def _train(self, variant: Variant, network: NetworkFactory, data: SearchData, path: Path) -> nn.Module:
        """The network with the weights of the file, or trained, and then they are there."""

        def train(net: nn.Module) -> nn.Module:
            train_curve(net, data, lr=self.lr, epochs=self.epochs, seed=self.seed)
            return net

        with torch.random.fork_rng():
            torch.manual_seed(seed_of_name(self.seed, variant.name))
            return train_once(network(variant.genotype), train, path, variant.name)

    def _verdict(self, variants: Sequence[Variant], grids: Mapping[str, Values], what: str) -> Table:
        rows: list[list[Entry]] = []
        for number, kind in enumerate(("loss", "√Var[∇f]")):
            means = np.array([_over_planes(grids[v.name])[:, number].mean() for v in variants])
            shapes = [[float(v.shape[side]) for v in variants] for side in (0, 1)]
            rows.append(
                [kind, len(variants), *(estimate(spearman, s, means, seed=self.seed) for s in shapes)]
            )
        columns = ["mean log₁₀ of", "cells", "with width", "with depth"]
        return Table("verdict", f"Shape of cells and of their landscape: {what}", columns, rows, _VERDICT)

    def _points(self, grids: Mapping[str, Values], what: str) -> Table:
        places = list(product(range(self.planes), self.ticks.tolist(), self.ticks.tolist()))
        rows = [
            [name, *place, *map(float, point)]
            for name, values in grids.items()
            for place, point in zip(places, values.reshape(-1, len(KINDS)), strict=True)
        ]
        columns = ["cell", "plane", "α", "β", "loss", "√Var[∇f]"]
        return Table("points", f"Loss and gradient variance: {what}", columns, rows, long=True)


def _over_planes(values: Values) -> Values:
    """(planes, kinds): the mean of log₁₀ over each plane, of the points that have one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log10(values).reshape(len(values), -1, values.shape[-1])
    return np.ma.masked_invalid(logs).mean(axis=1).filled(np.nan)


def _cells(variants: Sequence[Variant], grids: Mapping[str, Values], what: str) -> Table:
    rows: list[list[Entry]] = []
    for variant in variants:
        values = grids[variant.name]
        middle = values.shape[1] // 2
        centre, means = values[0, middle, middle], _over_planes(values)
        found = [
            entry
            for k in range(len(KINDS))
            for entry in (float(np.log10(centre[k])), mean_estimate(means[:, k]))
        ]
        rows.append([variant.name, *variant.shape, *found])
    columns = ["cell", "normal width", "normal depth", "loss at the centre", "loss"]
    columns += ["√Var[∇f] at the centre", "√Var[∇f]"]
    return Table("cells", f"Loss and gradient variance around trained weights: {what}", columns, rows, _NOTE)
