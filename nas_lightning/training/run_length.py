"""The length of a run: epochs, steps, or time."""

from __future__ import annotations

import math
import time
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer

from nas_lightning.errors import InputError
from nas_lightning.validation import PositiveFloat, checked

# A time limit for a search, which schedules follow.

_PLAIN_END = 0.3
"""Seconds of processor time for the end of an epoch until one was timed; .2 to .5 in the space `darts`."""


class Deadline(pl.Callback):
    """Ends a search in time for its architecture to be derived within some minutes from construction.

    Time is reserved for what follows the last step: as much as the last end of an epoch took, plus what a
    strategy with a last stage expects of it, at most half of the total. Until an epoch has ended, the reserve
    is what logging and a checkpoint take on a machine as busy as this one, at most a twentieth of the total.
    A step is not begun if stopping before it ends nearer to the limit. Checkpoints keep the time that earlier
    starts took. With `max_epochs=-1` nothing else ends the search; rates and temperatures follow the limit.

    Args:
        minutes: the time limit.

    >>> deadline = Deadline(minutes=0.5)
    >>> 28 < deadline.time_remaining() <= 30
    True
    >>> deadline.expect(10)
    >>> 18 < deadline.time_remaining() <= 20, 29 < deadline.time_left() <= 30
    (True, True)
    """

    @checked
    def __init__(self, minutes: PositiveFloat) -> None:
        self.minutes = minutes
        self._earlier = 0.0  # seconds of earlier starts
        self._steps_end_in_time = False
        self._made = self._last = self._asked = time.monotonic()
        self._computed = time.process_time()
        self._step = self._last_stage = self._recorded = 0.0
        self._end_of_epoch: float | None = None  # until one has ended

    def time_elapsed(self) -> float:
        """Return the seconds of all starts."""
        return self._earlier + time.monotonic() - self._made

    def time_left(self) -> float:
        """Return the seconds until the architecture has to be derived."""
        return 60 * self.minutes - self.time_elapsed()

    def time_remaining(self) -> float:
        """Return the seconds left for steps."""
        return self.time_left() - self.end_of_epoch() - self._last_stage

    def end_of_epoch(self) -> float:
        """Return the expected seconds of the end of an epoch, without a last stage."""
        return self._plain_end() if self._end_of_epoch is None else self._end_of_epoch

    def stretch(self, computed: float) -> float:
        """Return the wall-clock time of so many seconds of computing on a machine as busy as this one."""
        passed, so_far = time.monotonic() - self._made, time.process_time() - self._computed
        return computed * max(1.0, passed / max(so_far, 1e-3))

    def _plain_end(self) -> float:
        """Return the seconds of logging and a checkpoint."""
        return min(self.stretch(_PLAIN_END), 3 * self.minutes)

    def expect(self, seconds: float) -> None:
        """Reserve time for a strategy's last stage."""
        self._last_stage = min(seconds, 30 * self.minutes)

    def record(self, seconds: float) -> None:
        """Reserve as much as a stage at the end of this epoch has just taken."""
        self.expect(seconds)
        self.leave_out(seconds)

    def leave_out(self, seconds: float) -> None:
        """Do not count these seconds of the current end of an epoch for later ones."""
        self._recorded += seconds

    def affords_stage(self) -> bool:
        """Return whether an optional stage leaves enough time for the last one."""
        return self.time_remaining() > self._last_stage

    def are_steps_over(self) -> bool:
        """Return whether another piece of a step, as long as that since the last call, would end too late.

        A caller stops at once where it would, so that any step can be begun.
        """
        self._steps_end_in_time = True
        return self._is_near(self.time_remaining())

    def is_over(self) -> bool:
        """Return the same for a last stage, which logging and a checkpoint follow."""
        return self._is_near(self.time_left() - self._plain_end())

    def _is_near(self, left: float) -> bool:
        now = time.monotonic()
        piece, self._asked = now - self._asked, now
        return left <= piece / 2

    def state_dict(self) -> dict[str, Any]:
        return {"time_elapsed": self.time_elapsed()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._earlier = state_dict["time_elapsed"]

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop_in_time(trainer)  # a restored account may be exhausted

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
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
        self._stop_in_time(trainer)

    def _stop_in_time(self, trainer: pl.Trainer) -> None:
        more = self._step + (self.end_of_epoch() if trainer.is_last_batch else 0.0)  # for another step
        least = 0.0 if self._steps_end_in_time else more / 2
        over = trainer.strategy.broadcast(self.time_remaining() <= least)
        trainer.should_stop = trainer.should_stop or over


# The number of epochs of a run, whichever limit ends it: epochs, steps, or time.
#
#     E = min(E_max, ⌈S / s⌉, e T / t)
#
# S is the limit of steps, s the steps of an epoch, T the time limit, and t what the e epochs so far took.
# Schedules follow E, so that they end with the run. The time's estimate is known once an epoch has ended.


def epochs_of(trainer: pl.Trainer, accumulate: int = 1, behind: int | None = None) -> int:
    """Return the current estimate of E.

    Args:
        trainer: has the limits.
        accumulate: batches per step.
        behind: e; None: all epochs before the current one.

    Raises:
        InputError: If nothing ends the run.
    """
    behind = trainer.current_epoch if behind is None else behind
    limits = [*_by_epochs(trainer), *_by_steps(trainer, behind, accumulate), *_by_time(trainer, behind)]
    if not limits:
        expected = "The run needs an end: pass max_epochs, max_steps, or max_time"
        raise InputError(expected, got=trainer.max_epochs, where="trainer.max_epochs")
    return limits[0] if limits == [trainer.max_epochs] else max(behind + 1, min(limits))


def is_last_epoch(trainer: pl.Trainer) -> bool:
    """Return whether the epoch that ends is the last one."""
    out_of_steps = 0 < trainer.max_steps <= trainer.global_step
    return trainer.current_epoch + 1 == trainer.max_epochs or out_of_steps or trainer.should_stop


def deadline_of(trainer: pl.Trainer) -> Deadline | None:
    """Return the deadline of a run, None if it has none."""
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return next((callback for callback in callbacks if isinstance(callback, Deadline)), None)


def is_out_of_time(trainer: pl.Trainer) -> bool:
    """Return whether the time is over by the clock of the first process; all processes must call this."""
    deadline = deadline_of(trainer)
    return deadline is not None and trainer.strategy.broadcast(deadline.is_over())


def are_steps_over(trainer: pl.Trainer) -> bool:
    """Return whether the time of steps is over by the clock of this process; the caller then stops."""
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
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    timers = [callback for callback in callbacks if isinstance(callback, (Deadline, Timer))]
    remaining = timers[0].time_remaining() if timers else None
    if not timers or remaining is None:
        return []
    spent = trainer.strategy.broadcast(timers[0].time_elapsed())  # by one clock on all processes
    whole = trainer.strategy.broadcast(timers[0].time_elapsed() + remaining)
    return [math.ceil(behind * whole / spent)] if behind and spent else [_LONG]


_LONG = 10_000
"""Epochs while time alone ends a run and none has ended yet: nothing decays."""
