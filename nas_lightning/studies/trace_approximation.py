"""The kernel's trace norm against what NASI puts in its place (Y. Shu's thesis, 2022, table 6.7).

‖Θ₀‖_tr = Σ_x ‖∇_θ f(x)‖²_F  ≈  Σ_x ‖∇_θ L_x‖² (6.6)  ≈  ‖b⁻¹ Σ_{x ≤ b} ∇_θ L_x‖² (6.7)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np

from nas_lightning.backends import Backend, check_backend
from nas_lightning.checks import DISTINCT, PositiveInt, Seed, at_least, checked, entries
from nas_lightning.data import SearchData
from nas_lightning.machine import Processes
from nas_lightning.metrics import GradNorm, NTKTrace
from nas_lightning.metrics.sample_gradients import SampleGradNorm
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.studies.base import Study
from nas_lightning.studies.figures import against
from nas_lightning.studies.pools import MAIN, Pool, Setting, draw_genotypes
from nas_lightning.studies.settings import batch_sizes
from nas_lightning.studies.statistics import Statistic, Values, estimate, pearson, spearman
from nas_lightning.tables import Entry, Table

_EXACT = {"exact": NTKTrace(output="all"), "sum": SampleGradNorm()}
_BATCH = {"norm": GradNorm(per_layer=False)}
_NOTE = (
    "± the bootstrap's standard error. The exact trace is that of all outputs; rows of the kernel are what "
    "flows through each image's activations"
)


@checked
class TraceApproximation(Study):
    """The trace norm of random architectures' kernels, and its approximations by gradients of the loss.

    Args:
        spaces: whose architectures are drawn, by name.
        sizes: of the networks.
        architectures: of each space.
        batch_sizes: b of the mini-batches; the trace is of as many images as the data set's batch has.
        resamples: of the bootstrap.
        workers: processes that score.
        backend: whose processes, see `nas_lightning.backends.spread`.
        seed: of the architectures.

    >>> from nas_lightning.spaces import NasBench201
    >>> study = TraceApproximation(spaces={"NB201": NasBench201()}, batch_sizes=[8, 4])
    >>> study.batch_sizes, list(study.wants())
    ([4, 8], ['data', 'folder'])
    """

    def __init__(
        self,
        *,
        spaces: Annotated[Mapping[str, SearchSpace], entries(1)],
        sizes: Mapping[str, int] = MappingProxyType({"channels": 8, "cells": 1}),
        architectures: Annotated[int, at_least(4)] = 60,
        batch_sizes: Annotated[Sequence[Annotated[int, at_least(2)]], entries(1), DISTINCT] = (
            *(4, 8, 16, 32),
            *(64, 128),
        ),
        resamples: PositiveInt = 200,
        workers: Processes = 1,
        backend: Backend = "processes",
        seed: Seed = 0,
    ) -> None:
        self.spaces, self.sizes = dict(spaces), dict(sizes)
        self.architectures, self.batch_sizes = architectures, sorted(batch_sizes)
        self.resamples, self.workers, self.seed = resamples, workers, seed
        check_backend(backend, "study.backend")
        self.backend = backend

    def run(self, data: SearchData, folder: Path) -> Findings:
        """Score each space's architectures, and correlate the approximations with the trace."""
        traces = {name: self._traces(name, space, data, folder) for name, space in self.spaces.items()}
        kinds: dict[str, Statistic] = {"pearson": pearson, "spearman": spearman}
        what = f"{self.architectures} architectures, {data.batch_size} images of {data.name}"
        tables = [self._table(name, statistic, traces, what) for name, statistic in kinds.items()]
        points = {
            f"{name}, {kind}": (of["exact"], of[kind])
            for name, of in traces.items()
            for kind in (f"b = {self.batch_sizes[-1]}", "sum")
        }
        figure = against(points, "trace of the kernel", "approximation")
        return Findings(tables, {"approximations": figure})

    def _traces(self, name: str, space: SearchSpace, data: SearchData, folder: Path) -> dict[str, Values]:
        """The trace and its approximations, (architectures,) each."""
        sizes: dict[str, Any] = {"in_channels": data.image[0], "num_classes": data.num_classes, **self.sizes}
        genotypes = draw_genotypes(space, self.architectures, self.seed)
        main = Setting(partial(space.network, **sizes), data.train_batches(1)[0])
        varied = batch_sizes(main, data, self.batch_sizes)
        files, by = folder / "scores" / name, (self.workers, self.backend)
        exact = Pool(space, genotypes, _EXACT, files / "trace", *by)
        parts = Pool(space, genotypes, _BATCH, files / "batches", *by)
        norms = exact.score_main(main)
        scores = parts.score({MAIN: main, **varied.settings})
        batches = {f"b = {size}": _squares(scores[pool]["norm"]) for size, pool in varied.pools.items()}
        wanted = {f"b = {size}": batches[f"b = {size}"] for size in self.batch_sizes}
        return {"exact": _squares(norms["exact"]), **wanted, "sum": _squares(norms["sum"])}

    def _table(
        self, name: str, statistic: Statistic, traces: Mapping[str, Mapping[str, Values]], what: str
    ) -> Table:
        columns = [f"b = {size}" for size in self.batch_sizes] + ["sum"]
        rows: list[list[Entry]] = []
        for space, of in traces.items():
            options = {"resamples": self.resamples, "seed": self.seed}
            rows.append([space, *(estimate(statistic, of["exact"], of[kind], **options) for kind in columns)])
        title = f"The kernel's trace against its approximations, {name.capitalize()}: {what}"
        return Table(name, title, ["space", *columns], rows, _NOTE)


def _squares(norms: Values) -> Values:
    """Of norms; an architecture that no input reaches, whose norm is −∞, has trace 0."""
    return np.clip(norms, 0, None) ** 2
