"""How many epochs a run has, whichever limit ends it: the epochs, the steps, or the time.

    E = min(E_max, ⌈S / s⌉, e T / t)

S steps, of which an epoch has s; T seconds, of which the e epochs so far took t. Schedules follow E, so that
they are at their end where the run is. What the time allows is known, and known better with every epoch, once
one has ended; where the length of an epoch is not known, nor are the steps.
"""

from __future__ import annotations

import math

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer

from nas_lightning.errors import InputError
from nas_lightning.training.deadline import Deadline


def epochs_of(trainer: pl.Trainer, accumulate: int = 1, behind: int | None = None) -> int:
    """E, as far as it is known now; raises where nothing ends the run.

    Args:
        trainer: has the limits.
        accumulate: batches that make one step together.
        behind: e; None: all epochs before the current one.
    """
    behind = trainer.current_epoch if behind is None else behind
    limits = [*_by_epochs(trainer), *_by_steps(trainer, behind, accumulate), *_by_time(trainer, behind)]
    if not limits:
        expected = "expected an end of the run: max_epochs, max_steps or max_time"
        raise InputError(expected, got=trainer.max_epochs, where="trainer.max_epochs")
    return limits[0] if limits == [trainer.max_epochs] else max(behind + 1, min(limits))


def is_last_epoch(trainer: pl.Trainer) -> bool:
    """Whether the epoch that ends is the last one."""
    out_of_steps = 0 < trainer.max_steps <= trainer.global_step
    return trainer.current_epoch + 1 == trainer.max_epochs or out_of_steps or trainer.should_stop


def deadline_of(trainer: pl.Trainer) -> Deadline | None:
    """What ends the run by time; None where nothing does, or a plain timer of Lightning's."""
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return next((callback for callback in callbacks if isinstance(callback, Deadline)), None)


def is_out_of_time(trainer: pl.Trainer) -> bool:
    """Whether the time of a run is over, by the clock of the first process; all processes ask at once."""
    deadline = deadline_of(trainer)
    return deadline is not None and trainer.strategy.broadcast(deadline.is_over())


def are_steps_over(trainer: pl.Trainer) -> bool:
    """Whether the time of steps is over, by the clock of this process; who asks gives up where it is."""
    deadline = deadline_of(trainer)
    return deadline is not None and deadline.are_steps_over()


def _by_epochs(trainer: pl.Trainer) -> list[int]:
    epochs = trainer.max_epochs
    return [epochs] if epochs is not None and epochs >= 1 else []


def _by_steps(trainer: pl.Trainer, behind: int, accumulate: int) -> list[int]:
    steps, batches = trainer.max_steps, trainer.num_training_batches
    if steps < 1:
        return []
    if math.isfinite(batches) and batches:
        return [math.ceil(steps / math.ceil(batches / accumulate))]
    return [math.ceil(steps * behind / trainer.global_step)] if behind and trainer.global_step else [steps]


def _by_time(trainer: pl.Trainer, behind: int) -> list[int]:
    timers = [callback for callback in trainer.callbacks if isinstance(callback, Timer)]  # type: ignore[attr-defined]
    remaining = timers[0].time_remaining() if timers else None
    if not timers or remaining is None:
        return []
    spent = trainer.strategy.broadcast(timers[0].time_elapsed())  # by one clock on all processes
    whole = trainer.strategy.broadcast(timers[0].time_elapsed() + remaining)
    return [math.ceil(behind * whole / spent)] if behind and spent else [_LONG]


_LONG = 10_000
"""Epochs, where time alone ends a run and none has ended yet: nothing has decayed."""
