"""The best epoch's weights, judged on images set aside from training."""

from __future__ import annotations

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint

from nas_lightning.errors import InputError
from nas_lightning.training.epoch_means import EpochMeans, name_as_others_do


class BestCheckpoint(ModelCheckpoint):
    """Lightning's `ModelCheckpoint`, silent in runs that have nothing to validate on.

    There the last epoch counts; no run is ever judged by test data.

    >>> best = BestCheckpoint(monitor="valid_accuracy", mode="max", filename="best")
    >>> trainer = pl.Trainer(callbacks=[best], accelerator="cpu", logger=False)
    >>> trainer.checkpoint_callback.monitor
    'valid_accuracy'
    """

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        scores = getattr(pl_module, "val_scores", None)
        names = [*scores.named.values(), "loss"] if isinstance(scores, EpochMeans) else ["accuracy", "loss"]
        logged = {f"valid_{name}": None for name in names}
        if self.monitor not in {*logged, *name_as_others_do(logged)}:
            expected = f"expected a metric of the validation ({', '.join(logged)})"
            raise InputError(expected, got=self.monitor, where="callbacks.best.monitor")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if sum(trainer.fit_loop.epoch_loop.val_loop.max_batches):
            super().on_train_epoch_end(trainer, pl_module)
