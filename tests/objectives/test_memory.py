"""The estimate against what autograd really keeps, on real tensors."""

import copy

import pytest
import torch
from torch import nn

from nas_lightning.objectives.counts import count_macs
from nas_lightning.objectives.memory import (
    bytes_for_backward,
    free_memory,
    inference_memory,
    memory_and_macs,
    optimizer_copies,
    training_memory,
)
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.training.optimizers import build_optimizer
from nas_lightning.training.retrain import training_logits


def test_a_chain_of_layers_by_hand():
    network = nn.Sequential(nn.Conv2d(3, 8, 1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5))
    memory = training_memory(network, lambda net, x: net(x), (6, 3, 4, 4), copies=2)
    # the images, and the output of the ReLU, which the linear layer keeps too; the convolution's is gone
    assert memory.activations == 4 * 6 * 16 * (3 + 8)
    parameters = 4 * (3 * 8 + 8 * 16 * 5 + 5)
    assert memory.weights == 3 * parameters
    assert memory.gradients == parameters
    assert memory.total == 3 * parameters + max(4 * 6 * 16 * 11, parameters)


@pytest.mark.parametrize("space", [NasBench201(), DartsSpace()])
@pytest.mark.parametrize("batch", [2, 5])
def test_estimate_equals_saved_tensors(space, batch):
    genotype = space.sample(torch.Generator().manual_seed(3))
    sizes = {"in_channels": 3, "num_classes": 10, "channels": 4, "cells": 3, "auxiliary": True}
    network = space.network(genotype, **sizes)
    network.set_drop_path(0.2)
    images = (batch, 3, 16, 16)
    memory = training_memory(copy.deepcopy(network), training_logits, images, copies=0)
    x = torch.randn(images)
    own = [*network.parameters(), *network.buffers(), x]
    real = bytes_for_backward(lambda: training_logits(network, x), without=own)
    assert memory.activations == pytest.approx(real + 4 * x.numel(), rel=0.02)
    assert memory.weights == sum(4 * p.numel() for p in network.parameters()) + sum(
        b.numel() * b.element_size() for b in network.buffers()
    )


def test_mixed_precision_halves_what_is_kept():
    network = NasBench201().network(
        NasBench201().sample(torch.Generator().manual_seed(0)),
        in_channels=3,
        num_classes=4,
        channels=4,
        cells=1,
    )
    whole, half = (
        training_memory(network, training_logits, (4, 3, 8, 8), copies=1, dtype=dtype)
        for dtype in (None, torch.bfloat16)
    )
    assert half.activations == pytest.approx(whole.activations / 2, rel=0.1)
    assert half.weights == whole.weights


@pytest.mark.parametrize(("opt", "copies"), [("momentum", 1), ("adamw", 2), ("lamb", 2)])
def test_optimizer_copies(opt, copies):
    assert optimizer_copies(lambda parameters: build_optimizer(parameters, opt, lr=0.1)) == copies


def test_free_memory_of_the_machine():
    free = free_memory(torch.device("cpu"))
    assert free is None or 2**20 < free < 2**50
    assert free_memory(torch.device("meta")) is None


def test_inference_memory_of_a_residual_block():
    """A residual block by hand: x, conv(x), relu of it in place, and the sum while both terms are there."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(2, 2, 3, padding=1, bias=False)

        def forward(self, x):
            y = self.conv(x).relu_()  # 32 floats, no more for the ReLU
            z = y.view(1, -1)  # no memory of its own
            return x + y + 0 * z.view_as(x)  # y, x + y, 0·z and the sum: 4 · 32

    for device in ("cpu", "meta"):
        with torch.device(device):
            found = inference_memory(Block(), torch.zeros(1, 2, 4, 4))
        assert found == 4 * (36 + 32 + 4 * 32)


@pytest.mark.parametrize("space", [DartsSpace(nodes=2), NasBench201()])
def test_meta_device_equals_cpu(space):
    genotype, found = space.sample(torch.Generator().manual_seed(3)), set()
    for device in ("cpu", "meta"):
        with torch.device(device):
            network = space.network(genotype, in_channels=3, num_classes=4, channels=4, cells=3)
            x = torch.zeros(1, 3, 8, 8)
        found |= {memory_and_macs(network, x), (inference_memory(network, x), count_macs(network, x))}
    assert len(found) == 1


def test_memory_of_batch_norms():
    for stored, statistics in ((True, 0), (False, 2 * 5)):
        with torch.device("meta"):
            norm = nn.BatchNorm2d(5, affine=False, track_running_stats=stored)
            x = torch.zeros(2, 5, 4, 4)
        buffers = 4 * (5 + 5) + 8 if stored else 0
        assert inference_memory(norm, x) == buffers + 4 * (160 + 160 + statistics)
