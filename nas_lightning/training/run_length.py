"""The length of a run: epochs, steps, or time."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer
from pytorch_lightning.trainer.states import RunningStage

from nas_lightning.errors import InputError
from nas_lightning.validation import PositiveFloat, checked

# A search that ends in time, with schedules that follow what is left of it.

_PLAIN_END = 0.3
"""Seconds of a processor for the end of an epoch where none was timed: of a supernet of `darts` .2 to .5."""


class Deadline(Timer):
    """Ends a search so that its architecture is there after some minutes, from when this was made.

    Time is kept for what follows the last step: as long as the last end of an epoch took, and what a strategy
    with a last stage of its own expects of that, half of all at most. Until an epoch has ended, it is what
    logging and a checkpoint take on a machine as busy as this one, a twentieth of all at most. The step that
    would end nearer to the time without it is not begun. A checkpoint has the account of earlier starts. With
    `max_epochs=-1` nothing else ends the search; rates and temperatures come to their ends with it.

    Args:
        minutes: that the search takes.

    >>> deadline = Deadline(minutes=0.5)
    >>> 28 < deadline.time_remaining() <= 30
    True
    >>> deadline.expect(10)
    >>> 18 < deadline.time_remaining() <= 20, 29 < deadline.time_left() <= 30
    (True, True)
    """

    @checked
    def __init__(self, minutes: PositiveFloat) -> None:
        super().__init__(timedelta(minutes=minutes), verbose=False)
        self.minutes = minutes
        self._steps_end_in_time = False
        self._made = self._last = self._asked = time.monotonic()
        self._computed = time.process_time()
        self._step = self._last_stage = self._recorded = 0.0
        self._end_of_epoch: float | None = None  # until one has ended

    def time_elapsed(self, stage: str = RunningStage.TRAINING) -> float:
        """Seconds of all starts."""
        return self._offset + time.monotonic() - self._made

    def time_left(self) -> float:
        """Seconds until the architecture has to be there."""
        return 60 * self.minutes - self.time_elapsed()

    def time_remaining(self, stage: str = RunningStage.TRAINING) -> float:
        """Seconds that are left for steps."""
        return self.time_left() - self.end_of_epoch() - self._last_stage

    def end_of_epoch(self) -> float:
        """Seconds that the end of an epoch is expected to take, beside a last stage."""
        return self._plain_end() if self._end_of_epoch is None else self._end_of_epoch

    def stretch(self, computed: float) -> float:
        """Seconds that pass until this process has computed for so many, on a machine as busy as this one."""
        passed, so_far = time.monotonic() - self._made, time.process_time() - self._computed
        return computed * max(1.0, passed / max(so_far, 1e-3))

    def _plain_end(self) -> float:
        """Seconds of logging and a checkpoint."""
        return min(self.stretch(_PLAIN_END), 3 * self.minutes)

    def expect(self, seconds: float) -> None:
        """Keep so much for a strategy's last stage."""
        self._last_stage = min(seconds, 30 * self.minutes)

    def record(self, seconds: float) -> None:
        """The same, of a stage that has just taken so long at the end of an epoch."""
        self.expect(seconds)
        self.leave_out(seconds)

    def leave_out(self, seconds: float) -> None:
        """Of the end of an epoch that is going on, what other ends of epochs do not take."""
        self._recorded += seconds

    def affords_stage(self) -> bool:
        """Whether a stage that can be left out leaves the time of the last one."""
        return self.time_remaining() > self._last_stage

    def are_steps_over(self) -> bool:
        """Whether another piece of a step, as long as that since the last question, ends too late.

        Who asks gives up where it does, so that any step can be begun.
        """
        self._steps_end_in_time = True
        return self._is_near(self.time_remaining())

    def is_over(self) -> bool:
        """The same of a last stage, which logging and a checkpoint follow."""
        return self._is_near(self.time_left() - self._plain_end())

    def _is_near(self, left: float) -> bool:
        now = time.monotonic()
        piece, self._asked = now - self._asked, now
        return left <= piece / 2

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self._last = time.monotonic()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == 0 and trainer.current_epoch:
            self._end_of_epoch = time.monotonic() - self._last - self._recorded
            self._last = time.monotonic()
        self._recorded, self._asked = 0.0, time.monotonic()

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        self._step, self._last = time.monotonic() - self._last, time.monotonic()
        self._asked = self._last
        super().on_train_batch_end(trainer, *args, **kwargs)

    def _check_time_remaining(self, trainer: pl.Trainer) -> None:
        more = self._step + (self.end_of_epoch() if trainer.is_last_batch else 0.0)  # what going on takes
        least = 0.0 if self._steps_end_in_time else more / 2
        over = trainer.strategy.broadcast(self.time_remaining() <= least)
        trainer.should_stop = trainer.should_stop or over


# How many epochs a run has, whichever limit ends it: the epochs, the steps, or the time.
#
#     E = min(E_max, ⌈S / s⌉, e T / t)
#
# S steps, of which an epoch has s; T seconds, of which the e epochs so far took t. Schedules follow E, so
# that
# they are at their end where the run is. What the time allows is known, and known better with every epoch,
# once one has ended; where the length of an epoch is not known, nor are the steps.


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
