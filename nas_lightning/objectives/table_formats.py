"""Files of tabular benchmarks: CSV columns, TFRecord, and the official formats."""

from __future__ import annotations

import csv
import json
import math
import os
import struct
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import dropwhile, islice, takewhile
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nas_lightning.errors import InputError
from nas_lightning.spaces.nasbench101 import module_hash, read_module
from nas_lightning.utils.files import check_file, replacing
from nas_lightning.utils.progress import follow

# Tables on disk: CSV and Parquet.

Columns = Mapping[str, Sequence[Any]]
SECONDS = "seconds"
"""The column of the cost of an evaluation."""


SETTING = "#"
"""Begin of the lines `# name: value` above the columns of a CSV file."""


def read_settings(path: Path) -> dict[str, str]:
    """Return the settings above the columns of a CSV file."""
    check_file(path)
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        lines = [line.lstrip(SETTING) for line in takewhile(lambda line: line.startswith(SETTING), file)]
    settings: dict[str, str] = {}
    for name, _, value in (map(str.strip, line.partition(":")) for line in lines):
        if settings.setdefault(name, value) != value:
            raise InputError(f"There can be one {name}", got=f"{settings[name]}, {value}", where=path)
    return settings


def read_csv(path: Path) -> Columns:
    check_file(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets write a byte order mark
            lines = dropwhile(lambda line: line.startswith(SETTING), file)
            header, *rows = [row for row in csv.reader(lines) if row] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"Cannot read the CSV file: {error}", where=path) from None
    if len(header) == 1 and {";", "\t"} & set(header[0]):
        raise InputError("Columns must be separated by commas", got=header[0], where=path)
    if len(set(header)) != len(header):
        raise InputError("Columns must be distinct", got=", ".join(header), where=path)
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise InputError(
                f"The row must have {len(header)} values", got=len(row), where=f"{path}, row {number}"
            )
    return {name: [row[index] for row in rows] for index, name in enumerate(header)}


def read_parquet(path: Path) -> Columns:
    check_file(path)
    arrow, parquet = _pyarrow(path)
    try:
        return parquet.read_table(path, memory_map=False).to_pydict()
    except (OSError, arrow.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"Cannot read the Parquet file: {reason[:200]}", where=path) from None


READERS: Mapping[str, Callable[[Path], Columns]] = {".csv": read_csv, ".parquet": read_parquet}


def write_parquet(columns: Columns, path: Path) -> None:
    """Write the file atomically."""
    arrow, parquet = _pyarrow(path)
    with replacing(path) as partial:
        parquet.write_table(arrow.table(dict(columns)), partial, compression="zstd")


def _pyarrow(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise InputError("Parquet files need the package pyarrow (pip install pyarrow)", where=path) from None
    return pyarrow, pyarrow.parquet


def require_columns(columns: Columns, names: Sequence[str], path: Path) -> None:
    """Raise unless all columns are present."""
    for name in names:
        if name not in columns:
            raise InputError(f"There must be a column {name!r}", got=", ".join(map(str, columns)), where=path)


def is_number(entry: Any) -> bool:
    """Return whether the entry is a finite number."""
    try:
        return math.isfinite(float(entry))
    except (TypeError, ValueError):
        return False


def parse_numbers(columns: Columns, name: str, path: Path) -> list[float]:
    """Return a column as numbers; raise for the first other entry."""
    require_columns(columns, (name,), path)
    for number, entry in enumerate(columns[name], 1):
        if not is_number(entry):
            raise InputError(f"`{name}` must be a number", got=entry, where=f"{path}, row {number}")
    return [float(entry) for entry in columns[name]]


def parse_percentages(values: Sequence[Any], name: str, path: Path) -> list[float]:
    """Return the values as numbers; raise for the first that is not a percentage."""
    accuracies = []
    for number, value in enumerate(values, 1):
        try:
            accuracy = float(value)
        except (TypeError, ValueError):
            accuracy = float("nan")
        if not 0 <= accuracy <= 100:
            expected = f"`{name}` must be a percentage from 0 to 100"
            raise InputError(expected, got=value, where=f"{path}, row {number}")
        accuracies.append(accuracy)
    return accuracies


# CRC-32C (Castagnoli, RFC 3720 appendix B.4) of many byte strings at once: the TFRecord files of NAS-
# Bench-101 have hundreds of thousands of records.

_POLYNOMIAL = 0x82F63B78  # its bits reversed, as the bytes are read


def _table() -> NDArray[np.uint32]:
    """Return the remainder of each byte."""
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(
            values & 1, (values >> np.uint32(1)) ^ np.uint32(_POLYNOMIAL), values >> np.uint32(1)
        )
    return values.astype(np.uint32)


_TABLE = _table()
_LIST = _TABLE.tolist()


def crc32c(data: bytes) -> int:
    """Return the checksum of a short string.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _LIST[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def crc32c_of_each(strings: Sequence[bytes]) -> list[int]:
    """Return the checksums of all strings, computed together byte by byte.

    >>> crc32c_of_each([b"123456789", b""]) == [crc32c(b"123456789"), 0]
    True
    """
    lengths = np.array([len(string) for string in strings])
    order = np.argsort(-lengths, kind="stable")  # unfinished strings first
    longest = int(lengths.max(initial=0))
    text = np.zeros((longest, len(strings)), dtype=np.uint8)  # (position, string)
    for place, index in enumerate(order):
        text[: lengths[index], place] = np.frombuffer(strings[index], dtype=np.uint8)
    crc = np.full(len(strings), 0xFFFFFFFF, dtype=np.uint32)
    unfinished = len(strings) - np.searchsorted(lengths[order][::-1], np.arange(longest), side="right")
    for position, count in enumerate(unfinished):
        front = crc[:count]
        front[:] = _TABLE[(front ^ text[position, :count]) & 0xFF] ^ (front >> np.uint32(8))
    found = np.empty_like(crc)
    found[order] = crc ^ np.uint32(0xFFFFFFFF)
    return found.tolist()


# TFRecord files and Protocol Buffer messages, read without those packages.
#
# A record is its length (8 bytes), the length's checksum (4), the data, and the data's checksum (4), all
# little
# endian; checksums are CRC-32C, rotated and shifted. A message is a sequence of fields: a varint of number
# and wire type, then a varint, 8 bytes, 4 bytes, or a length and as many bytes.

_HEADER, _FOOTER = struct.Struct("<QI"), struct.Struct("<I")
_BATCH = 4096  # records whose checksums are computed together
_LONGEST = 1 << 16  # bytes; the official ones have some 500


def mask_checksum(crc: int) -> int:
    """Return the form in which the files store a checksum."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the records' data; raise with the number of the first damaged record."""
    with path.open("rb") as file:
        framed = _read_frames(file, path)
        first, failure = 1, None
        while failure is None:
            batch: list[tuple[bytes, int]] = []
            try:
                for record in islice(framed, _BATCH):
                    batch.append(record)
            except InputError as error:  # after what was read before it
                failure = error
            if not batch and failure is None:
                return
            checksums = crc32c_of_each([data for data, _ in batch])
            for number, ((data, stored), checksum) in enumerate(zip(batch, checksums, strict=True), first):
                if mask_checksum(checksum) != stored:
                    raise InputError(
                        "The file is damaged: the checksum of the data is wrong", where=_at(path, number)
                    )
                yield data
            first += len(batch)
        raise failure


def _read_frames(file: BinaryIO, path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield data and stored checksum of each record."""
    number = 0
    while header := file.read(_HEADER.size):
        number += 1
        if len(header) < _HEADER.size:
            raise InputError("The file is damaged: the record is incomplete", where=_at(path, number))
        length, stored = _HEADER.unpack(header)
        if mask_checksum(crc32c(header[:8])) != stored or length > _LONGEST:
            raise InputError(
                "The file is damaged: the checksum of the length is wrong", where=_at(path, number)
            )
        data, footer = file.read(length), file.read(_FOOTER.size)
        if len(data) < length or len(footer) < _FOOTER.size:
            raise InputError("The file is damaged: the record is incomplete", where=_at(path, number))
        yield data, _FOOTER.unpack(footer)[0]


def _at(path: Path, number: int) -> str:
    return f"{path}, record {number}"


def read_fields(message: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yield number and value of each field: varints as int, 8 and 4 bytes as float, the rest as bytes.

    >>> list(read_fields(bytes([0x10, 0x96, 0x01])))
    [(2, 150)]
    """
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == 0:
            value, position = _varint(message, position)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, position = _varint(message, position)
        if size is None or position + size > len(message):
            raise InputError("The file is damaged: the protocol buffer is invalid")
        part, position = message[position : position + size], position + size
        yield tag >> 3, part if kind == 2 else struct.unpack("<d" if kind == 1 else "<f", part)[0]


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    value = 0
    for index, byte in enumerate(message[position : position + 10]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise InputError("The file is damaged: the protocol buffer is invalid")


# The official files of NAS-Bench-201 (arXiv:2001.00326) and NATS-Bench (arXiv:2009.00437).
#
# They hold every epoch of every training, need tens of gigabytes of memory or minutes of loading, and can
# only be read by their packages. Both are pickles, which can run code, so they are read only if the user
# trusts them.

ARCH = "arch"
DATASETS = ("cifar10", "cifar100", "imagenet16-120")
OPTIONAL = tuple(f"{name}-{what}" for what in ("valid", "valid-12") for name in DATASETS)

_OFFICIAL_NAMES = {"cifar10": "cifar10", "cifar100": "cifar100", "imagenet16-120": "ImageNet16-120"}
_VALID_NAMES = {**_OFFICIAL_NAMES, "cifar10": "cifar10-valid"}  # trained on one half, validated on the other


def read_official201(path: Path, *, trust: bool = False) -> Columns:
    """Return the columns of an official file, read by its package; `trust` must be True."""
    nats = path.is_dir() or path.name.endswith(".pickle.pbz2")
    if not nats and path.suffix != ".pth":
        raise InputError(
            "The table must be .csv, .parquet, NATS-tss-… (folder or .pickle.pbz2), or NAS-Bench-201-….pth",
            got=path.name,
            where="benchmark.path",
        )
    if not trust:
        expected = (
            "The table must be .csv or .parquet. An official file is a pickle, which can run code: if it "
            "is from its authors, convert --trust or benchmark.trust=true"
        )
        raise InputError(expected, got=path.name, where="benchmark.path")
    package = _package("nats_bench" if nats else "nas_201_api", path)
    try:
        api = _nats_bench(package, path) if nats else _nasbench201(package, path)
        return columns_of_api(api, forget=path.is_dir())
    except Exception as error:  # pickles raise all kinds of errors
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"Cannot read the official file: {reason[:200]}", where=path) from None


def _package(name: str, path: Path) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        install = {"nats_bench": "nats-bench", "nas_201_api": "nas-bench-201"}[name]
        raise InputError(f"This file needs the package {name} (pip install {install})", where=path) from None


def _nats_bench(package: Any, path: Path) -> Any:
    return package.create(str(path), "tss", fast_mode=path.is_dir(), verbose=False)


def _nasbench201(package: Any, path: Path) -> Any:
    with _allow_pickles():
        return package.NASBench201API(str(path), verbose=False)


@contextmanager
def _allow_pickles() -> Iterator[None]:
    """Let the package's calls of `torch.load` read pickled objects."""
    name = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def columns_of_api(api: Any, *, forget: bool = False) -> Columns:
    """Return means over the training runs of each architecture; incomplete columns are left out.

    Args:
        api: the interface of the package.
        forget: free the memory of each architecture after reading it.
    """
    values_of: dict[str, list[Any]] = {ARCH: list(api.meta_archs)}
    for index in follow(range(len(api.meta_archs)), "architectures"):
        for dataset, name in _OFFICIAL_NAMES.items():
            valid = _VALID_NAMES[dataset]
            row = {
                dataset: _accuracy(api, index, name, "200", "test-accuracy"),
                f"{dataset}-valid": _accuracy(api, index, valid, "200", "valid-accuracy"),
                f"{dataset}-valid-12": _accuracy(api, index, valid, "12", "valid-accuracy"),
            }
            for column, value in row.items():
                values_of.setdefault(column, []).append(value)
        if forget:
            api.arch2infos_dict.clear()
    return {name: values for name, values in values_of.items() if None not in values}


def _accuracy(api: Any, index: int, dataset: str, epochs: str, what: str) -> float | None:
    try:
        return api.get_more_info(index, dataset, hp=epochs, is_random=False).get(what)
    except KeyError:  # not every version trained on every data set for 12 epochs
        return None


# The files of NAS-Bench-101 (arXiv:1902.09635): `nasbench_only108.tfrecord` or `nasbench_full.tfrecord`.
#
# A record is JSON: the module's hash, the epochs of the run, the matrix' digits, the operations, and a
# message
# `ModelMetrics` in base 64, which holds the evaluations at the start, half way and at the end of the run.
# Three runs of each module and each number of epochs become one row of means.

HASH, MODULE, PARAMETERS = "hash", "module", "parameters"
DATASET = "cifar10"
EPOCHS, LENGTHS = 108, (4, 12, 36, 108)
MODULES = 423_624
RUNS = 3
_END = 2  # of the evaluations: the start, half way, the end


class Run(NamedTuple):
    """The end of a training run; accuracies are from 0 to 1.

    Args:
        hash: hash of the module.
        epochs: epochs of the run.
        module: matrix and operations, as text.
        parameters: parameters of the network.
        seconds: duration of the training.
        valid: validation accuracy at the end.
        test: test accuracy at the end.
    """

    hash: str
    epochs: int
    module: str
    parameters: int
    seconds: float
    valid: float
    test: float


def parse_record(data: bytes) -> Run:
    """Parse a record."""
    try:
        name, epochs, digits, ops, message = json.loads(data)
        metrics = b64decode(message, validate=True)
    except (ValueError, TypeError, RecursionError):
        raise InputError(
            "A record must be JSON [hash, epochs, matrix, operations, metrics]", got=data[:80]
        ) from None
    texts = all(isinstance(text, str) for text in (name, digits, ops))
    if not texts or isinstance(epochs, bool) or epochs not in LENGTHS:
        raise InputError(
            f"A record must have a hash, epochs of {LENGTHS}, a matrix, and operations", got=data[:80]
        )
    evaluations, parameters = [], 0
    for number, value in read_fields(metrics):
        if number == 1 and isinstance(value, bytes):
            evaluations.append(dict(read_fields(value)))
        elif number == 2 and isinstance(value, int):
            parameters = value
    if len(evaluations) <= _END:
        raise InputError(
            "There must be evaluations at the start, halfway, and at the end", got=len(evaluations)
        )
    end = evaluations[_END]
    seconds, valid, test = (_number(end, number) for number in (2, 4, 5))
    return Run(name, epochs, f"{digits}:{ops}", parameters, seconds, _share(valid), _share(test))


def _number(evaluation: Mapping[int, int | float | bytes], number: int) -> float:
    value = evaluation.get(number, 0.0)  # fields that are zero may be omitted
    if not isinstance(value, float):
        raise InputError(f"Field {number} of an evaluation must be a number", got=value)
    return value


def _share(value: float) -> float:
    if not 0 <= value <= 1:
        raise InputError("Accuracies must be from 0 to 1", got=value)
    return value


class _Sums:
    """Sums over the runs of one module for one number of epochs."""

    __slots__ = ("runs", "seconds", "test", "valid")

    def __init__(self) -> None:
        self.runs, self.seconds, self.valid, self.test = 0, 0.0, 0.0, 0.0

    def add(self, run: Run) -> None:
        self.runs += 1
        self.seconds += run.seconds
        self.valid += run.valid
        self.test += run.test


def read_official101(path: Path, *, partial: bool = False) -> Columns:
    """Return means over the runs of each module in percent; `partial` accepts missing runs and modules."""
    modules: dict[str, tuple[str, int]] = {}
    sums: dict[int, dict[str, _Sums]] = {}
    for number, data in enumerate(follow(_records(path), "records"), 1):
        try:
            run = parse_record(data)
            known = modules.get(run.hash)
            if known is None:
                _check_hash(run)
                modules[run.hash] = run.module, run.parameters
            elif known[0] != run.module:
                raise InputError("A hash must have one module", got=run.module)
        except InputError as error:
            raise InputError(str(error), where=f"{path}, record {number}") from None
        sums.setdefault(run.epochs, {}).setdefault(run.hash, _Sums()).add(run)
    _check_complete(modules, sums, path, partial)
    return _columns_of_runs(modules, sums)


def _records(path: Path) -> Iterator[bytes]:
    try:
        yield from read_records(path)
    except OSError as error:
        raise InputError(f"Cannot read the official file: {error}", where=path) from None


def _check_hash(run: Run) -> None:
    if module_hash(read_module(run.module)) != run.hash:
        raise InputError("The hash must be that of the record's module", got=run.hash)


def _check_complete(
    modules: Mapping[str, Any], sums: Mapping[int, Mapping[str, _Sums]], path: Path, partial: bool
) -> None:
    whole = sums.get(EPOCHS, {})
    missing = next((name for name in modules if name not in whole), None)
    if not modules or missing is not None:
        raise InputError(f"Each module must have a run of {EPOCHS} epochs", got=missing, where=path)
    if partial:
        return
    if len(modules) != MODULES:
        raise InputError(
            f"There must be {MODULES:,} modules (fewer: --partial)", got=len(modules), where=path
        )
    for epochs, found in sums.items():
        for name, total in found.items():
            if total.runs != RUNS:
                expected = (
                    f"There must be {RUNS} runs of {epochs} epochs of module {name} (others: --partial)"
                )
                raise InputError(expected, got=total.runs, where=path)


def _columns_of_runs(
    modules: Mapping[str, tuple[str, int]], sums: Mapping[int, Mapping[str, _Sums]]
) -> dict[str, list[Any]]:
    whole = sums[EPOCHS]
    columns: dict[str, list[Any]] = {
        HASH: list(modules),
        MODULE: [module for module, _ in modules.values()],
        PARAMETERS: [parameters for _, parameters in modules.values()],
        SECONDS: [whole[name].seconds / whole[name].runs for name in modules],
        DATASET: [100 * whole[name].test / whole[name].runs for name in modules],
    }
    for epochs in sorted(sums, reverse=True):
        found = sums[epochs]
        if found.keys() == modules.keys():  # a column that is not complete is left out
            column = f"{DATASET}-valid" + ("" if epochs == EPOCHS else f"-{epochs}")
            columns[column] = [100 * found[name].valid / found[name].runs for name in modules]
    return columns
