"""Latency: measured, and predicted from a few measurements."""

from __future__ import annotations

import csv
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.table_formats import READERS, SETTING, read_settings
from nas_lightning.spaces.base import SearchSpace, sample_distinct
from nas_lightning.utils.files import write_whole
from nas_lightning.utils.progress import follow
from nas_lightning.validation import PositiveFloat

# Bayesian linear regression (Bishop 2006, section 3.3): what a few measurements say of all the others.
#
#     z = φᵀw + ε,   w ~ N(0, I),   ε ~ N(0, σ²)
#     S = (I + ΦᵀΦ/σ²)⁻¹,   m = S Φᵀz/σ²            the belief after measurements z of rows Φ
#     z* ~ N(φ*ᵀm, φ*ᵀS φ* + σ²)                    and what it says of another row
#
# Scaling a column of features scales its weight's prior. Which rows to measure does not depend on what is
# measured, so `best_rows` chooses them beforehand.

Array = NDArray[np.float64]


class Belief(NamedTuple):
    """What is known of the weights.

    Args:
        mean: m, of (features,).
        covariance: S, of (features, features).
        noise: σ.

    >>> prior = Belief.before(features=1, noise=1.0)
    >>> after = prior.condition(np.array([[1.0]]), np.array([3.0]))  # half of the way from 0 to 3
    >>> after.mean, after.covariance
    (array([1.5]), array([[0.5]]))
    """

    mean: Array
    covariance: Array
    noise: float

    @classmethod
    def before(cls, features: int, noise: float) -> Belief:
        """The prior."""
        return cls(np.zeros(features), np.eye(features), noise)

    def condition(self, rows: Array, z: Array) -> Belief:
        """The belief after measurements z (n,) of rows (n, features)."""
        gain, spread = self._gain(rows)
        mean = self.mean + gain @ (z - rows @ self.mean)
        return Belief(mean, self.covariance - gain @ spread @ gain.T, self.noise)

    def _gain(self, rows: Array) -> tuple[Array, Array]:
        """Kalman's form of S, whose matrix to invert is as large as there are measurements."""
        spread = rows @ self.covariance @ rows.T + self.noise**2 * np.eye(len(rows))
        return np.asarray(np.linalg.solve(spread, rows @ self.covariance).T, dtype=np.float64), spread

    def predict(self, rows: Array) -> tuple[Array, Array]:
        """The mean and the standard deviation of what would be measured: (n,), (n,)."""
        variance = np.einsum("nf,fg,ng->n", rows, self.covariance, rows) + self.noise**2
        return rows @ self.mean, np.sqrt(variance)


def left_out(prior: Belief, rows: Array, z: Array) -> Array:
    """Each measurement's error in standard deviations, as the others predict it: (n,)."""
    errors = np.empty(len(z))
    for i in range(len(z)):
        others = np.arange(len(z)) != i
        mean, deviation = prior.condition(rows[others], z[others]).predict(rows[i : i + 1])
        errors[i] = (z[i] - mean[0]) / deviation[0]
    return errors


def best_rows(rows: Array, count: int, noise: float) -> list[int]:
    """The rows whose measurements leave the least variance over all, one after another (I-optimality).

    A measurement of φ changes S to S − Sφφᵀ S/(φᵀSφ + σ²); so the variance, summed over rows Φ, falls by
    φᵀS ΦᵀΦ Sφ/(φᵀSφ + σ²).

    >>> best_rows(np.array([[0.0], [1.0], [3.0]]), count=1, noise=1.0)
    [2]
    """
    belief = Belief.before(rows.shape[1], noise)
    moments = rows.T @ rows
    chosen: list[int] = []
    while len(chosen) < count:
        reached = rows @ belief.covariance
        fall = np.einsum("nf,fg,ng->n", reached, moments, reached)
        fall /= np.einsum("nf,nf->n", reached, rows) + noise**2
        fall[chosen] = -1.0
        chosen.append(int(fall.argmax()))
        belief = belief.condition(rows[chosen[-1:]], np.zeros(1))  # of what value, changes no variance
    return chosen


# How long calls take, measured so that a busy machine does little harm.
#
# All are called in turn, round after round, each round in another order, so that what slows the machine for a
# while slows all of them alike; what is taken is the median over rounds. Its error is the deviation of
# medians of rounds that are drawn again (the bootstrap, Efron 1979).

Clock = Literal["wall", "processor"]
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}
"""What passes, or what this process computes, which is the latency of one thread that nothing interrupts."""
RESAMPLES = 200


def time_in_turn(
    calls: Sequence[Callable[[], object]],
    rounds: int,
    *,
    warmup: int = 2,
    least_ms: float = 10.0,
    clock: Clock = "wall",
    seed: int = 0,
) -> Array:
    """Milliseconds of each call in each round: (calls, rounds).

    Args:
        calls: what is measured.
        rounds: that all are called in.
        warmup: calls before the first.
        least_ms: that the calls of a round take together; short ones are called again and again.
        clock: what time is read from.
        seed: of the orders.

    >>> time_in_turn([lambda: sum(range(100)), lambda: sum(range(20_000))], rounds=3).shape
    (2, 3)
    """
    now = CLOCKS[clock]
    counts = [_count_calls(call, warmup, least_ms) for call in calls]
    found = np.empty((len(calls), rounds))
    generator = np.random.default_rng(seed)
    for number in follow(range(rounds), "rounds"):
        for index in generator.permutation(len(calls)):
            call, start = calls[index], now()
            for _ in range(counts[index]):
                call()
            found[index, number] = 1000 * (now() - start) / counts[index]
    return found


def _count_calls(call: Callable[[], object], warmup: int, least_ms: float) -> int:
    for _ in range(warmup):
        call()
    start = time.perf_counter()
    call()
    return max(1, int(np.ceil(least_ms / 1000 / max(time.perf_counter() - start, 1e-7))))


def medians(times: Array, seed: int = 0) -> tuple[Array, Array]:
    """The median over rounds and its error, of (calls, rounds): (calls,), (calls,).

    >>> ms, error = medians(np.array([[1.0, 1.0, 9.0], [2.0, 2.0, 2.0]]))
    >>> ms, bool(error[0] > 0 == error[1])
    (array([1., 2.]), True)
    """
    rounds = times.shape[1]
    drawn = np.random.default_rng(seed).integers(rounds, size=(RESAMPLES, rounds))
    again = np.median(times[:, drawn], axis=2)  # (calls, resamples)
    return np.median(times, axis=1), again.std(axis=1)


# What a latency is predicted from: how often a network has each operation, and known devices' latencies.
#
# Known devices are columns X of standardized logarithms of latencies. A new device is thought of as a draw
# from
# them: with X = U Σ Vᵀ its column is U Σ w/√devices with w ~ N(0, I), since the entries of √devices·V have
# mean square 1. Counts of operations, with weights ~ N(0, β²), say what is the new device's own.

SAMPLE = 256  # architectures of a space that say how counts vary
LEVEL = 10.0  # the prior's deviation of the mean, in deviations of the measurements: next to nothing is known


@dataclass(frozen=True)
class Prior:
    """What is thought of a device before it is measured, in deviations of its measurements.

    Args:
        noise: σ, what neither counts nor other devices explain.
        own_variance: of the counts' part, beside the known devices' part of 1; alone it has 1 itself.

    >>> Prior().noise
    0.3
    """

    noise: PositiveFloat = 0.3  # both chosen on HELP's four validation devices: `study=devices`
    own_variance: PositiveFloat = 0.4


class KnownDevices:
    """Devices whose latencies of all architectures are there.

    Args:
        latency: device → architecture, in its space's notation → milliseconds.

    >>> KnownDevices({"phone": {"a": 1.0, "b": 2.0, "c": 4.0}}).rows(["a", "c"]).round(2)
    array([[-1.22],
           [ 1.22]])
    """

    def __init__(self, latency: Mapping[str, Mapping[str, float]]) -> None:
        columns = list(latency.values())
        self.index = {name: row for row, name in enumerate(columns[0])}
        logs = np.log(np.array([[column[name] for name in self.index] for column in columns])).T
        standard = (logs - logs.mean(axis=0)) / logs.std(axis=0)
        u, sigma, _ = np.linalg.svd(standard, full_matrices=False)
        self.factors: Array = u * sigma / np.sqrt(len(columns))  # (architectures, devices)

    def rows(self, names: Sequence[str]) -> Array:
        """U Σ/√devices of some architectures: (architectures, devices)."""
        for name in names:
            if name not in self.index:
                raise InputError("expected an architecture that the known devices' table has", got=name)
        return self.factors[[self.index[name] for name in names]]


@dataclass(frozen=True)
class Features:
    """Architectures of a space as rows φ, whose weights are standard normal beforehand.

    Args:
        space: that they are of.
        known: devices that the new one may resemble.
        prior: how much the counts weigh beside them.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> Features(space).rows(sample_distinct(space, 3, torch.Generator().manual_seed(0))).shape
    (3, 6)
    """

    space: SearchSpace
    known: KnownDevices | None = None
    prior: Prior = Prior()

    def __post_init__(self) -> None:
        sample = sample_distinct(self.space, SAMPLE, torch.Generator().manual_seed(0))
        names = sorted({key for genotype in sample for key in count_operations(genotype)})
        counts = _matrix(sample, names)
        variance = self.prior.own_variance if self.known else 1.0
        scale = np.sqrt(variance / max(counts.var(axis=0).sum(), 1e-12))
        object.__setattr__(self, "_counted", (names, counts.mean(axis=0), scale))

    def rows(self, genotypes: Sequence[Genotype]) -> Array:
        """(architectures, features): the mean's, the counts', the known devices'."""
        names, center, scale = self._counted  # type: ignore[attr-defined]
        own = [np.full((len(genotypes), 1), LEVEL), scale * (_matrix(genotypes, names) - center)]
        if self.known is not None:
            own.append(self.known.rows([self.space.notation(genotype) for genotype in genotypes]))
        return np.hstack(own)


def count_operations(genotype: Genotype) -> Counter[tuple[str, str]]:
    """How often each cell has each operation.

    >>> from nas_lightning.spaces import NasBench201
    >>> cell = "|skip_connect~0|+|none~0|none~1|+|nor_conv_3x3~0|nor_conv_3x3~1|none~2|"
    >>> sorted(count_operations(NasBench201().parse(cell)).items())
    [(('cell', 'none'), 3), (('cell', 'nor_conv_3x3'), 2), (('cell', 'skip_connect'), 1)]
    """
    return Counter((name, edge.op) for name, cell in genotype for edge in cell.edges)


def _matrix(genotypes: Sequence[Genotype], names: Sequence[tuple[str, str]]) -> Array:
    counted = [count_operations(genotype) for genotype in genotypes]
    return np.array([[counts[name] for name in names] for counts in counted], dtype=np.float64)


# A device's latencies, predicted from a few that were measured.
#
#     log t(a) = m + s z(a),   z(a) = φ(a)ᵀw + ε
#
# with m and s the mean and deviation of the measured logarithms, so that errors are shares of a latency, and
# the regression of `gaussian`. HELP (Lee et al. 2021, arXiv:2106.08630) asks the same question, with a
# network that meta-learning trains.

LEAST = 3  # measurements that a mean, a deviation and anything else can be told from
DEGREES = (
    4.0  # measurements' worth of trust in the prior's errors, beside those of the measurements themselves
)


class Latency(NamedTuple):
    """A predicted latency.

    Args:
        ms: milliseconds.
        error: its standard deviation.

    >>> Latency(2.0, error=0.1)
    Latency(ms=2.0, error=0.1)
    """

    ms: float
    error: float


class LatencyModel:
    """The latencies of a space's networks on one device.

    Args:
        features: what they are predicted from.
        measured: milliseconds, of at least three networks.

    >>> import torch
    >>> from nas_lightning.spaces import NasBench201
    >>> space, generator = NasBench201(), torch.Generator().manual_seed(0)
    >>> cells = [space.sample(generator) for _ in range(40)]
    >>> def truth(cell):  # every convolution takes a millisecond, and all the rest two
    ...     return 2.0 + sum("conv" in edge.op for edge in cell["cell"].edges)
    >>> model = LatencyModel(Features(space), {cell: truth(cell) for cell in cells[:30]})
    >>> all(abs(model.predict([cell])[0].ms / truth(cell) - 1) < 0.25 for cell in cells[30:])
    True
    """

    def __init__(self, features: Features, measured: Mapping[Genotype, float]) -> None:
        self.features = features
        ms = np.array([*measured.values()], dtype=np.float64)
        self.regression = Regression(features.rows([*measured]), ms, features.prior.noise)

    def predict(self, genotypes: Sequence[Genotype]) -> list[Latency]:
        """Each network's latency."""
        ms, errors = self.regression.predict(self.features.rows(genotypes))
        return [Latency(float(t), float(e)) for t, e in zip(ms, errors, strict=True)]


class Regression:
    """The regression of logarithms, between rows of features and milliseconds.

    Args:
        rows: features of what was measured, (measured, features).
        ms: what was measured.
        noise: σ.

    >>> regression = Regression(np.array([[-1.0], [0.0], [1.0]]), np.exp([1.0, 2.0, 3.0]), noise=0.1)
    >>> bool(regression.predict(np.array([[2.0]]))[0] > np.exp(3.0))
    True
    """

    def __init__(self, rows: Array, ms: Array, noise: float) -> None:
        if len(rows) < LEAST:
            raise InputError(f"expected at least {LEAST} measured latencies", got=len(rows))
        logs = np.log(ms)
        self.mean, self.scale = float(logs.mean()), max(float(logs.std()), 1e-6)
        z, before = (logs - self.mean) / self.scale, Belief.before(rows.shape[1], noise)
        self.belief = before.condition(rows, z)
        squares = np.square(left_out(before, rows, z)).sum()
        self.widening = float(np.sqrt((DEGREES + squares) / (DEGREES + len(z))))

    def predict(self, rows: Array) -> tuple[Array, Array]:
        """Milliseconds and their standard deviations: (n,), (n,)."""
        mean, deviation = self.belief.predict(rows)
        ms = np.exp(self.mean + self.scale * mean)
        return ms, ms * self.scale * self.widening * deviation


def indices_to_measure(features: Features, rows: Array, count: int) -> list[int]:
    """Of distinct networks in random order, those whose latencies say most of all the others'.

    Where devices are known, these are the ones that leave the least variance, which does not depend on what
    is measured. Where none is, they are the first: such a design would take the ends of what it believes in,
    cells of one operation only, and counts explain ordinary cells better than those.
    """
    if not LEAST <= count <= len(rows):
        raise InputError(f"expected {LEAST} to {len(rows)} networks", got=count)
    return list(range(count)) if features.known is None else best_rows(rows, count, features.prior.noise)


# A table of latencies: a column `arch` or `genotype`, and one of milliseconds for every device.
#
# arch,raspi4,pixel3
# |skip_connect~0|+|…,12.9,5.1

MOST_MS = 10**9  # eleven days for an image; sums over a table stay far from the largest float
_NAMES = ("arch", "genotype")


class LatencyTable:
    """What devices took for architectures of a space; all of it is read and checked at once.

    Args:
        path: the file, `.csv` or `.parquet`.
        space: that the architectures are of.
        gaps: whether devices may lack architectures; nothing or a number below 0 stands there then.

    >>> from nas_lightning.spaces import NasBench201
    >>> LatencyTable("phone.txt", NasBench201())
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: expected a table of latencies, .csv or .parquet, got 'phone.txt'
    """

    def __init__(self, path: str | Path, space: SearchSpace, *, gaps: bool = False) -> None:
        path = Path(path)
        if path.suffix not in READERS or not path.is_file():
            raise InputError("expected a table of latencies, .csv or .parquet", got=str(path))
        columns = dict(READERS[path.suffix](path))
        named = [name for name in _NAMES if name in columns]
        if not named:
            raise InputError("expected a column arch or genotype", got=", ".join(columns), where=path)
        self.names = _parse_names(columns.pop(named[0]), space, path)
        self.devices = {
            device: _milliseconds(dict(zip(self.names, values, strict=True)), device, path, gaps)
            for device, values in columns.items()
        }

    def choose(self, devices: Sequence[str]) -> dict[str, dict[str, float]]:
        """The columns of some devices: device → architecture → milliseconds."""
        for device in devices:
            if device not in self.devices:
                expected = f"expected a device of the table ({near_match(device, [*self.devices])})"
                raise InputError(expected, got=device)
        return {device: self.devices[device] for device in devices}


def _parse_names(texts: Sequence[str], space: SearchSpace, path: Path) -> list[str]:
    names = []
    for number, text in enumerate(texts, 1):
        try:
            names.append(space.notation(space.parse(text)))
        except InputError as error:
            raise InputError(str(error), where=f"{path}, row {number}") from None
    first: dict[str, int] = {}
    for row, name in enumerate(names, 1):
        if first.setdefault(name, row) != row:
            where = f"{path}, row {row}"
            raise InputError("expected distinct architectures", got=f"that of row {first[name]}", where=where)
    if not names:
        raise InputError("expected distinct architectures, at least one", got=0, where=path)
    return names


def _milliseconds(values: Mapping[str, str | float], device: str, path: Path, gaps: bool) -> dict[str, float]:
    numbers = {}
    for row, (name, value) in enumerate(values.items(), 1):
        try:
            ms = float(value)
        except (TypeError, ValueError):
            ms = -math.inf if value == "" else math.nan
        if gaps and ms < 0:
            continue
        if not 0 < ms <= MOST_MS:
            expected = f"expected {device} as milliseconds above 0 and of at most {MOST_MS:,}"
            raise InputError(expected, got=value, where=f"{path}, row {row}")
        numbers[name] = ms
    return numbers


# A device: latencies that were measured there, and what they say of a space's other networks.

_OF_TRAINING = ("auxiliary", "dropout")  # which no inference has
MOST = 300
"""Networks that others are foretold from and limits begin with: more would add little, and take long."""


class Device:
    """genotype → milliseconds: as measured; else as foretold, with a standard deviation on top.

    Args:
        name: a table of latencies; `table.csv:phone` is its column `phone`, which one of a single column
            does not need.
        space: of the networks.
        network: what the settings of the file have to agree with, where it names any.

    >>> from nas_lightning.spaces import NasBench201
    >>> Device("phone.csv", NasBench201())
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: expected a table of latencies, .csv or .parquet, got 'phone.csv'
    """

    def __init__(self, name: str, space: SearchSpace, network: dict[str, str] | None = None) -> None:
        path, column = _path_and_column(name)
        table = LatencyTable(path, space, gaps=True)
        if not table.devices:
            raise InputError("expected a column of milliseconds", got="none", where=path)
        if column is None and len(table.devices) > 1:
            expected = f"expected one of its devices, {path}:{', '.join(table.devices)}"
            raise InputError(expected, got="none", where="limits.device")
        column = next(iter(table.devices)) if column is None else column
        self.measured = table.choose([column])[column]
        if len(self.measured) < LEAST:
            raise InputError(
                f"expected {LEAST} measured networks or more", got=len(self.measured), where=path
            )
        _check_settings(Path(path), network or {})
        self.space = space
        order = torch.randperm(len(self.measured), generator=torch.Generator().manual_seed(0))
        names = list(self.measured)
        chosen = [names[index] for index in order[:MOST].tolist()]
        known = {space.parse(text): self.measured[text] for text in chosen}
        self.model = LatencyModel(Features(space), known)

    def __call__(self, genotype: Genotype) -> float:
        measured = self.measured.get(self.space.notation(genotype))
        if measured is not None:
            return measured
        (latency,) = self.model.predict([genotype])
        return latency.ms + latency.error

    def fastest(self, limit: float) -> list[Genotype]:
        """What was measured within so many milliseconds, at most `MOST`, the fastest first."""
        within = [name for name, ms in self.measured.items() if ms <= limit]
        return [self.space.parse(name) for name in sorted(within, key=self.measured.__getitem__)[:MOST]]


def _path_and_column(name: str) -> tuple[str, str | None]:
    """The file, and the column behind its ending where one is named; folders may have colons, too.

    >>> _path_and_column("tables/12:30/phones.csv:pixel:3"), _path_and_column("phone.csv")
    (('tables/12:30/phones.csv', 'pixel:3'), ('phone.csv', None))
    """
    found = re.fullmatch(r"(.*?\.(?:csv|parquet))(?::(.*))?", name, re.DOTALL)
    return (found[1], found[2]) if found else (name, None)


def _check_settings(path: Path, network: dict[str, str]) -> None:
    """Raise for a file that was measured with networks of other sizes."""
    settings = read_settings(path)
    for name, value in network.items():
        if settings.get(name, value) != value:
            expected = f"expected {name}={settings[name]}, with which {path} was measured"
            raise InputError(expected, got=value, where="limits.device")


def device_settings(space: SearchSpace, data: SearchData, sizes: Mapping[str, Any]) -> dict[str, str]:
    """What a latency depends on besides genotype and machine: the network's sizes, the images and classes."""
    shape = {"image": "x".join(map(str, data.image)), "classes": data.num_classes}
    of_network = {f"network.{name}": value for name, value in sizes.items() if name not in _OF_TRAINING}
    return {name: str(value) for name, value in {"space": space.name, **shape, **of_network}.items()}


def write_device(path: Path, name: str, measured: Mapping[str, float], settings: Mapping[str, str]) -> Path:
    """The file of a device: settings above, then a row for each architecture."""
    text = StringIO()
    text.writelines(f"{SETTING} {setting}: {value}\n" for setting, value in settings.items())
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([("genotype", name), *((notation, f"{ms:.6g}") for notation, ms in measured.items())])
    return write_whole(path, text.getvalue())
