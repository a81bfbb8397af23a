"""The files of NAS-Bench-101 (arXiv:1902.09635): `nasbench_only108.tfrecord` or `nasbench_full.tfrecord`.

A record is JSON: the module's hash, the epochs of the run, the matrix' digits, the operations, and a message
`ModelMetrics` in base 64, which holds the evaluations at the start, half way and at the end of the run. Three
runs of each module and each number of epochs become one row of means.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nas_lightning.benchmarks.formats.columns import Columns
from nas_lightning.benchmarks.formats.tfrecord import read_fields, read_records
from nas_lightning.errors import InputError
from nas_lightning.progress import follow
from nas_lightning.spaces.nasbench101.base import read_module
from nas_lightning.spaces.nasbench101.modules import module_hash

HASH, MODULE, PARAMETERS, SECONDS = "hash", "module", "parameters", "seconds"
DATASET = "cifar10"
EPOCHS, LENGTHS = 108, (4, 12, 36, 108)
MODULES = 423_624
RUNS = 3
_END = 2  # of the evaluations: the start, half way, the end


class Run(NamedTuple):
    """What a record says of the end of a run; accuracies are shares of 1.

    Args:
        hash: of the module.
        epochs: of the run.
        module: matrix and operations, as text.
        parameters: of the network.
        seconds: of the training.
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
    """A record's data as a run."""
    try:
        name, epochs, digits, ops, message = json.loads(data)
        metrics = b64decode(message, validate=True)
    except (ValueError, TypeError, RecursionError):
        raise InputError("expected JSON [hash, epochs, matrix, operations, metrics]", got=data[:80]) from None
    texts = all(isinstance(text, str) for text in (name, digits, ops))
    if not texts or isinstance(epochs, bool) or epochs not in LENGTHS:
        raise InputError(f"expected a hash, epochs of {LENGTHS}, a matrix, operations", got=data[:80])
    evaluations, parameters = [], 0
    for number, value in read_fields(metrics):
        if number == 1 and isinstance(value, bytes):
            evaluations.append(dict(read_fields(value)))
        elif number == 2 and isinstance(value, int):
            parameters = value
    if len(evaluations) <= _END:
        raise InputError("expected evaluations at the start, half way and at the end", got=len(evaluations))
    end = evaluations[_END]
    seconds, valid, test = (_number(end, number) for number in (2, 4, 5))
    return Run(name, epochs, f"{digits}:{ops}", parameters, seconds, _share(valid), _share(test))


def _number(evaluation: Mapping[int, int | float | bytes], number: int) -> float:
    value = evaluation.get(number, 0.0)  # a field that is zero may be left out
    if not isinstance(value, float):
        raise InputError(f"expected field {number} of an evaluation as a number", got=value)
    return value


def _share(value: float) -> float:
    if not 0 <= value <= 1:
        raise InputError("expected an accuracy from 0 to 1", got=value)
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


def read(path: Path, *, partial: bool = False) -> Columns:
    """Means over the runs of each module, in percent; with `partial`, of however many runs and modules."""
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
                raise InputError("expected one module for a hash", got=run.module)
        except InputError as error:
            raise InputError(str(error), where=f"{path}, record {number}") from None
        sums.setdefault(run.epochs, {}).setdefault(run.hash, _Sums()).add(run)
    _check_complete(modules, sums, path, partial)
    return _columns(modules, sums)


def _records(path: Path) -> Iterator[bytes]:
    try:
        yield from read_records(path)
    except OSError as error:
        raise InputError(f"expected an official file: {error}", where=path) from None


def _check_hash(run: Run) -> None:
    if module_hash(read_module(run.module)) != run.hash:
        raise InputError("expected the hash of the record's module", got=run.hash)


def _check_complete(
    modules: Mapping[str, Any], sums: Mapping[int, Mapping[str, _Sums]], path: Path, partial: bool
) -> None:
    whole = sums.get(EPOCHS, {})
    missing = next((name for name in modules if name not in whole), None)
    if not modules or missing is not None:
        raise InputError(f"expected a run of {EPOCHS} epochs for each module", got=missing, where=path)
    if partial:
        return
    if len(modules) != MODULES:
        raise InputError(f"expected {MODULES:,} modules (fewer: --partial)", got=len(modules), where=path)
    for epochs, found in sums.items():
        for name, total in found.items():
            if total.runs != RUNS:
                expected = f"expected {RUNS} runs of {epochs} epochs of module {name} (others: --partial)"
                raise InputError(expected, got=total.runs, where=path)


def _columns(
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
