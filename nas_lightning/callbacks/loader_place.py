"""Loaders that go on at their place, also where somebody has asked for them too early."""

from __future__ import annotations

import pytorch_lightning as pl


class LoaderPlace(pl.Callback):
    """Hands loaders the place that a checkpoint holds, where Lightning could not.

    Lightning gives a loader its state when it makes it, which is after the loops have theirs. A module that
    asks for `trainer.estimated_stepping_batches` in `configure_optimizers` has it made before: the loader
    then starts its epoch over, in silence. When training starts, a state that still waits is handed over.

    >>> trainer = pl.Trainer(callbacks=[LoaderPlace()], accelerator="cpu", logger=False)
    >>> any(isinstance(callback, LoaderPlace) for callback in trainer.callbacks)
    True
    """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        loop = trainer.fit_loop
        if not loop._combined_loader_states_to_load:
            return
        loop._load_combined_loader_states()
        if loop._data_fetcher is not None:
            iter(loop._data_fetcher)  # the iterator that was made of the loader's first place
