"""Real images: a small DARTS_V2 trained by `Retrain` and by a bare PyTorch loop, step for step."""

import copy
import math

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.retrain_step import DARTS_V2
from nas_lightning.data import Cifar10
from nas_lightning.spaces import DartsSpace
from nas_lightning.training.retrain import Retrain

STEPS, EPOCHS = 3, 2


class Losses(pl.Callback):
    """The loss of each step; random numbers follow from the step."""

    def __init__(self):
        self.found = []

    def on_train_batch_start(self, trainer, *args):
        torch.manual_seed(trainer.global_step)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.found.append(outputs["loss"].item())


@pytest.mark.slow
def test_losses_on_cifar10_are_those_of_a_bare_loop(shared_data):
    data = Cifar10(root=str(shared_data / "cifar10"), batch_size=16, subset=16 * STEPS, cutout=16, seed=4)
    data.setup()
    space, sizes = DartsSpace(), {"channels": 8, "cells": 5, "auxiliary": True}
    network = space.network(space.parse(DARTS_V2), in_channels=3, num_classes=10, **sizes)
    bare, losses = copy.deepcopy(network), Losses()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", callbacks=[losses], enable_checkpointing=False, **quiet
    )
    trainer.fit(Retrain(network, 10, drop_path=0.4), data)

    optimizer = torch.optim.SGD(bare.parameters(), 0.025, momentum=0.9, weight_decay=3e-4)
    expected = []
    for epoch in range(EPOCHS):
        bare.set_drop_path(0.4 * epoch / EPOCHS)
        optimizer.param_groups[0]["lr"] = 0.025 * (1 + math.cos(math.pi * epoch / EPOCHS)) / 2
        for x, y in data.batches(data.train).batches(epoch, 0, STEPS):
            torch.manual_seed(len(expected))
            logits, auxiliary = bare.forward_auxiliary(x)
            loss = F.cross_entropy(logits, y) + 0.4 * F.cross_entropy(auxiliary, y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(bare.parameters(), 5.0)
            optimizer.step()
            expected.append(loss.item())
    assert losses.found == expected
    for ours, theirs in zip(network.parameters(), bare.parameters(), strict=True):
        assert torch.equal(ours, theirs)
