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
from nas_lightning.utils.devices import CPU
from nas_lightning.utils.files import write_whole
from nas_lightning.utils.progress import follow
from nas_lightning.validation import PositiveFloat

# Bayesian linear regression (Bishop 2006, section 3.3).
#
#     z = φᵀw + ε,   w ~ N(0, I),   ε ~ N(0, σ²)
#     S = (I + ΦᵀΦ/σ²)⁻¹,   m = S Φᵀz/σ²            posterior after measurements z of rows Φ
#     z* ~ N(φ*ᵀm, φ*ᵀS φ* + σ²)                    prediction for another row
#
# Scaling a column of features scales its weight's prior. The best rows to measure do not depend on the
# measured values, so `best_rows` chooses them in advance.

Array = NDArray[np.float64]


class Belief(NamedTuple):
    """The distribution of the weights.

    Args:
        mean: m, (features,).
        covariance: S, (features, features).
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
        """Return the prior."""
        return cls(np.zeros(features), np.eye(features), noise)

    def condition(self, rows: Array, z: Array) -> Belief:
        """Return the posterior after measurements z (n,) of rows (n, features)."""
        gain, spread = self._gain(rows)
        mean = self.mean + gain @ (z - rows @ self.mean)
        return Belief(mean, self.covariance - gain @ spread @ gain.T, self.noise)

    def _gain(self, rows: Array) -> tuple[Array, Array]:
        """Return Kalman's gain, which inverts a matrix of the size of the measurements."""
        spread = rows @ self.covariance @ rows.T + self.noise**2 * np.eye(len(rows))
        return np.asarray(np.linalg.solve(spread, rows @ self.covariance).T, dtype=np.float64), spread

    def predict(self, rows: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation of measurements of the rows: (n,), (n,)."""
        variance = np.einsum("nf,fg,ng->n", rows, self.covariance, rows) + self.noise**2
        return rows @ self.mean, np.sqrt(variance)


def left_out(prior: Belief, rows: Array, z: Array) -> Array:
    """Return leave-one-out errors of the measurements in standard deviations: (n,)."""
    errors = np.empty(len(z))
    for i in range(len(z)):
        others = np.arange(len(z)) != i
        mean, deviation = prior.condition(rows[others], z[others]).predict(rows[i : i + 1])
        errors[i] = (z[i] - mean[0]) / deviation[0]
    return errors


def best_rows(rows: Array, count: int, noise: float) -> list[int]:
    """Choose rows greedily whose measurements minimize the total variance (I-optimality).

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
        belief = belief.condition(rows[chosen[-1:]], np.zeros(1))  # the value does not change the variance
    return chosen


# Timing on busy machines. All functions take turns, round after round, each round in another order, so that
# load affects all of them alike. Each call is timed alone: the median over a round's calls, then over rounds,
# ignores the calls that other processes interrupt. The error is that of the bootstrap (Efron 1979).

Clock = Literal["wall", "processor"]
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}
"""Wall-clock time, or processor time, the latency of one thread without interruptions."""
RESAMPLES = 200
LEAST_CALLS = 3  # of which the first finds other networks in the caches


def time_in_turn(
    calls: Sequence[Callable[[], object]],
    rounds: int,
    *,
    warmup: int = 2,
    least_ms: float = 10.0,
    clock: Clock = "wall",
    seed: int = 0,
    device: torch.device = CPU,
) -> Array:
    """Return the median milliseconds of each function's calls in each round: (functions, rounds).

    Args:
        calls: functions to measure.
        rounds: number of rounds.
        warmup: calls before the first round.
        least_ms: in a round, call a function until its calls take this long together, and at least
            `LEAST_CALLS` times.
        clock: `wall` or `processor`.
        seed: seed of the orders.
        device: where the calls compute; times are taken when it has finished.

    >>> time_in_turn([lambda: sum(range(100)), lambda: sum(range(20_000))], rounds=3).shape
    (2, 3)
    """
    for call in calls:
        for _ in range(warmup):
            call()

    def now() -> float:
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        return CLOCKS[clock]()

    found = np.empty((len(calls), rounds))
    generator = np.random.default_rng(seed)
    for number in follow(range(rounds), "rounds"):
        for index in generator.permutation(len(calls)):
            found[index, number] = np.median(_time_calls(calls[index], now, least_ms))
    return found


def _time_calls(call: Callable[[], object], now: Callable[[], float], least_ms: float) -> list[float]:
    """Return the milliseconds of each call."""
    times: list[float] = []
    end = time.perf_counter() + least_ms / 1000
    while len(times) < LEAST_CALLS or time.perf_counter() < end:
        start = now()
        call()
        times.append(1000 * (now() - start))
    return times


def medians(times: Array, seed: int = 0) -> tuple[Array, Array]:
    """Return median and error over rounds: (calls, rounds) → (calls,), (calls,).

    >>> ms, error = medians(np.array([[1.0, 1.0, 9.0], [2.0, 2.0, 2.0]]))
    >>> ms, bool(error[0] > 0 == error[1])
    (array([1., 2.]), True)
    """
    rounds = times.shape[1]
    drawn = np.random.default_rng(seed).integers(rounds, size=(RESAMPLES, rounds))
    again = np.median(times[:, drawn], axis=2)  # (calls, resamples)
    return np.median(times, axis=1), again.std(axis=1)


# Features for predicting latencies: counts of operations, and latencies of known devices.
#
# Known devices are columns X of standardized logarithms of latencies. A new device is modeled as a draw
# from them: with X = U Σ Vᵀ its column is U Σ w/√devices with w ~ N(0, I), since the entries of √devices·V
# have mean square 1. Counts of operations, with weights ~ N(0, β²), model the deviation of the new device.

SAMPLE = 256  # architectures of a space from which the variance of counts is estimated
LEVEL = 10.0  # the prior's deviation of the mean, in deviations of the measurements: nearly uninformative


@dataclass(frozen=True)
class Prior:
    """The prior of a device, in deviations of its measurements.

    Args:
        noise: σ, the part that neither counts nor other devices explain.
        own_variance: variance of the counts' part relative to the known devices'; without those it is 1.

    >>> Prior().noise
    0.3
    """

    noise: PositiveFloat = 0.3  # both chosen on HELP's four validation devices: `study=devices`
    own_variance: PositiveFloat = 0.4


class KnownDevices:
    """Devices with known latencies of all architectures.

    Args:
        latency: device → notation of the architecture → milliseconds.

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
        """Return U Σ/√devices of some architectures: (architectures, devices)."""
        for name in names:
            if name not in self.index:
                raise InputError("The architecture must be in the table of known devices", got=name)
        return self.factors[[self.index[name] for name in names]]


@dataclass(frozen=True)
class Features:
    """Maps architectures to features φ whose weights are standard normal a priori.

    Args:
        space: the space of the architectures.
        known: known devices that the new one may resemble.
        prior: the prior.

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
        """Return (architectures, features): of the mean, the counts, and the known devices."""
        names, center, scale = self._counted  # type: ignore[attr-defined]
        own = [np.full((len(genotypes), 1), LEVEL), scale * (_matrix(genotypes, names) - center)]
        if self.known is not None:
            own.append(self.known.rows([self.space.notation(genotype) for genotype in genotypes]))
        return np.hstack(own)


def count_operations(genotype: Genotype) -> Counter[tuple[str, str]]:
    """Count the operations of each cell.

    >>> from nas_lightning.spaces import NasBench201
    >>> cell = "|skip_connect~0|+|none~0|none~1|+|nor_conv_3x3~0|nor_conv_3x3~1|none~2|"
    >>> sorted(count_operations(NasBench201().parse(cell)).items())
    [(('cell', 'none'), 3), (('cell', 'nor_conv_3x3'), 2), (('cell', 'skip_connect'), 1)]
    """
    return Counter((name, edge.op) for name, cell in genotype for edge in cell.edges)


def _matrix(genotypes: Sequence[Genotype], names: Sequence[tuple[str, str]]) -> Array:
    counted = [count_operations(genotype) for genotype in genotypes]
    return np.array([[counts[name] for name in names] for counts in counted], dtype=np.float64)


# A device's latencies, predicted from a few measured ones.
#
#     log t(a) = m + s z(a),   z(a) = φ(a)ᵀw + ε
#
# with m and s the mean and deviation of the measured logarithms, so that errors are relative, and the
# regression above. HELP (Lee et al. 2021, arXiv:2106.08630) solves the same problem by meta-learning.

LEAST = 3  # measurements that the model needs
DEGREES = 4.0  # weight of the prior's errors, in measurements


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
    """Predicts the latencies of a space's networks on one device.

    Args:
        features: maps architectures to features.
        measured: milliseconds of at least three networks.

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
        """Predict the latency of each network."""
        ms, errors = self.regression.predict(self.features.rows(genotypes))
        return [Latency(float(t), float(e)) for t, e in zip(ms, errors, strict=True)]


class Regression:
    """Regression of the logarithms of latencies.

    Args:
        rows: features of the measured networks, (measured, features).
        ms: measured milliseconds.
        noise: σ.

    >>> regression = Regression(np.array([[-1.0], [0.0], [1.0]]), np.exp([1.0, 2.0, 3.0]), noise=0.1)
    >>> bool(regression.predict(np.array([[2.0]]))[0] > np.exp(3.0))
    True
    """

    def __init__(self, rows: Array, ms: Array, noise: float) -> None:
        if len(rows) < LEAST:
            raise InputError(f"At least {LEAST} latencies must be measured", got=len(rows))
        logs = np.log(ms)
        self.mean, self.scale = float(logs.mean()), max(float(logs.std()), 1e-6)
        z, before = (logs - self.mean) / self.scale, Belief.before(rows.shape[1], noise)
        self.belief = before.condition(rows, z)
        squares = np.square(left_out(before, rows, z)).sum()
        self.widening = float(np.sqrt((DEGREES + squares) / (DEGREES + len(z))))

    def predict(self, rows: Array) -> tuple[Array, Array]:
        """Return milliseconds and their standard deviations: (n,), (n,)."""
        mean, deviation = self.belief.predict(rows)
        ms = np.exp(self.mean + self.scale * mean)
        return ms, ms * self.scale * self.widening * deviation


def indices_to_measure(features: Features, rows: Array, count: int) -> list[int]:
    """Choose the networks to measure, from distinct networks in random order.

    With known devices these are the ones that minimize the variance. Without, they are the first ones: the
    optimal design would choose cells of a single operation, which counts explain worse than ordinary cells.
    """
    if not LEAST <= count <= len(rows):
        raise InputError(f"The number of networks must be from {LEAST} to {len(rows)}", got=count)
    return list(range(count)) if features.known is None else best_rows(rows, count, features.prior.noise)


# Tables of latencies: a column `arch` or `genotype`, and a column of milliseconds for each device.
#
#     arch,raspi4,pixel3
#     |skip_connect~0|+|…,12.9,5.1

MOST_MS = 10**9
_NAMES = ("arch", "genotype")


class LatencyTable:
    """Latencies of a space's architectures on several devices, read and checked at once.

    Args:
        path: a `.csv` or `.parquet` file.
        space: the space of the architectures.
        gaps: allow missing values, which are empty or negative.

    >>> from nas_lightning.spaces import NasBench201
    >>> LatencyTable("phone.txt", NasBench201())
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: The table of latencies must be a .csv or .parquet file, got 'phone.txt'
    """

    def __init__(self, path: str | Path, space: SearchSpace, *, gaps: bool = False) -> None:
        path = Path(path)
        if path.suffix not in READERS or not path.is_file():
            raise InputError("The table of latencies must be a .csv or .parquet file", got=str(path))
        columns = dict(READERS[path.suffix](path))
        named = [name for name in _NAMES if name in columns]
        if not named:
            raise InputError(
                "There must be a column `arch` or `genotype`", got=", ".join(columns), where=path
            )
        self.names = _parse_names(columns.pop(named[0]), space, path)
        self.devices = {
            device: _milliseconds(dict(zip(self.names, values, strict=True)), device, path, gaps)
            for device, values in columns.items()
        }

    def choose(self, devices: Sequence[str]) -> dict[str, dict[str, float]]:
        """Return the columns of some devices: device → architecture → milliseconds."""
        for device in devices:
            if device not in self.devices:
                expected = f"Unknown device ({near_match(device, [*self.devices])})"
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
            raise InputError("Architectures must be distinct", got=f"that of row {first[name]}", where=where)
    if not names:
        raise InputError("There must be at least one architecture", where=path)
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
            expected = f"`{device}` must be in milliseconds, greater than 0 and at most {MOST_MS:,}"
            raise InputError(expected, got=value, where=f"{path}, row {row}")
        numbers[name] = ms
    return numbers


# Devices: measured latencies, and predictions for other networks of the space.

_OF_TRAINING = ("auxiliary", "dropout")  # sizes without effect on inference
MOST = 300
"""Measured networks that are used: more would add little."""


class Device:
    """Maps a genotype to measured milliseconds, or to the prediction plus one standard deviation.

    Args:
        name: a table of latencies, or `table.csv:phone` for its column `phone`.
        space: the space of the networks.
        network: settings that must agree with those in the file.

    `settings` are those in the file, such as the runtime.

    >>> from nas_lightning.spaces import NasBench201
    >>> Device("phone.csv", NasBench201())
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: The table of latencies must be a .csv or .parquet file, got 'phone.csv'
    """

    def __init__(self, name: str, space: SearchSpace, network: dict[str, str] | None = None) -> None:
        path, column = _path_and_column(name)
        table = LatencyTable(path, space, gaps=True)
        if not table.devices:
            raise InputError("There must be a column of milliseconds", where=path)
        if column is None and len(table.devices) > 1:
            expected = f"Choose one of its devices, {path}:{', '.join(table.devices)}"
            raise InputError(expected, got="none", where="limits.device")
        column = next(iter(table.devices)) if column is None else column
        self.measured = table.choose([column])[column]
        if len(self.measured) < LEAST:
            raise InputError(
                f"There must be at least {LEAST} measured networks", got=len(self.measured), where=path
            )
        self.settings = _check_settings(Path(path), network or {})
        self.space, self.name = space, name
        order = torch.randperm(len(self.measured), generator=torch.Generator().manual_seed(0))
        names = list(self.measured)
        chosen = [names[index] for index in order[:MOST].tolist()]
        known = {space.parse(text): self.measured[text] for text in chosen}
        self.model = LatencyModel(Features(space), known)

    def __call__(self, genotype: Genotype) -> float:
        latency = self.latency(genotype)
        return latency.ms + latency.error

    def latency(self, genotype: Genotype) -> Latency:
        """Return the measured latency, with an error of 0, or the prediction."""
        measured = self.measured.get(self.space.notation(genotype))
        return self.model.predict([genotype])[0] if measured is None else Latency(measured, 0.0)

    def fastest(self, limit: float) -> list[Genotype]:
        """Return at most `MOST` measured networks within the limit in milliseconds, the fastest first."""
        within = [name for name, ms in self.measured.items() if ms <= limit]
        return [self.space.parse(name) for name in sorted(within, key=self.measured.__getitem__)[:MOST]]


def _path_and_column(name: str) -> tuple[str, str | None]:
    """Split a file from the column after it; folders may contain colons.

    >>> _path_and_column("tables/12:30/phones.csv:pixel:3"), _path_and_column("phone.csv")
    (('tables/12:30/phones.csv', 'pixel:3'), ('phone.csv', None))
    """
    found = re.fullmatch(r"(.*?\.(?:csv|parquet))(?::(.*))?", name, re.DOTALL)
    return (found[1], found[2]) if found else (name, None)


def _check_settings(path: Path, network: dict[str, str]) -> dict[str, str]:
    """Return the settings of the file; raise if it was measured with networks of other sizes."""
    settings = read_settings(path)
    for name, value in network.items():
        if settings.get(name, value) != value:
            expected = f"`{name}` must be {settings[name]}, with which {path} was measured"
            raise InputError(expected, got=value, where="limits.device")
    return settings


def device_settings(space: SearchSpace, data: SearchData, sizes: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that a latency depends on besides genotype and machine."""
    shape = {"image": "x".join(map(str, data.image)), "classes": data.num_classes}
    of_network = {f"network.{name}": value for name, value in sizes.items() if name not in _OF_TRAINING}
    return {name: str(value) for name, value in {"space": space.name, **shape, **of_network}.items()}


def write_device(path: Path, name: str, measured: Mapping[str, float], settings: Mapping[str, str]) -> Path:
    """Write the file of a device: a header of settings, then a row per architecture."""
    text = StringIO()
    text.writelines(f"{SETTING} {setting}: {value}\n" for setting, value in settings.items())
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([("genotype", name), *((notation, f"{ms:.6g}") for notation, ms in measured.items())])
    return write_whole(path, text.getvalue())
