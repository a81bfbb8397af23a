"""Trials of a sweep that end early, because others were better after as many epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from nas_lightning.checks import NonNegativeInt, checked
from nas_lightning.errors import InputError
from nas_lightning.runs.journal import PRUNED, trial_of


class TrialPruning(pl.Callback):
    """After every epoch Optuna's median pruner is told a metric, and may end the run (arXiv:1907.10902).

    What has been found by then is derived and measured as after any run. It needs a sweep of one objective
    that Optuna draws, and does nothing elsewhere.

    Args:
        folder: the run's.
        monitor: the metric.
        startup_trials: that come to their end before others are compared to them.
        warmup_epochs: in which no run ends.

    >>> TrialPruning("my_run", monitor="valid_accuracy").warmup_epochs
    0
    """

    @checked
    def __init__(
        self,
        folder: str | Path,
        monitor: str,
        startup_trials: NonNegativeInt = 5,
        warmup_epochs: NonNegativeInt = 0,
    ) -> None:
        self.folder, self.monitor = Path(folder), monitor
        self.startup_trials, self.warmup_epochs = startup_trials, warmup_epochs
        self._trial: Any = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        import optuna

        pruner = optuna.pruners.MedianPruner(self.startup_trials, self.warmup_epochs)
        self._trial = trial_of(self.folder, pruner)
        if self._trial is not None and len(self._trial.study.directions) > 1:
            raise InputError("expected one objective beside pruning", where="callbacks.pruning")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        ended = trainer.is_global_zero and self._trial is not None and self._is_behind(trainer)
        if trainer.strategy.broadcast(ended):
            trainer.should_stop = True

    def _is_behind(self, trainer: pl.Trainer) -> bool:
        metrics = trainer.callback_metrics
        if self.monitor not in metrics:
            expected = f"expected a metric of every epoch ({', '.join(sorted(metrics))})"
            raise InputError(expected, got=self.monitor, where="callbacks.pruning.monitor")
        self._trial.report(float(metrics[self.monitor]), trainer.current_epoch)
        if not self._trial.should_prune():
            return False
        self._trial.set_user_attr(PRUNED, trainer.current_epoch)
        print(f"ended by Optuna: {self.monitor} is behind other runs' after as many epochs", flush=True)
        return True
