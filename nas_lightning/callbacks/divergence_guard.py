"""A training that has diverged ends there, and the last checkpoint stays one of finite weights."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn

from nas_lightning.errors import DivergenceError, InputError, near_match

LOSS = "train_loss"


class DivergenceGuard(pl.Callback):
    """Ends a run, with one line, whose loss or weights are no longer finite.

    Weights are looked at after the last batch of an epoch, before anybody derives something from them, and
    before each checkpoint, which is not written then; the loss that the epoch logs at its end.

    Args:
        monitor: the loss, by the name that it is logged as.

    >>> module = pl.LightningModule()
    >>> module.layer = nn.Linear(1, 1)
    >>> _ = module.layer.bias.data.fill_(float("nan"))
    >>> DivergenceGuard().on_save_checkpoint(pl.Trainer(accelerator="cpu", logger=False), module, {})
    Traceback (most recent call last):
        ...
    nas_lightning.errors.DivergenceError: expected finite weights: lower the learning rate, or ...
    """

    def __init__(self, monitor: str = LOSS) -> None:
        self.monitor = monitor
        self._ended = False  # an epoch, in this start of the run

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any) -> None:
        if trainer.is_last_batch:
            _check_weights(trainer, pl_module)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._check_monitor(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._check_monitor(trainer)

    def _check_monitor(self, trainer: pl.Trainer) -> None:
        """Raise for a name that no epoch has logged; not all searches have the usual one."""
        names = sorted(trainer.callback_metrics)
        if self._ended and self.monitor not in (LOSS, *names):
            expected = f"expected the name of a metric ({near_match(self.monitor, names)})"
            raise InputError(expected, got=self.monitor, where="callbacks.divergence.monitor")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        value = trainer.callback_metrics.get(self.monitor)
        self._ended = True
        if value is not None and not bool(torch.isfinite(value).all()):
            raise _divergence(trainer, f"a finite {self.monitor}", float(value))

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        _check_weights(trainer, pl_module)


def infinite_parameter(module: nn.Module) -> str | None:
    """The first parameter that has a value which is not finite.

    >>> layer = nn.Linear(2, 2)
    >>> infinite_parameter(layer) is None
    True
    >>> _ = layer.bias.data.fill_(float("nan"))
    >>> infinite_parameter(layer)
    'bias'
    """
    return next((name for name, value in module.named_parameters() if not _finite(value)), None)


def _finite(value: torch.Tensor) -> bool:
    return bool(torch.isfinite(value.detach()).all())


def _check_weights(trainer: pl.Trainer, module: nn.Module) -> None:
    name = infinite_parameter(module)
    if name is not None:
        raise _divergence(trainer, "finite weights", f"nan or inf in {name}")


def _divergence(trainer: pl.Trainer, expected: str, got: object) -> DivergenceError:
    where = f"epoch {trainer.current_epoch}, step {trainer.global_step}"
    remedy = "lower the learning rate, or clip gradients"
    return DivergenceError(f"expected {expected}: {remedy}", got=got, where=where)
