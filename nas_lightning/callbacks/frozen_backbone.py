"""A new classifier on an inherited network learns alone at first, before its errors disturb what is below."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytorch_lightning as pl
from torch import nn

from nas_lightning.checks import NonNegativeInt, checked
from nas_lightning.errors import InputError
from nas_lightning.spaces.network import DerivedNetwork


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
            for module in _modules(pl_module):
                module.train(trainer.current_epoch >= self.epochs)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        if trainer.current_epoch < self.epochs:
            for parameter in chain.from_iterable(module.parameters() for module in _modules(pl_module)):
                parameter.grad = None


def _modules(module: Any) -> list[nn.Module]:
    """What is not the classifier: the last layer with as many outputs as there are classes."""
    network: nn.Module = module.network
    if isinstance(network, DerivedNetwork):
        return [network.backbone]
    classes = module.hparams["num_classes"]
    leaves = [leaf for leaf in network.modules() if not any(True for _ in leaf.children())]
    classifiers = [leaf for leaf in leaves if any(p.shape[:1] == (classes,) for p in leaf.parameters())]
    if not classifiers:
        raise InputError(
            f"expected a last layer of {classes} outputs, which learns alone at first",
            where="callbacks.frozen",
        )
    return [leaf for leaf in leaves if leaf is not classifiers[-1]]
