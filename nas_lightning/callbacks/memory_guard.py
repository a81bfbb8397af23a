"""Whether a batch fits into the device's memory, said before training starts and not hours later."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.cost.memory import Memory, free_memory, optimizer_copies, training_memory
from nas_lightning.data import ImageData, OwnData
from nas_lightning.errors import InputError
from nas_lightning.training.logits import training_logits
from nas_lightning.training.optim import build_optimizer
from nas_lightning.training.retrain import Retrain

_MB, _GB = 1024**2, 1024**3


class MemoryGuard(pl.Callback):
    """Estimates what a training step of `Retrain` keeps, and refuses a batch that cannot fit.

    The estimate is a lower bound: what autograd keeps, weights, optimiser and running average, without what
    libraries and the display need.

    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> network = space.network(space.sample(torch.Generator().manual_seed(0)), **sizes)
    >>> one, two = (step_memory(Retrain(network, 10), (batch, 1, 8, 8), "32-true") for batch in (16, 32))
    >>> one.weights == two.weights, one.activations < two.activations
    (True, True)
    """

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]  # set by `fit`
        if not (isinstance(pl_module, Retrain) and isinstance(data, (ImageData, OwnData))):
            return
        device = trainer.strategy.root_device
        free = free_memory(device)
        if free is not None and device.type == "cpu":
            free //= trainer.num_devices  # processes that share it

        def memory_of_batch(batch: int) -> Memory:
            return step_memory(pl_module, (batch, *data.image), str(trainer.precision))

        try:
            memory_of_batch(1)
        except Exception:  # a network of somebody's own decides by values, which shapes alone do not have
            return
        check_fits(memory_of_batch, data.batch_size, free, str(device))


def step_memory(module: Retrain, images: tuple[int, ...], precision: str) -> Memory:
    """What a step of that module on (b, c, h, w) images needs at least."""
    chosen = module.hparams
    copies = optimizer_copies(
        lambda parameters: build_optimizer(parameters, chosen["opt"], lr=0.1, momentum=chosen["momentum"])
    )
    half = torch.bfloat16 if precision.endswith("-mixed") else None
    average = 0 if module.average is None else 1
    return training_memory(module.network, training_logits, images, copies=copies + average, dtype=half)


def check_fits(memory_of_batch: Any, batch: int, free: int | None, device: str) -> None:
    """Say what a batch takes, or raise where there is less: with the largest part of it that fits."""
    memory: Memory = memory_of_batch(batch)
    if free is None or memory.total <= free:
        of = "" if free is None else f" of {_gb(free)} free on {device}"
        _say(
            f"memory: at least {_gb(memory.total)}{of} for {batch} images a step "
            f"({_gb(memory.activations)} activations, {_gb(memory.weights)} weights and optimiser)"
        )
        return
    parts = next((k for k in range(2, batch + 1) if memory_of_batch(batch // k).total <= free), None)
    fix = "no batch fits: choose a smaller network"
    if parts is not None:
        fix = (
            f"dataset.batch_size={batch // parts} fits, and with trainer.accumulate_grad_batches={parts} "
            "steps stay as large"
        )
    raise InputError(
        f"expected at most {_gb(free)}, which is free on {device}; {batch} images a step need at least "
        f"{_gb(memory.total)}; {fix}",
        where="dataset.batch_size",
    )


def _gb(size: int) -> str:
    """Two digits that count.

    >>> _gb(9_500_000), _gb(1_800_000_000), _gb(24 * 1024**3)
    ('9.1 MB', '1.7 GB', '24 GB')
    """
    number, unit = (size / _MB, "MB") if size < 1000 * _MB else (size / _GB, "GB")
    return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"


@rank_zero_only
def _say(line: str) -> None:
    print(line, flush=True)
