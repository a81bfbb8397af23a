"""The best epoch's weights, judged on images set aside from training."""

from __future__ import annotations

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint

from nas_lightning.errors import InputError

LOGGED = ("val_accuracy", "val_loss")


class BestCheckpoint(ModelCheckpoint):
    """Lightning's `ModelCheckpoint`, silent in runs that have nothing to validate on.

    There the last epoch counts; no run is ever judged by test data.

    >>> best = BestCheckpoint(monitor="val_accuracy", mode="max", filename="best")
    >>> trainer = pl.Trainer(callbacks=[best], accelerator="cpu", logger=False)
    >>> trainer.checkpoint_callback.monitor
    'val_accuracy'
    """

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.monitor not in LOGGED:
            expected = f"expected a metric of the validation ({', '.join(LOGGED)})"
            raise InputError(expected, got=self.monitor, where="callbacks.best.monitor")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if sum(trainer.fit_loop.epoch_loop.val_loop.max_batches):
            super().on_train_epoch_end(trainer, pl_module)
