"""The limit for numbers of processes on this machine."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import AfterValidator

from nas_lightning.validation import NonNegativeInt, PositiveInt, check_argument


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


PER_CORE = 8  # more processes would only wait for each other, and each takes hundreds of megabytes
_MOST = PER_CORE * count_cores()


def _fits_machine(count: int) -> int:
    if count > _MOST:
        raise ValueError(f"Input should be at most {_MOST}, {PER_CORE} for each core of this machine")
    return count


OF_MACHINE = AfterValidator(_fits_machine)
Processes = Annotated[PositiveInt, OF_MACHINE]
MoreProcesses = Annotated[NonNegativeInt, OF_MACHINE]
"""Number of processes in addition to this one."""


def check_processes(count: object, where: str) -> None:
    """Raise if a number of processes is above the limit; other values, such as "auto", are not checked.

    >>> check_processes(100_000, "trainer.devices")
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: `processes` must be at most ..., got 100000 (in trainer.devices)
    >>> check_processes("auto", "trainer.devices"), check_processes(-1, "hydra.launcher.n_jobs")
    (None, None)
    """
    if str(count).isdecimal():
        check_argument("processes", int(str(count)), Annotated[int, OF_MACHINE], where)
