"""A metrics file that has each row of a resumed run once."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl

from nas_lightning.runs.metrics_csv import MetricsCSV

EPOCH_ROW, STEP_ROW = "nas_lightning_epoch_row", "nas_lightning_step_row"


class RewindMetrics(pl.Callback):
    """When training or its test starts, drops the rows of `MetricsCSV` that the run computes again.

    Rows are on disk before a checkpoint that follows them, and a resumed run repeats those after it. Only the
    row of the very step, or epoch, after which a checkpoint is saved comes behind it, and is not computed
    again. So the checkpoint carries that row, and a resumed run writes it where a kill between the two has
    lost it.

    >>> logger = MetricsCSV("my_run")
    >>> trainer = pl.Trainer(callbacks=[RewindMetrics()], logger=logger, accelerator="cpu")
    >>> trainer.logger is logger
    True
    """

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, float]] = {}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint.update(_pending_row(trainer))

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._rows = {name: checkpoint[name] for name in (EPOCH_ROW, STEP_ROW) if name in checkpoint}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        _rewind(trainer, self._rows)
        self._rows = {}

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._rows:  # all epochs were done, so no training started
            _rewind(trainer, self._rows)

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.fit_loop.epoch_loop._batches_that_stepped:  # a test after training, not one by itself
            _rewind(trainer, {})


def _pending_row(trainer: pl.Trainer) -> dict[str, dict[str, float]]:
    """What Lightning is about to log: of the epoch that has ended, or of the step within one."""
    connector = trainer._logger_connector
    if not trainer.training:
        return {}
    within = connector._first_loop_iter is not None
    if within and not connector.should_update_logs:
        return {STEP_ROW: {}}
    row = {name: float(value) for name, value in connector.metrics["log"].items()}
    return {STEP_ROW if within else EPOCH_ROW: {"epoch": trainer.current_epoch, **row} if row else {}}


def _rewind(trainer: pl.Trainer, rows: dict[str, dict[str, float]]) -> None:
    step = trainer.fit_loop.epoch_loop._batches_that_stepped  # what Lightning gives loggers as `step`
    if STEP_ROW in rows:  # saved before Lightning counted the step, which is not repeated
        step += 1
    for logger in trainer.loggers:
        if isinstance(logger, MetricsCSV):
            logger.rewind(step, rows.get(STEP_ROW) or rows.get(EPOCH_ROW))
