"""Pools of scored architectures, and statistics of their rankings."""

from __future__ import annotations

import csv
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path

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
from nas_lightning.objectives.rankings import NAMED, log_ranks
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.spaces.base import SearchSpace, draw_distinct
from nas_lightning.utils.files import json_text, read_records, read_text, write_whole
from nas_lightning.utils.tables import Entry, Estimate, Table

# Correlations between two scores of the same architectures, with the bootstrap's standard errors.
#
# −∞, the score of a network that no input reaches, is a rank like any other: the last.

Values = NDArray[np.float64]
Statistic = Callable[[Values, Values], float]


def spearman(x: Values, y: Values) -> float:
    """Spearman's ρ: Pearson's correlation of the ranks, where equal values share their mean rank.

    >>> spearman(np.array([1.0, 2.0, 30.0]), np.array([-np.inf, 0.0, 1.0]))
    1.0
    """
    from scipy.stats import rankdata

    return _linear(rankdata(x), rankdata(y))


def kendall(x: Values, y: Values) -> float:
    """Kendall's τ_b: concordant minus discordant pairs, as a share of those without ties.

    >>> round(kendall(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])), 3)
    0.333
    """
    from scipy.stats import kendalltau

    return float(kendalltau(x, y).statistic) if _varies(x) and _varies(y) else np.nan


def pearson(x: Values, y: Values) -> float:
    """Pearson's correlation, of the architectures for which both values are finite."""
    finite = np.isfinite(x) & np.isfinite(y)
    return _linear(x[finite], y[finite])


def estimate(
    statistic: Statistic, x: ArrayLike, y: ArrayLike, *, resamples: int = 200, seed: int = 0
) -> Estimate | None:
    """The statistic and its standard error: its deviation over samples drawn from the sample (Efron 1979).

    None where there is no correlation to speak of, because one of the two does not vary. The resamples follow
    from the seed and the number of architectures, so all estimates of a study share them.
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
    """The mean of a sample and its standard error, which is 0 for a single value.

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
        x, y = x / np.abs(x).max(), y / np.abs(y).max()  # Synflow's squares are no float64
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1, 1))


# Pools that studies score, in one setting or several: a file each, and their time is said first.

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


# Settings that metrics are evaluated in: one thing differs from the main setting, the others stay.

RANDOM = ("random_labels", "gaussian_inputs")


@dataclass(frozen=True)
class Variation:
    """One thing that varies.

    Args:
        title: what it is.
        pools: {value: name of the pool}; the main setting's pool is `main`.
        settings: {name of the pool: setting}, without the main one.
        metric_at: where the metric stays while κ varies.
        kappa_at: where κ stays while the metric varies; None: they vary together.

    >>> Variation("width", {"4": "channels_4", "8": "main"}, {}, metric_at="8", kappa_at="4").pairs()
    [('4', None), ('4', '4'), ('8', None), ('8', '4'), ('8', '8')]
    """

    title: str
    pools: Mapping[str, str]
    settings: Mapping[str, Setting]
    metric_at: str
    kappa_at: str | None

    def pairs(self) -> list[tuple[str, str | None]]:
        """Values for the metric and for κ; None where the metric is alone."""
        if self.kappa_at is None:
            return [pair for value in self.pools for pair in ((value, None), (value, value))]
        rows = [pair for value in self.pools for pair in ((value, None), (value, self.kappa_at))]
        return [*rows, *((self.metric_at, value) for value in self.pools if value != self.kappa_at)]


def initializations(main: Setting, schemes: Sequence[Scheme]) -> Variation:
    """Each scheme; the weights of metric and κ are the same."""
    others = [scheme for scheme in schemes if scheme != main.scheme]
    pools: dict[str, str] = {main.scheme: MAIN, **{scheme: f"scheme_{scheme}" for scheme in others}}
    settings = {f"scheme_{scheme}": Setting(main.network, main.batch, scheme) for scheme in others}
    return Variation("initialization", pools, settings, main.scheme, None)


def batch_sizes(main: Setting, data: SearchData, sizes: Sequence[int]) -> Variation:
    """The first so many images; the main batch begins with the smaller ones, the larger begin with it."""
    base = len(main.batch[1])
    batches = data.train_batches(-(-max([base, *sizes]) // base))  # of these, the first is the main one
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
    """The network with so many initial channels; κ stays at the fewest, the metric at the most."""
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
    """Random labels on the true images, and Gaussian inputs with the true labels."""
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
    """The first batch of each data set, and networks for its images and classes."""
    found = {}
    for name, images in others.items():
        sized = partial(network, in_channels=images.image[0], num_classes=images.num_classes)
        found[f"data_{name}"] = Setting(sized, SearchData(images).train_batches(1)[0], main.scheme)
    return found


# What else there is to know of a metric: whether it agrees with itself, what its best are, its cost.

_TIMED = 3  # architectures


def second_scores(pool: Pool, setting: Setting, count: int) -> dict[str, Values]:
    """The first `count` architectures with weights of another seed."""
    first = replace(pool, genotypes=pool.genotypes[:count])
    return first.score({"second": replace(setting, seed=setting.seed + 1)})["second"]


def seconds_of(pool: Pool, setting: Setting, metrics: Mapping[str, Mapping[str, Metric]]) -> dict[str, float]:
    """Processor seconds that each set of metrics takes on an architecture, alone; measured once a folder.

    The median over a few, on one batch, with as many threads as the process has.
    """
    path = pool.folder / "seconds.json"
    known = read_records(path)
    known |= {name: _seconds(pool, setting, chosen) for name, chosen in metrics.items() if name not in known}
    write_whole(path, json_text(known, 2) + "\n")
    return {name: float(known[name]) for name in metrics}


def _seconds(pool: Pool, setting: Setting, metrics: Mapping[str, Metric]) -> float:
    seconds = []
    for genotype in pool.genotypes[:_TIMED]:
        network = setting.network(genotype)
        start = time.process_time()
        score(network, setting.batch, metrics)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def top_mean(scores: Values, accuracy: Values, share: float = 0.1) -> float:
    """The mean accuracy of the architectures with the largest scores.

    >>> top_mean(np.array([3.0, 1.0, 2.0, -np.inf]), np.array([90.0, 70.0, 80.0, 10.0]), share=0.5)
    85.0
    """
    count = max(1, round(share * len(scores)))
    return float(accuracy[np.argsort(-scores, kind="stable")[:count]].mean())


# What metrics and sets of them are worth on all cells of a sample, beside counting parameters.

Sets = Mapping[str, Mapping[str, Metric]]
_TOP = 0.05


def named_sets(metrics: Mapping[str, Metric]) -> dict[str, Mapping[str, Metric]]:
    """Each metric alone, and the suite's sets of which all metrics are there, by name.

    >>> from nas_lightning.metrics import Params, Synflow, Zen
    >>> list(named_sets({"params": Params(), "zen": Zen(), "synflow": Synflow()}))
    ['params', 'zen', 'synflow', 'to_weigh']
    """
    alone = {name: {name: metric} for name, metric in metrics.items()}
    whole = {name: chosen for name, chosen in NAMED.items() if chosen.items() <= metrics.items()}
    return {**alone, **whole}


def scores_of(values: Mapping[str, Values], chosen: Mapping[str, Metric]) -> Values:
    """(n,): the sum of log-ranks by these metrics, of values as the metrics give them."""
    rows = [
        dict(zip(chosen, row, strict=True)) for row in zip(*(values[n].tolist() for n in chosen), strict=True)
    ]
    return np.array(log_ranks(rows, chosen))


def whole_sample(
    sets: Sets,
    values: Mapping[str, Values],
    second: Mapping[str, Values],
    accuracies: Mapping[str, Values],
    seconds: Mapping[str, float],
    *,
    baseline: str,
    resamples: int,
    seed: int,
) -> Table:
    """A row a set: its correlations, what they are above the baseline's, and what else there is to know.

    Args:
        sets: by name.
        values: of each metric, (n,).
        second: the same with other weights, of the first architectures; empty: not known.
        accuracies: by data set, (n,), the most important one first.
        seconds: that a set takes on an architecture.
        baseline: the set that others are compared to.
        resamples: of the bootstrap.
        seed: of its draws.
    """
    scores = {name: scores_of(values, chosen) for name, chosen in sets.items()}
    again = {name: scores_of(second, chosen) for name, chosen in sets.items()} if second else {}
    count = len(next(iter(second.values()))) if second else 0
    first = {name: scores_of({m: values[m][:count] for m in sets[name]}, sets[name]) for name in again}
    rows: list[Sequence[Entry]] = []
    for name, x in scores.items():
        row: list[Entry] = [name]
        for accuracy in accuracies.values():
            pair = np.stack([x, scores[baseline]], axis=1)
            row += [estimate(spearman, x, accuracy, resamples=resamples, seed=seed)]
            row += [estimate(_gain, pair, accuracy, resamples=resamples, seed=seed)]
        itself = (
            estimate(spearman, first[name], again[name], resamples=resamples, seed=seed) if again else None
        )
        target = next(iter(accuracies.values()))
        rows.append([*row, itself, top_mean(x, target, _TOP) - float(target.mean()), seconds[name]])
    columns = [column for name in accuracies for column in (f"ρ {name}", f"{name}: above {baseline}")]
    return Table(
        "all_cells",
        f"Metrics and sets by their log-ranks on all {len(x):,} cells",
        ["set", *columns, "ρ with itself", f"best {_TOP:.0%} above the mean", "seconds"],
        rows,
        f"ρ: Spearman, ± the bootstrap's standard error; above {baseline}: paired. With itself: two draws of "
        f"weights, {count} cells. Seconds of one processor for a cell and a batch, the set alone",
    )


def _gain(pair: NDArray[np.float64], accuracy: Values) -> float:
    return spearman(pair[:, 0], accuracy) - spearman(pair[:, 1], accuracy)
