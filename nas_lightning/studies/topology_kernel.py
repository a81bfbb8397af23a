"""Kernels of cells from wide to deep, and theorem 7.4 (Y. Shu's thesis, 2022, section 7.3.5, table 7.2)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from nas_lightning.backends import Backend, check_backend
from nas_lightning.checks import PositiveInt, at_least, checked, entries
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Genotype
from nas_lightning.machine import Processes
from nas_lightning.metrics import NTKCondition, NTKTrace
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.pool.scoring import score_pool
from nas_lightning.randomness import generator
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.darts.base import TwoCellSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.studies.base import Study
from nas_lightning.studies.statistics import mean_estimate
from nas_lightning.studies.theory.linear_kernels import deep_kernel, orthonormal, wide_kernel
from nas_lightning.studies.theory.topology import depth, width
from nas_lightning.studies.theory.variants import adapted, deepest
from nas_lightning.tables import Entry, Table

METRICS: Mapping[str, Metric] = {
    "M_Trace": NTKTrace(),
    "κ": NTKCondition(),
    "M_Trace, whole batch": NTKTrace(coupled=True),
    "κ, whole batch": NTKCondition(coupled=True),
}
_NOTE = (
    "Means over seeds of the weights ± their standard errors. The first two are of the kernel with each "
    "image's row alone, the others of the kernel of the whole batch's forward pass (J Jᵀ under batch norm)"
)
_LINEAR = "Wide: the largest distance from L n I, over L n. Deep: the mean trace over m L n^L, and κ's median"


@checked
class TopologyKernel(Study):
    """Published cells, their widest and their deepest form; and theorem 7.4 on linear networks.

    Args:
        cells: of DARTS' notation, by name.
        rewired: whose operations the cells WIDE and DEEP have.
        seeds: of the weights.
        images: that the kernels are of.
        layers: L, of the linear networks.
        width: n, of the linear networks.
        draws: of their weights.
        workers: processes that score.
        backend: whose processes, see `nas_lightning.backends.spread`.

    >>> cell = [("sep_conv_3x3", 0), ("skip_connect", 1)] * 4
    >>> mine = {"normal": cell, "normal_concat": [2, 3, 4, 5], "reduce": cell, "reduce_concat": [2, 3, 4, 5]}
    >>> from nas_lightning.spaces import DartsSpace
    >>> study = TopologyKernel(cells={"mine": mine}, rewired="mine")
    >>> [(name, depth(g["normal"])) for name, g in study.genotypes(DartsSpace()).items()]
    [('mine', 2), ('WIDE', 2), ('DEEP', 5)]
    """

    def __init__(
        self,
        *,
        cells: Annotated[Mapping[str, Mapping[str, Any]], entries(1)],
        rewired: str = "darts_v2",
        seeds: PositiveInt = 10,
        images: Annotated[int, at_least(2)] = 32,
        layers: PositiveInt = 3,
        width: Annotated[int, at_least(2)] = 8,
        draws: PositiveInt = 3000,
        workers: Processes = 1,
        backend: Backend = "processes",
    ) -> None:
        self.cells = {name: dict(given) for name, given in cells.items()}
        if rewired not in self.cells:
            expected = f"expected one of the cells ({near_match(rewired, self.cells)})"
            raise InputError(expected, got=rewired, where="study.rewired")
        self.rewired, self.seeds, self.images, self.workers = rewired, seeds, images, workers
        check_backend(backend, "study.backend")
        self.backend = backend
        self.layers, self.width, self.draws = layers, width, draws

    def genotypes(self, space: TwoCellSpace) -> dict[str, Genotype]:
        """The cells as published, then WIDE and DEEP."""
        of, forms = self.cells[self.rewired], {"WIDE": adapted, "DEEP": deepest}
        return {
            **{name: space.parse(given) for name, given in self.cells.items()},
            **{name: space.parse(form(of)) for name, form in forms.items()},
        }

    def run(self, space: TwoCellSpace, network: NetworkFactory, data: SearchData, folder: Path) -> Findings:
        """Score every cell with each seed, and draw linear networks."""
        genotypes = self.genotypes(space)
        x, y = data.train.plain_images(self.images)
        found = []
        for seed in range(self.seeds):
            path = folder / "scores" / f"{seed}.csv"
            options: dict[str, Any] = {"path": path, "seed": seed}
            options |= {"workers": self.workers, "backend": self.backend}
            found.append(score_pool(space, network, genotypes.values(), (x, y), METRICS, **options))
        rows: list[list[Entry]] = []
        for number, (name, genotype) in enumerate(genotypes.items()):
            shape = float(width(genotype["normal"])), depth(genotype["normal"])
            values = [mean_estimate([scores[number][metric] for scores in found]) for metric in METRICS]
            rows.append([name, *shape, *values])
        what = f"{self.seeds} seeds, {self.images} images of {data.name}"
        columns = ["cell", "normal width", "normal depth", *METRICS]
        kernels = Table("kernels", f"Kernels of cells from wide to deep: {what}", columns, rows, _NOTE)
        return Findings([kernels, self._linear()])

    def _linear(self) -> Table:
        """Theorem 7.4, of which the wide part holds for every draw and the deep part for their mean."""
        L, n, random = self.layers, self.width, generator(0)
        x = orthonormal(n, n, random)
        traces, conditions, distance = [], [], 0.0
        for _ in range(self.draws):
            W = torch.randn(L, n, n, dtype=torch.float64, generator=random)
            wide, deep = wide_kernel(W, x), deep_kernel(W, x)
            distance = max(distance, float((wide / (L * n) - torch.eye(n)).abs().max()))
            eigenvalues = torch.linalg.eigvalsh(deep)
            traces.append(float(eigenvalues.sum()) / (n * L * n**L))
            conditions.append(float(eigenvalues[-1] / eigenvalues[0].clamp_min(1e-300)))
        rows: list[list[Entry]] = [["wide", distance, 1.0]]
        rows.append(["deep", mean_estimate(traces), float(np.median(conditions))])
        title = f"Theorem 7.4: L = {L}, n = {n}, {self.draws:,} draws"
        return Table("linear", title, ["network", "against the theorem", "κ"], rows, _LINEAR)
