"""What a trainer and its callbacks ask of a training."""

from __future__ import annotations

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelPruning
from torch import nn

from nas_lightning.errors import InputError


def choose_norm(own: float | None, trainers: float | None) -> float | None:
    """The largest norm of gradients, which the module or its trainer says.

    >>> choose_norm(5.0, None), choose_norm(None, 1.0), choose_norm(None, None)
    (5.0, 1.0, None)
    """
    if own is not None and trainers not in (None, own):
        expected = f"expected clip={trainers} or clip=None of Retrain"
        raise InputError(expected, got=f"Trainer(gradient_clip_val={trainers})", where="Retrain.clip")
    return trainers if own is None else own


def prepare_pruning(trainer: pl.Trainer, network: nn.Module, *, is_averaged: bool) -> None:
    """Lay the weights out as Lightning's `ModelPruning` reads them, where it is there: channels first.

    A running average knows parameters by their order, which pruning changes.
    """
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    if any(isinstance(callback, ModelPruning) for callback in callbacks):
        if is_averaged:
            raise InputError("expected ema_decay=None beside ModelPruning", where="Retrain.ema_decay")
        network.to(memory_format=torch.contiguous_format)
