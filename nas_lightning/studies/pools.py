"""Pools that studies score, in one setting or several: a file each, and their time is said first."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import torch
from torch import nn

from nas_lightning.backends import Backend, check_backend, width
from nas_lightning.benchmarks.base import TabularBenchmark
from nas_lightning.errors import InputError, near_match
from nas_lightning.files import read_text
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes.initialise import Scheme
from nas_lightning.metrics.passes.shared import Batch
from nas_lightning.metrics.pool.scoring import score_pool
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.sampling import draw_distinct
from nas_lightning.studies.statistics import Values

MAIN = "main"  # the setting that a study scores in, or that others are compared with
_FIRST = 5  # architectures that the rate is measured on


def check_names(names: Sequence[str], metrics: Mapping[str, Metric]) -> None:
    """Raise for a name that none of the metrics has."""
    for name in names:
        if name not in metrics:
            raise InputError(
                f"expected one of the metrics ({near_match(name, metrics)})", got=name, where="study"
            )


def draw_genotypes(space: SearchSpace, cells: int, seed: int) -> list[Genotype]:
    """So many architectures of a space, each another; more of the same seed begin with the same."""
    return draw_distinct(space, cells, torch.Generator().manual_seed(seed))


def accuracies_of(benchmark: TabularBenchmark, genotypes: Sequence[Genotype]) -> dict[str, Values]:
    """{data set: (n,)}, of a table of one's own every column; raises for what the table has not.

    And where all are worth the same, before anything is scored.
    """
    accuracies = {
        name: np.array([benchmark.column(name, genotype) for genotype in genotypes])
        for name in benchmark.datasets
    }
    main = accuracies[benchmark.dataset]
    if main.min() == main.max():
        got = f"{main[0]:g} of all {len(main)}"
        raise InputError(f"expected architectures that differ in {benchmark.dataset}", got=got, where="study")
    return accuracies


def draw_known(
    benchmark: TabularBenchmark, space: SearchSpace, cells: int, seed: int
) -> tuple[list[Genotype], dict[str, Values]]:
    """So many architectures of a table, and their accuracies, see `accuracies_of`."""
    genotypes = benchmark.sample(space, cells, seed)
    return genotypes, accuracies_of(benchmark, genotypes)


def orient(metrics: Mapping[str, Metric], values: Mapping[str, Values]) -> dict[str, Values]:
    """The metrics' values, with such signs that larger is better."""
    return {name: metric.orient(1) * values[name] for name, metric in metrics.items()}


@dataclass(frozen=True)
class Setting:
    """What architectures are scored in.

    Args:
        network: what an architecture is built as.
        batch: images (m, c, h, w) and labels (m,).
        scheme: how weights are drawn.
        seed: of the weights.
    """

    network: Callable[[Genotype], nn.Module]
    batch: Batch
    scheme: Scheme = "lecun"
    seed: int = 0  # of the weights


@dataclass(frozen=True)
class Pool:
    """Architectures and how they are scored, in whatever setting.

    Args:
        space: whose architectures they are.
        genotypes: the architectures.
        metrics: by name.
        folder: of the files, `<setting>.csv`; what is in them is not scored again.
        workers: processes that share the work.
        backend: whose they are.
    """

    space: SearchSpace
    genotypes: Sequence[Genotype]
    metrics: Mapping[str, Metric]
    folder: Path
    workers: int = 1
    backend: Backend = "processes"

    def score(self, settings: Mapping[str, Setting]) -> dict[str, dict[str, Values]]:
        """{setting: {metric: (n,)}}, the values as the metrics give them."""
        self._announce(settings)
        return {name: self._score(name, setting, len(self.genotypes)) for name, setting in settings.items()}

    def score_main(self, setting: Setting) -> dict[str, Values]:
        """{metric: (n,)} in one setting, which is the only one or the main one."""
        return self.score({MAIN: setting})[MAIN]

    def _score(self, name: str, setting: Setting, count: int) -> dict[str, Values]:
        rows = score_pool(
            self.space,
            setting.network,
            self.genotypes[:count],
            setting.batch,
            self.metrics,
            path=self._file(name),
            workers=self.workers,
            backend=self.backend,
            scheme=setting.scheme,
            seed=setting.seed,
        )
        return {metric: np.array([row[metric] for row in rows]) for metric in self.metrics}

    def _announce(self, settings: Mapping[str, Setting]) -> None:
        """Score the first architectures of each setting, and say how long the others take."""
        todo, seconds = 0, 0.0
        for name, setting in settings.items():
            known = self._rows_of(name)
            new = [i for i, g in enumerate(self.genotypes) if self.space.notation(g) not in known]
            first, rest = new[:_FIRST], new[_FIRST:]
            start = time.monotonic()
            self._score(name, setting, first[-1] + 1 if first else 0)  # refuses a file of other settings
            todo += len(rest)
            seconds += (time.monotonic() - start) / max(len(first), 1) * len(rest)
        if todo:
            what = f"{todo:,} more scores of {len(self.genotypes):,} architectures"
            time_left = _say_duration(seconds / width(self.backend, self.workers))
            print(f"{what}: about {time_left}; what is done stays, resume=DIR goes on", flush=True)

    def _rows_of(self, name: str) -> set[str]:
        """Those that the file names; a damaged one is refused where it is gone on with."""
        if not self._file(name).is_file():
            return set()
        text = StringIO(read_text(self._file(name), errors="replace"), newline="")
        with suppress(csv.Error):
            return {row[0] for row in csv.reader(text) if row}
        return set()

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.csv"


@dataclass(frozen=True)
class Scorer:
    """How a study scores the architectures that it draws; what is wrong with it is said when it is made.

    Args:
        metrics: by name.
        workers: processes that share the work.
        backend: whose they are, see `nas_lightning.backends.spread`.
        scores: the folder of the scores, which runs may share; None: `scores` in the run's own.
    """

    metrics: Mapping[str, Metric]
    workers: int = 1
    backend: Backend = "processes"
    scores: str | Path | None = None

    def __post_init__(self) -> None:
        check_backend(self.backend, "study.backend")

    def pool(self, space: SearchSpace, genotypes: Sequence[Genotype], folder: Path) -> Pool:
        """These architectures, in a run's folder."""
        files = folder / "scores" if self.scores is None else Path(self.scores)
        return Pool(space, genotypes, self.metrics, files, self.workers, self.backend)


def _say_duration(seconds: float) -> str:
    """A duration as one says it.

    >>> _say_duration(20), _say_duration(200), _say_duration(20000)
    ('20 seconds', '3 minutes', '5.6 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
