"""Studies of scored architectures: their shared options, pools of scores, settings, and rank statistics."""

import csv
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from nas_lightning.backends import Backend, check_backend, width
from nas_lightning.data import ImageData, SearchData
from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.base import Metric, score
from nas_lightning.metrics.engine import Batch
from nas_lightning.metrics.pool import score_pool
from nas_lightning.metrics.recording import Scheme
from nas_lightning.objectives.rankings import log_ranks
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.spaces.base import SearchSpace, draw_distinct
from nas_lightning.studies.base import Study
from nas_lightning.utils.devices import CPU
from nas_lightning.utils.files import json_text, read_records, read_text, write_whole
from nas_lightning.utils.machine import Processes
from nas_lightning.utils.tables import Estimate
from nas_lightning.validation import PositiveInt, Seed, at_least

# ----- Statistics: correlations between two scores of the same architectures, with bootstrap standard errors.
# A score of −∞, of a network that no input reaches, is the last rank.

Values = NDArray[np.float64]
Statistic = Callable[[Values, Values], float]


def spearman(x: Values, y: Values) -> float:
    """Return Spearman's ρ: Pearson's correlation of the ranks, where equal values share their mean rank.

    >>> spearman(np.array([1.0, 2.0, 30.0]), np.array([-np.inf, 0.0, 1.0]))
    1.0
    """
    from scipy.stats import rankdata

    return _linear(rankdata(x), rankdata(y))


def kendall(x: Values, y: Values) -> float:
    """Return Kendall's τ_b: concordant minus discordant pairs, as a share of the pairs without ties.

    >>> round(kendall(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])), 3)
    0.333
    """
    from scipy.stats import kendalltau

    return float(kendalltau(x, y).statistic) if _varies(x) and _varies(y) else np.nan


def pearson(x: Values, y: Values) -> float:
    """Return Pearson's correlation over the architectures for which both values are finite."""
    finite = np.isfinite(x) & np.isfinite(y)
    return _linear(x[finite], y[finite])


def estimate(
    statistic: Statistic, x: ArrayLike, y: ArrayLike, *, resamples: int = 200, seed: int = 0
) -> Estimate | None:
    """Return the statistic and its standard error by the bootstrap (Efron 1979).

    Returns None if one of the two does not vary. The resamples depend only on the seed and the number of
    architectures, so that all estimates of a study share them.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    value = statistic(x, y)
    random = np.random.default_rng(seed)
    rows = random.integers(len(x), size=(resamples, len(x)))
    drawn = np.array([statistic(x[row], y[row]) for row in rows])
    drawn = drawn[np.isfinite(drawn)]
    if not np.isfinite(value) or len(drawn) < 2:
        return None
    return Estimate(value, float(drawn.std(ddof=1)))


def mean_estimate(values: ArrayLike) -> Estimate:
    """Return the mean of a sample and its standard error, which is 0 for a single value.

    >>> mean_estimate([1.0, 3.0])
    Estimate(value=2.0, error=1.0)
    """
    sample = np.asarray(values, dtype=np.float64)
    error = sample.std(ddof=1) / np.sqrt(len(sample)) if len(sample) > 1 else 0.0
    return Estimate(float(sample.mean()), float(error))


def _varies(x: Values) -> bool:
    return len(x) > 1 and bool((x != x[0]).any())


def _linear(x: Values, y: Values) -> float:
    if not (_varies(x) and _varies(y)):
        return np.nan
    with np.errstate(over="ignore"):
        x, y = x / np.abs(x).max(), y / np.abs(y).max()  # squares of Synflow overflow float64
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1, 1))


# ----- Options. Subclasses in other modules validate inherited fields, so annotations here are not strings.


@dataclass(frozen=True, kw_only=True)
class ParallelStudy(Study):
    """Options of studies that share their work between processes.

    Args:
        workers: number of processes.
        backend: where they run, see `nas_lightning.backends.spread`.
    """

    workers: Processes = 1
    backend: Backend = "processes"

    def __post_init__(self) -> None:
        check_backend(self.backend, "study.backend")


@dataclass(frozen=True, kw_only=True)
class ScoredStudy(ParallelStudy):
    """Options of studies that score random architectures without training them.

    Args:
        metrics: the metrics to compute, by name.
        cells: number of architectures, drawn without repetition; from a user's table, among its rows.
        scores: folder of the scores, which several runs can share. Default: `scores` in the run's folder.
        seed: seed of the architectures. Initial weights depend on an architecture's name.
        workers: number of processes that score.
        backend: where they run, see `nas_lightning.backends.spread`.
    """

    metrics: Mapping[str, Metric]
    cells: Annotated[int, at_least(4)] = 50
    scores: str | Path | None = None
    seed: Seed = 0

    def scored_pool(
        self, space: SearchSpace, genotypes: Sequence[Genotype], folder: Path, device: torch.device = CPU
    ) -> "Pool":
        """Return the pool of these architectures in a run's folder."""
        files = folder / "scores" if self.scores is None else Path(self.scores)
        return Pool(space, genotypes, self.metrics, files, self.workers, self.backend, device)

    def draw_known(
        self, benchmark: TabularBenchmark, space: SearchSpace
    ) -> tuple[list[Genotype], dict[str, Values]]:
        """Draw architectures of a table; return them and their accuracies, see `accuracies_of`."""
        genotypes = benchmark.sample(space, self.cells, self.seed)
        return genotypes, accuracies_of(benchmark, genotypes)


@dataclass(frozen=True, kw_only=True)
class EstimatedStudy(ScoredStudy):
    """Options of studies whose statistics have bootstrap standard errors.

    Args:
        resamples: bootstrap samples of a standard error.
    """

    resamples: PositiveInt = 200

    def estimate(self, statistic: Statistic, x: ArrayLike, y: ArrayLike) -> Estimate | None:
        """Return the statistic with its bootstrap standard error, see `estimate`."""
        return estimate(statistic, x, y, resamples=self.resamples, seed=self.seed)


def check_metrics(names: Sequence[str], metrics: Mapping[str, Metric]) -> None:
    """Raise `InputError` for a name that is not among the metrics."""
    for name in names:
        if name not in metrics:
            raise InputError(f"Unknown metric ({near_match(name, metrics)})", got=name, where="study")


def draw_genotypes(space: SearchSpace, cells: int, seed: int) -> list[Genotype]:
    """Draw distinct architectures; a larger number with the same seed begins with the same ones."""
    return draw_distinct(space, cells, torch.Generator().manual_seed(seed))


def accuracies_of(benchmark: TabularBenchmark, genotypes: Sequence[Genotype]) -> dict[str, Values]:
    """Return {data set: (n,)} for every column of the table.

    Raises:
        InputError: an architecture is not in the table, or all have the same accuracy.
    """
    accuracies = {
        name: np.array([benchmark.column(name, genotype) for genotype in genotypes])
        for name in benchmark.datasets
    }
    main = accuracies[benchmark.dataset]
    if main.min() == main.max():
        got = f"{main[0]:g} of all {len(main)}"
        raise InputError(f"The architectures must differ in {benchmark.dataset}", got=got, where="study")
    return accuracies


def orient(metrics: Mapping[str, Metric], values: Mapping[str, Values]) -> dict[str, Values]:
    """Return the values with signs changed so that larger is better."""
    return {name: metric.orient(1) * values[name] for name, metric in metrics.items()}


def scores_of(values: Mapping[str, Values], chosen: Mapping[str, Metric]) -> Values:
    """Return the sum of log-ranks by these metrics, (n,); `values` are as the metrics return them."""
    rows = [
        dict(zip(chosen, row, strict=True)) for row in zip(*(values[n].tolist() for n in chosen), strict=True)
    ]
    return np.array(log_ranks(rows, chosen))


# ----- Pools: architectures scored in one setting or several, one file for each setting.

MAIN = "main"  # the only setting, or the one that others are compared with
_FIRST = 5  # architectures on which the time for the rest is measured


@dataclass(frozen=True)
class Setting:
    """The conditions that architectures are scored under.

    Args:
        network: builds the network of a genotype.
        batch: images (m, c, h, w) and labels (m,).
        scheme: initialization of the weights.
        seed: seed of the weights.
    """

    network: Callable[[Genotype], nn.Module]
    batch: Batch
    scheme: Scheme = "lecun"
    seed: int = 0


@dataclass(frozen=True)
class Pool:
    """Architectures that are scored in one setting or several.

    Args:
        space: the space of the architectures.
        genotypes: the architectures.
        metrics: the metrics, by name.
        folder: folder of the files `<setting>.csv`; architectures that a file contains are not scored again.
        workers: number of processes.
        backend: where they run.
        device: where networks are scored.
    """

    space: SearchSpace
    genotypes: Sequence[Genotype]
    metrics: Mapping[str, Metric]
    folder: Path
    workers: int = 1
    backend: Backend = "processes"
    device: torch.device = CPU

    def score(self, settings: Mapping[str, Setting]) -> dict[str, dict[str, Values]]:
        """Return {setting: {metric: (n,)}}, the values as the metrics return them."""
        self._announce(settings)
        return {name: self._score(name, setting, len(self.genotypes)) for name, setting in settings.items()}

    def score_main(self, setting: Setting) -> dict[str, Values]:
        """Return {metric: (n,)} in the main setting."""
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
            device=self.device,
        )
        return {metric: np.array([row[metric] for row in rows]) for metric in self.metrics}

    def _announce(self, settings: Mapping[str, Setting]) -> None:
        """Score the first architectures of each setting, and print how long the others will take."""
        todo, seconds = 0, 0.0
        for name, setting in settings.items():
            known = self._rows_of(name)
            new = [i for i, g in enumerate(self.genotypes) if self.space.notation(g) not in known]
            first, rest = new[:_FIRST], new[_FIRST:]
            start = time.monotonic()
            self._score(name, setting, first[-1] + 1 if first else 0)  # raises if the file has other settings
            todo += len(rest)
            seconds += (time.monotonic() - start) / max(len(first), 1) * len(rest)
        if todo:
            what = f"{todo:,} more scores of {len(self.genotypes):,} architectures"
            time_left = _in_words(seconds / width(self.backend, self.workers))
            print(f"{what}: about {time_left}. Scores are saved; resume with resume=DIR", flush=True)

    def _rows_of(self, name: str) -> set[str]:
        """Return the architectures in the file; `score_pool` raises if it is damaged."""
        if not self._file(name).is_file():
            return set()
        text = StringIO(read_text(self._file(name), errors="replace"), newline="")
        with suppress(csv.Error):
            return {row[0] for row in csv.reader(text) if row}
        return set()

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.csv"


def _in_words(seconds: float) -> str:
    """Return a duration for the screen.

    >>> _in_words(20), _in_words(200), _in_words(20000)
    ('20 seconds', '3 minutes', '5.6 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


# ----- Settings that differ from the main one in a single respect.

RANDOM = ("random_labels", "gaussian_inputs")


@dataclass(frozen=True)
class Variation:
    """A property of the setting that varies.

    Args:
        title: name of the property.
        pools: {value: name of the pool}; the main setting's pool is `main`.
        settings: {name of the pool: setting}, without the main one.
        metric_at: value for the metric while that of κ varies.
        kappa_at: value for κ while that of the metric varies; None: they vary together.

    >>> Variation("width", {"4": "channels_4", "8": "main"}, {}, metric_at="8", kappa_at="4").pairs()
    [('4', None), ('4', '4'), ('8', None), ('8', '4'), ('8', '8')]
    """

    title: str
    pools: Mapping[str, str]
    settings: Mapping[str, Setting]
    metric_at: str
    kappa_at: str | None

    def pairs(self) -> list[tuple[str, str | None]]:
        """Return pairs of values for the metric and for κ; None: the metric alone."""
        if self.kappa_at is None:
            return [pair for value in self.pools for pair in ((value, None), (value, value))]
        rows = [pair for value in self.pools for pair in ((value, None), (value, self.kappa_at))]
        return [*rows, *((self.metric_at, value) for value in self.pools if value != self.kappa_at)]


def initializations(main: Setting, schemes: Sequence[Scheme]) -> Variation:
    """Vary the scheme; the metric and κ have the same weights."""
    others = [scheme for scheme in schemes if scheme != main.scheme]
    pools: dict[str, str] = {main.scheme: MAIN, **{scheme: f"scheme_{scheme}" for scheme in others}}
    settings = {f"scheme_{scheme}": Setting(main.network, main.batch, scheme) for scheme in others}
    return Variation("initialization", pools, settings, main.scheme, None)


def batch_sizes(main: Setting, data: SearchData, sizes: Sequence[int]) -> Variation:
    """Vary the batch size; each batch begins with the images of the smaller ones."""
    base = len(main.batch[1])
    batches = data.train_batches(-(-max([base, *sizes]) // base))  # the first is the main one
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    pools = {str(size): MAIN if size == base else f"batch_{size}" for size in sorted({base, *sizes})}
    settings = {
        f"batch_{size}": Setting(main.network, (x[:size], y[:size]), main.scheme)
        for size in sizes
        if size != base
    }
    return Variation("batch size", pools, settings, str(base), str(base))


def widths(
    main: Setting, network: Callable[..., nn.Module], channels: Sequence[int], example: Genotype
) -> Variation:
    """Vary the initial channels; κ stays at the fewest and the metric at the most."""
    pools, settings = {}, {}
    for size in sorted(channels):
        wide = partial(network, channels=size)
        same = str(wide(example)) == str(network(example))
        pools[str(size)] = MAIN if same else f"channels_{size}"
        if not same:
            settings[f"channels_{size}"] = Setting(wide, main.batch, main.scheme)
    labels = list(pools) or [""]
    return Variation("initial channels", pools, settings, labels[-1], labels[0])


def agnostic(main: Setting, classes: int, seed: int) -> dict[str, Setting]:
    """Return settings with random labels on the true images, and Gaussian inputs with the true labels."""
    (x, y), random = main.batch, torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, y.shape, generator=random)
    noise = torch.randn(x.shape, generator=random)
    batches: tuple[Batch, Batch] = ((x, labels), (noise, y))
    return {
        name: Setting(main.network, batch, main.scheme) for name, batch in zip(RANDOM, batches, strict=True)
    }


def data_sets(
    main: Setting, network: Callable[..., nn.Module], others: Mapping[str, ImageData]
) -> dict[str, Setting]:
    """Return settings with the first batch of each data set, and networks for its images and classes."""
    found = {}
    for name, images in others.items():
        sized = partial(network, in_channels=images.image[0], num_classes=images.num_classes)
        found[f"data_{name}"] = Setting(sized, SearchData(images).train_batches(1)[0], main.scheme)
    return found


# ----- Reliability: agreement between two draws of weights, the best architectures, the cost.

_TIMED = 3  # architectures that costs are measured on


def second_scores(pool: Pool, setting: Setting, count: int) -> dict[str, Values]:
    """Score the first `count` architectures with weights of another seed."""
    first = replace(pool, genotypes=pool.genotypes[:count])
    return first.score({"second": replace(setting, seed=setting.seed + 1)})["second"]


def seconds_of(pool: Pool, setting: Setting, metrics: Mapping[str, Mapping[str, Metric]]) -> dict[str, float]:
    """Return the processor seconds per architecture of each set of metrics, measured once per folder.

    A set is computed alone; the value is the median over a few architectures on one batch.
    """
    path = pool.folder / "seconds.json"
    known = read_records(path)
    known |= {name: _seconds(pool, setting, chosen) for name, chosen in metrics.items() if name not in known}
    write_whole(path, json_text(known, 2) + "\n")
    return {name: float(known[name]) for name in metrics}


def _seconds(pool: Pool, setting: Setting, metrics: Mapping[str, Metric]) -> float:
    seconds = []
    for genotype in pool.genotypes[:_TIMED]:
        network = setting.network(genotype).to(pool.device)
        x, labels = (part.to(pool.device) for part in setting.batch)
        start = time.process_time()
        score(network, (x, labels), metrics)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def top_mean(scores: Values, accuracy: Values, share: float = 0.1) -> float:
    """Return the mean accuracy of the architectures with the largest scores.

    >>> top_mean(np.array([3.0, 1.0, 2.0, -np.inf]), np.array([90.0, 70.0, 80.0, 10.0]), share=0.5)
    85.0
    """
    count = max(1, round(share * len(scores)))
    return float(accuracy[np.argsort(-scores, kind="stable")[:count]].mean())
