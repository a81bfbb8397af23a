"""What Optuna is told of a job that has ended: its objectives, as the job's folder has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from omegaconf import DictConfig, OmegaConf

from nas_lightning.errors import InputError
from nas_lightning.runs.folder import RunFolder

Direction = Literal["maximize", "minimize"]
_DIRECTIONS: dict[str, Direction] = {"maximize": "maximize", "minimize": "minimize"}
_LESS = ("loss", "error", "rank", "params", "macs", "seconds", "latency_ms", "memory_mb")
_SIZES = ("params", "macs", "seconds")


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


def values_of(sweep: Path, number: int, config: DictConfig, objectives: Sequence[str]) -> list[float] | None:
    """The objectives of a job; None where it has failed, or has one of them not."""
    run = RunFolder(sweep / _subdir(config, number))
    if not run.is_finished or run.facts.error is not None:
        return None
    facts = run.facts
    numbers = {**facts.metrics, **{name: getattr(facts, name) for name in _SIZES}}
    values = [numbers.get(name) for name in objectives]
    if any(value is None or not math.isfinite(value) for value in values):
        print(f"job {number} has no {' and '.join(objectives)}: it has failed for Optuna", flush=True)
        return None
    return [float(value) for value in values if value is not None]


def _subdir(config: DictConfig, number: int) -> str:
    """Where Hydra has put that job."""
    own = OmegaConf.masked_copy(config, ["hydra"])
    OmegaConf.set_readonly(own, False)
    OmegaConf.update(own, "hydra.job.num", number)
    return str(own.hydra.sweep.subdir)
