"""The published way of a derived network is the same function as ours."""

import torch

from benchmarks.reference.derived_network import PlainNetwork
from benchmarks.retrain_step import DARTS_V2
from nas_lightning.spaces import DartsSpace
from nas_lightning.spaces.darts import DartsCell
from nas_lightning.spaces.graph import CellGraph


def test_darts_v2_in_float64():
    torch.manual_seed(0)
    space = DartsSpace()
    sizes = {"in_channels": 3, "num_classes": 5, "channels": 4, "cells": 3, "auxiliary": True}
    network = space.network(space.parse(DARTS_V2), **sizes).double()
    plain, x = PlainNetwork(network), torch.randn(3, 3, 15, 12, dtype=torch.float64)
    assert not any(isinstance(part, (CellGraph, DartsCell)) for part in plain.modules())

    def outcome(net):
        logits, auxiliary = net.forward_auxiliary(x)
        loss = logits.square().sum() + auxiliary.square().sum()
        return [logits, auxiliary, *torch.autograd.grad(loss, list(net.parameters()))]

    torch.testing.assert_close(outcome(network), outcome(plain), rtol=1e-8, atol=1e-10)
