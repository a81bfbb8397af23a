"""Parameters and multiply-adds against published numbers and formulas."""

import pytest
import torch
from torch import nn

from nas_lightning.objectives.counts import cost
from nas_lightning.spaces import DartsSpace, NasBench201

DARTS_V2 = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1),"
    " ('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)],"
    " normal_concat=[2, 3, 4, 5], reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2),"
    " ('max_pool_3x3', 1), ('max_pool_3x3', 0), ('skip_connect', 2), ('skip_connect', 2),"
    " ('max_pool_3x3', 1)], reduce_concat=[2, 3, 4, 5])"
)
PR_DARTS = (
    "Genotype(normal=[('skip_connect', 0), ('sep_conv_3x3', 1), ('dil_conv_3x3', 2), ('sep_conv_3x3', 0),"
    " ('dil_conv_3x3', 3), ('sep_conv_3x3', 1), ('dil_conv_3x3', 4), ('dil_conv_3x3', 1)],"
    " normal_concat=range(2, 6), reduce=[('avg_pool_3x3', 0), ('dil_conv_5x5', 1), ('sep_conv_3x3', 0),"
    " ('dil_conv_5x5', 2), ('sep_conv_5x5', 1), ('dil_conv_3x3', 3), ('dil_conv_5x5', 4),"
    " ('dil_conv_5x5', 1)], reduce_concat=range(2, 6))"
)
CIFAR = ({"channels": 36, "cells": 20, "num_classes": 10}, (3, 32, 32))
IMAGENET = ({"channels": 48, "cells": 14, "num_classes": 1000, "stem": "imagenet"}, (3, 224, 224))


# Measured on the authors' public model code (quark0/darts, salesforce/PR-DARTS); DARTS' paper rounds the
# first two to 3.3 M and 4.7 M parameters.
@pytest.mark.parametrize(
    ("text", "task", "params", "with_auxiliary", "macs"),
    [
        (DARTS_V2, CIFAR, 3_349_342, 3_825_768, 528_359_040),
        (DARTS_V2, IMAGENET, 4_718_752, 5_979_528, 529_911_552),
        (PR_DARTS, CIFAR, 3_444_814, 3_921_240, 529_769_088),
        (PR_DARTS, IMAGENET, 4_981_312, 6_242_088, 543_374_400),
    ],
    ids=["darts_v2-cifar", "darts_v2-imagenet", "pr_darts-cifar", "pr_darts-imagenet"],
)
def test_published_networks(text, task, params, with_auxiliary, macs):
    space, (options, image) = DartsSpace(), task
    with torch.device("meta"):
        network = space.network(space.parse(text), in_channels=3, auxiliary=False, **options)
        auxiliary = space.network(space.parse(text), in_channels=3, auxiliary=True, **options)
    assert cost(network, image) == (params, macs)
    assert cost(auxiliary, image) == (with_auxiliary, macs)  # the head works in training only


def test_largest_cell_of_nasbench201():
    """By formula; NATS-Bench lists this cell with 1.53 MB of parameters and 220.12 M multiply-adds."""
    space = NasBench201()
    text = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|"
    network = space.network(space.parse(text), in_channels=3, num_classes=10)
    params = 9 * 3 * 16 + 2 * 16  # stem and its norm
    macs = 9 * 3 * 16 * 32**2
    for c, side in ((16, 32), (32, 16), (64, 8)):
        params += 5 * 6 * (9 * c * c + 2 * c)
        macs += 5 * 6 * 9 * c * c * side**2
        if c > 16:  # residual block: 3×3 of stride 2, 3×3, and the pooled 1×1
            weights = 9 * (c // 2) * c + 9 * c * c + (c // 2) * c
            params += weights + 2 * 2 * c
            macs += weights * side**2
    params += 2 * 64 + 64 * 10 + 10
    macs += 64 * 10
    assert (params, macs) == (1_531_546, 220_119_680)
    assert cost(network, (3, 32, 32)) == (params, macs)


def test_counting_leaves_the_network_as_it_was():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    network[3].bias.requires_grad_(False)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    assert cost(network, (3, 3, 3)) == (3 * 4 * 9 + 4 + 4 + 4 + 8, 3 * 4 * 9 + 8)
    assert network.training
    assert all(p.device.type == "cpu" and p.grad is None for p in network.parameters())
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


def test_cost_as_text():
    assert str(cost(nn.Conv2d(30, 80, 1, bias=False), (30, 4, 4))) == "2,400 parameters, 38,400 multiply-adds"
