"""What a run has cost, whatever number of starts it took."""

from __future__ import annotations

import time
from typing import Any

import pytorch_lightning as pl

_KEY = "nas_lightning_seconds"


class Stopwatch(pl.Callback):
    """Counts the seconds since it was made, and those of earlier starts up to the checkpoint that is resumed.

    What a start did after its last checkpoint is done again by the next one, and counts once.

    >>> earlier, now, checkpoint = Stopwatch(), Stopwatch(), {}
    >>> earlier.on_save_checkpoint(None, None, checkpoint)
    >>> now.on_load_checkpoint(None, None, checkpoint)
    >>> now.seconds() > earlier.seconds() - 1
    True
    """

    def __init__(self) -> None:
        self._start, self._earlier = time.monotonic(), 0.0

    def seconds(self) -> float:
        """Of all starts until now."""
        return self._earlier + time.monotonic() - self._start

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[_KEY] = self.seconds()

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._earlier = checkpoint.get(_KEY, 0.0)
