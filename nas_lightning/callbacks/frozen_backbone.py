"""A new classifier on an inherited network learns alone at first, before its errors disturb what is below."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl

from nas_lightning.checks import NonNegativeInt, checked


class FrozenBackbone(pl.Callback):
    """Keeps the backbone as it is in the first epochs: its weights and the statistics of its batch norms.

    Its gradients are computed and thrown away, since processes exchange all gradients or wait for each other.

    Args:
        epochs: how many; 0: none.

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
            _backbone(pl_module).train(trainer.current_epoch >= self.epochs)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        if trainer.current_epoch < self.epochs:
            for parameter in _backbone(pl_module).parameters():
                parameter.grad = None


def _backbone(module: Any) -> Any:
    return module.network.backbone
