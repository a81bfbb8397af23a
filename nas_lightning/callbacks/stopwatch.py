"""What a run has cost, whatever number of starts it took."""

from __future__ import annotations

import time
from typing import Any

import pytorch_lightning as pl

_KEY = "nas_lightning_seconds"


class Stopwatch(pl.Callback):
    """Counts the seconds since it was made, and those of earlier starts up to the checkpoint that is resumed.

    What a start did after its last checkpoint is done again by the next one, and counts once. It stands from
    the end of training on, while others draw and write, until it is told to go on.

    >>> earlier, now, checkpoint = Stopwatch(), Stopwatch(), {}
    >>> earlier.on_save_checkpoint(None, None, checkpoint)
    >>> now.on_load_checkpoint(None, None, checkpoint)
    >>> now.seconds() > earlier.seconds() - 1
    True
    """

    def __init__(self) -> None:
        self._start, self._earlier = time.monotonic(), 0.0
        self._end: float | None = None  # while it stands

    def seconds(self) -> float:
        """Of all starts until now."""
        now = time.monotonic() if self._end is None else self._end
        return self._earlier + now - self._start

    def go_on(self) -> None:
        """Count again."""
        if self._end is not None:
            self._start += time.monotonic() - self._end
            self._end = None

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._end = time.monotonic()

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[_KEY] = self.seconds()

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._earlier = checkpoint.get(_KEY, 0.0)
