"""Derived networks: auxiliary heads at any size, drop path, and images without color."""

import pytest
import torch
from torch import nn

from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.spaces.network import AuxiliaryHead, _pool_to_2x2

SIZES = [8, 16, 28, 32, 64]


def test_pooling_has_the_sizes_of_darts():
    for side, stride in [(8, 3), (7, 2)]:
        x = torch.randn(2, 3, side, side)
        torch.testing.assert_close(
            _pool_to_2x2(x), nn.AvgPool2d(5, stride=stride, count_include_pad=False)(x)
        )


def test_pooling_covers_maps_of_any_size():
    """Two windows a side, mirror images of each other, that leave no pixel out."""
    for side in range(1, 40):
        x = torch.randn(1, 1, side, 12, dtype=torch.float64, requires_grad=True)
        pooled = _pool_to_2x2(x)
        assert pooled.shape == (1, 1, 2, 2)
        torch.testing.assert_close(_pool_to_2x2(x.flip(2, 3)), pooled.flip(2, 3))
        torch.testing.assert_close(_pool_to_2x2(torch.ones_like(x)), torch.ones_like(pooled))
        (gradient,) = torch.autograd.grad(pooled.sum(), x)
        assert bool((gradient > 0).all())


def test_auxiliary_head_at_any_size(generator):
    for space in [DartsSpace(nodes=2), NasBench201()]:
        for size in SIZES:
            options = {"in_channels": 1, "num_classes": 5, "channels": 4, "cells": 3, "auxiliary": True}
            network = space.network(space.sample(generator), **options)
            x = torch.randn(2, 1, size, size)
            logits, auxiliary = network.eval().forward_auxiliary(x)
            assert logits.shape == auxiliary.shape == (2, 5)
            torch.testing.assert_close(logits, network(x))
            network.train().forward_auxiliary(x)[1].sum().backward()
            assert all(p.grad is not None for p in network.auxiliary.parameters())


def test_auxiliary_head_behind_the_imagenet_stem(generator):
    for size in [64, 97, 224]:
        space = DartsSpace(nodes=1)
        options = {"channels": 4, "cells": 3, "stem": "imagenet", "auxiliary": True}
        network = space.network(space.sample(generator), in_channels=3, num_classes=7, **options)
        assert network.forward_auxiliary(torch.randn(2, 3, size, size))[1].shape == (2, 7)


def test_auxiliary_head_reads_the_cell_at_two_thirds(generator):
    """Cell 13 of 20 counted from 0 (Shu 2022, section 5.3.5), which is the second reduction cell."""
    for cells, place in [(20, 13), (14, 9)]:
        space = DartsSpace(nodes=2)
        options = {"in_channels": 1, "num_classes": 3, "channels": 2, "cells": cells, "auxiliary": True}
        network = space.network(space.sample(generator), **options).eval()
        outputs, read = [], []
        for cell in network.backbone.cells:
            cell.register_forward_hook(lambda _, inputs, output: outputs.append(output))
        network.auxiliary.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
        network.forward_auxiliary(torch.randn(1, 1, 16, 16, generator=generator))
        assert len(outputs) == cells
        assert [index for index, output in enumerate(outputs) if output is read[0]] == [place]
        assert network.backbone.kinds[place] == "reduce"


def test_auxiliary_head_by_hand():
    """ReLU, pool, 1×1 to 128, norm, ReLU, 2×2 to 768, norm, ReLU, linear: DARTS' parameters."""
    c, classes = 6, 10
    with_norm = 128 * c + 2 * 128 + 768 * 128 * 4 + 2 * 768 + 768 * classes + classes
    assert sum(p.numel() for p in AuxiliaryHead(c, classes).parameters()) == with_norm
    assert sum(p.numel() for p in AuxiliaryHead(c, classes, False).parameters()) == with_norm - 2 * 768


def test_without_the_head_there_is_nothing_to_ask(generator):
    space = NasBench201()
    network = space.network(space.sample(generator), in_channels=3, num_classes=5, channels=4, cells=1)
    with pytest.raises(RuntimeError, match="auxiliary=True"):
        network.forward_auxiliary(torch.zeros(1, 3, 8, 8))


def test_drop_path_is_for_training_and_for_operations():
    space = NasBench201()
    skips = "|skip_connect~0|+|skip_connect~0|skip_connect~1|+|skip_connect~0|skip_connect~1|skip_connect~2|"
    x = torch.randn(8, 3, 8, 8)
    for text, changes in ((skips, False), (skips.replace("skip_connect", "nor_conv_1x1"), True)):
        options = {"in_channels": 3, "num_classes": 5, "channels": 4, "cells": 1}
        network = space.network(space.parse(text), **options)
        plain, evaluated = network(x), network.eval()(x)
        network.train().set_drop_path(0.5)
        assert torch.equal(network(x), plain) == (not changes)
        network.set_drop_path(0.0)
        assert torch.equal(network(x), plain)
        network.set_drop_path(0.5)
        assert network.eval()(x).shape == evaluated.shape


def test_dropout_reaches_the_classifier(generator):
    space = NasBench201()
    options = {"in_channels": 3, "num_classes": 5, "channels": 4, "cells": 1, "dropout": 1 - 1e-9}
    network = space.network(space.sample(generator), **options)
    torch.testing.assert_close(network(torch.randn(2, 3, 8, 8)), network.head.bias.expand(2, 5))
