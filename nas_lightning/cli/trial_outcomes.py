"""What Optuna is told of a job that has ended: its objectives, as the job's folder has them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from omegaconf import DictConfig, OmegaConf

from nas_lightning.errors import InputError, near_match
from nas_lightning.runs.folder import RunFolder

Direction = Literal["maximize", "minimize"]
_DIRECTIONS: dict[str, Direction] = {"maximize": "maximize", "minimize": "minimize"}
_LESS = ("loss", "error", "rank", "params", "macs", "seconds", "latency_ms", "memory_mb")


def directions_of(objectives: Sequence[str], typed: Sequence[str] | None, where: str) -> list[Direction]:
    """Whether more or less of each is better: as typed, or by its name.

    >>> directions_of(["valid_accuracy", "params"], None, "")
    ['maximize', 'minimize']
    """
    if typed is None:
        return ["minimize" if name.endswith(_LESS) else "maximize" for name in objectives]
    if len(typed) != len(objectives) or not {*typed} <= _DIRECTIONS.keys():
        expected = f"expected maximize or minimize, {len(objectives)} times"
        raise InputError(expected, got=f"[{', '.join(map(str, typed))}]", where=where)
    return [_DIRECTIONS[name] for name in typed]


def numbers_of(sweep: Path, number: int, config: DictConfig) -> dict[str, float] | None:
    """What a job has come to, with its sizes; None where it has failed."""
    run = RunFolder(sweep / _subdir(config, number))
    if not run.is_finished or run.facts.error is not None:
        return None
    return run.facts.numbers


def values_of(numbers: Mapping[str, float], objectives: Sequence[str]) -> list[float] | None:
    """The objectives of a job with these numbers; None where it has one of them not.

    >>> values_of({"valid_accuracy": 0.5, "params": 10}, ["params"])
    [10.0]
    """
    values = [float(numbers.get(name, math.nan)) for name in objectives]
    return values if all(map(math.isfinite, values)) else None


def check_objectives(numbers: Mapping[str, float], objectives: Sequence[str], *, alike: bool) -> None:
    """Say what of the objectives a job has not; raise where others are alike, and will not have it either."""
    missing = [name for name in objectives if name not in numbers]
    if missing and alike:
        expected = f"expected an objective that the jobs have ({near_match(missing[0], numbers)})"
        raise InputError(expected, got=missing[0], where="objective")
    print(f"a job has no finite {' and '.join(missing or objectives)}: it has failed for Optuna", flush=True)


def _subdir(config: DictConfig, number: int) -> str:
    """Where Hydra has put that job."""
    own = OmegaConf.masked_copy(config, ["hydra"])
    OmegaConf.set_readonly(own, False)
    OmegaConf.update(own, "hydra.job.num", number)
    return str(own.hydra.sweep.subdir)
