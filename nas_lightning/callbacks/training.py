"""Callbacks of trainings: frozen backbones and pruning of trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
from torch import nn

from nas_lightning.errors import InputError
from nas_lightning.runs.folder import PRUNED, trial_of
from nas_lightning.validation import NonNegativeInt, checked


class FrozenBackbone(pl.Callback):
    """Freezes the backbone in the first epochs: its weights and the statistics of its batch norms.

    A new classifier then learns before its errors change an inherited network. Gradients of the backbone are
    computed and discarded, since several processes exchange all gradients.

    Args:
        epochs: the number of epochs.

    >>> import torch
    >>> trainer, module = pl.Trainer(accelerator="cpu", logger=False), pl.LightningModule()
    >>> module.network = torch.nn.Module()
    >>> module.network.backbone = torch.nn.BatchNorm2d(4)
    >>> FrozenBackbone(epochs=2).on_train_batch_start(trainer, module)
    >>> module.network.backbone.training
    False
    """

    @checked
    def __init__(self, epochs: NonNegativeInt = 0) -> None:
        self.epochs = epochs

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any) -> None:
        if self.epochs:
            for module in _split(pl_module).modules:
                module.train(trainer.current_epoch >= self.epochs)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        if trainer.current_epoch < self.epochs:
            for parameter in _split(pl_module).parameters:
                parameter.grad = None


class _Backbone(NamedTuple):
    """All but the classifier."""

    modules: list[nn.Module]
    parameters: list[nn.Parameter]


def _split(module: Any) -> _Backbone:
    """Return the `backbone` of a network; else all but the last layer with one output per class."""
    network: nn.Module = module.network
    backbone = getattr(network, "backbone", None)
    if isinstance(backbone, nn.Module):
        return _Backbone([backbone], [*backbone.parameters()])
    classes = module.hparams["num_classes"]
    leaves = [leaf for leaf in network.modules() if not any(True for _ in leaf.children())]
    heads = [leaf for leaf in leaves if any(p.shape[:1] == (classes,) for p in leaf.parameters())]
    if not heads:
        expected = f"The network must have a last layer of {classes} outputs, which is trained alone at first"
        raise InputError(expected, where="callbacks.frozen")
    new = {*heads[-1].parameters()}
    modules = [leaf for leaf in leaves if leaf is not heads[-1]]
    return _Backbone(modules, [p for p in network.parameters() if p not in new])


class TrialPruning(pl.Callback):
    """Reports a metric to Optuna's median pruner after every epoch, which may end the run (arXiv:1907.10902).

    The result is derived and measured as usual. The callback needs an Optuna sweep with one objective, and
    does nothing in other runs.

    Args:
        folder: of the run.
        monitor: the metric.
        startup_trials: number of trials that finish before others are compared to them.
        warmup_epochs: number of epochs without pruning.

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
            raise InputError("pruning needs a sweep with one objective", where="callbacks.pruning")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        ended = trainer.is_global_zero and self._trial is not None and self._is_behind(trainer)
        if trainer.strategy.broadcast(ended):
            trainer.should_stop = True

    def _is_behind(self, trainer: pl.Trainer) -> bool:
        metrics = trainer.callback_metrics
        if self.monitor not in metrics:
            expected = f"`monitor` must be a metric of every epoch ({', '.join(sorted(metrics))})"
            raise InputError(expected, got=self.monitor, where="callbacks.pruning.monitor")
        self._trial.report(float(metrics[self.monitor]), trainer.current_epoch)
        if not self._trial.should_prune():
            return False
        self._trial.set_user_attr(PRUNED, trainer.current_epoch)
        print(f"ended by Optuna: {self.monitor} is behind other runs' after as many epochs", flush=True)
        return True
