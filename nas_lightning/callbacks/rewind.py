"""A metrics file that has each row of a resumed run once."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl

from nas_lightning.runs.metrics_csv import MetricsCSV

CHECKPOINT_KEY = "nas_lightning_epoch_row"


class RewindMetrics(pl.Callback):
    """When training starts, and when its test does, drops the rows of `MetricsCSV` from that step on.

    Rows are on disk before a checkpoint that follows them, and a resumed run repeats those after it. Only the
    epoch's own row comes behind the checkpoint at the epoch's end, and the next epoch does not repeat it. So
    the checkpoint carries that row, and a resumed run writes it where a kill between the two has lost it.
    """

    def __init__(self) -> None:
        self._row: dict[str, float] = {}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[CHECKPOINT_KEY] = _epoch_row(trainer)

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._row = checkpoint.get(CHECKPOINT_KEY, {})

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        _rewind(trainer, self._row)
        self._row = {}

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._row:  # all epochs were done, so no training started
            _rewind(trainer, self._row)

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.fit_loop.epoch_loop._batches_that_stepped:  # a test after training, not one by itself
            _rewind(trainer, {})


def _epoch_row(trainer: pl.Trainer) -> dict[str, float]:
    """What Lightning is about to log for the epoch that has ended; nothing within an epoch."""
    connector = trainer._logger_connector
    if not trainer.training or connector._first_loop_iter is not None:
        return {}
    row = {name: float(value) for name, value in connector.metrics["log"].items()}
    return {"epoch": trainer.current_epoch, **row} if row else {}


def _rewind(trainer: pl.Trainer, epoch_row: dict[str, float]) -> None:
    step = trainer.fit_loop.epoch_loop._batches_that_stepped  # what Lightning gives loggers as `step`
    for logger in trainer.loggers:
        if isinstance(logger, MetricsCSV):
            logger.rewind(step, epoch_row)
