"""A metrics file without the rows that a resumed run computes again."""

from __future__ import annotations

import pytorch_lightning as pl

from nas_lightning.tracking import MetricsCSV


class RewindMetrics(pl.Callback):
    """When training starts, and when its test does, drops the rows of `MetricsCSV` from that step on.

    Rows are on disk before a checkpoint that follows them, and a resumed run repeats those after it. Only the
    epoch's own row comes behind the checkpoint at the epoch's end; the next epoch does not repeat it.
    """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        _rewind(trainer)

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.fit_loop.epoch_loop._batches_that_stepped:  # a test after training, not one by itself
            _rewind(trainer)


def _rewind(trainer: pl.Trainer) -> None:
    step = trainer.fit_loop.epoch_loop._batches_that_stepped  # what Lightning gives loggers as `step`
    for logger in trainer.loggers:
        if isinstance(logger, MetricsCSV):
            logger.rewind(step)
