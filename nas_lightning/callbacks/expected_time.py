"""How long a run is going to take, as soon as its first steps tell."""

from __future__ import annotations

import time
from typing import Any

import pytorch_lightning as pl

from nas_lightning.checks import NonNegativeFloat, PositiveInt, checked
from nas_lightning.text import duration


class ExpectedTime(pl.Callback):
    """Says once what an epoch and the rest of the run take at the pace of the first steps.

    Runs of less than `from_seconds` get no line. Evaluation is not counted; searches whose later epochs do
    more than the first take longer.

    Args:
        steps: how many are measured.
        warmup: how many are left out before them, in which devices and compilers get ready.
        from_seconds: the length of a run that is worth a line.

    >>> callback = ExpectedTime(steps=50, from_seconds=600)  # runs of ten minutes and more
    >>> callback.warmup + callback.steps  # the step after which it says how long they take
    53
    """

    @checked
    def __init__(
        self, steps: PositiveInt = 20, warmup: PositiveInt = 3, from_seconds: NonNegativeFloat = 60.0
    ) -> None:
        self.steps, self.warmup, self.from_seconds = steps, warmup, from_seconds
        self._count, self._start = 0, 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._count = 0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._count += 1
        if self._count == self.warmup:
            self._start = time.monotonic()
        if self._count == self.warmup + self.steps:
            self._tell(trainer, batch_idx, (time.monotonic() - self._start) / self.steps)

    def _tell(self, trainer: pl.Trainer, batch_idx: int, step: float) -> None:
        epochs, batches = trainer.max_epochs, trainer.num_training_batches
        if epochs is None or epochs < 0 or batches == float("inf"):
            return
        left = (epochs - trainer.current_epoch) * batches - batch_idx - 1
        if left * step >= self.from_seconds and trainer.is_global_zero:
            line = f"about {duration(batches * step)} an epoch, {duration(left * step)} to go"
            bar = trainer.progress_bar_callback
            (print if bar is None else bar.print)(line)
