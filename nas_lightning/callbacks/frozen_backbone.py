"""A new classifier on an inherited network learns alone at first, before its errors disturb what is below."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytorch_lightning as pl
from torch import nn

from nas_lightning.checks import NonNegativeInt, checked
from nas_lightning.errors import InputError


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
    """A network's `backbone`; else all but the last layer with as many outputs as there are classes."""
    network: nn.Module = module.network
    backbone = getattr(network, "backbone", None)
    if isinstance(backbone, nn.Module):
        return _Backbone([backbone], [*backbone.parameters()])
    classes = module.hparams["num_classes"]
    leaves = [leaf for leaf in network.modules() if not any(True for _ in leaf.children())]
    heads = [leaf for leaf in leaves if any(p.shape[:1] == (classes,) for p in leaf.parameters())]
    if not heads:
        expected = f"expected a last layer of {classes} outputs, which learns alone at first"
        raise InputError(expected, where="callbacks.frozen")
    new = {*heads[-1].parameters()}
    modules = [leaf for leaf in leaves if leaf is not heads[-1]]
    return _Backbone(modules, [p for p in network.parameters() if p not in new])
