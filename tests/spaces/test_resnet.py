"""Residual networks: shapes and counts by hand, invalid genotypes."""

import pytest
import torch
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Genotype
from nas_lightning.spaces import ResNet

SPACE = ResNet()


def build(notation, **options):
    return SPACE.network(SPACE.parse(notation), in_channels=3, num_classes=5, channels=8, **options)


def test_parameters_by_hand():
    """Of widths 8, 20, 24 and depths 1, 2, 1, written down convolution by convolution."""
    convolutions = 3 * 8 * 9
    norms = [8]
    for c_in, c_out in ((8, 8), (8, 20), (20, 20), (20, 24)):
        convolutions += c_in * c_out * 9 + c_out * c_out * 9
        norms += [c_out, c_out]
        if c_in != c_out:
            convolutions += c_in * c_out
            norms.append(c_out)
    network = build("4x1|5x2|3x1")
    assert network.backbone.widths == [8, 20, 20, 24]
    assert sum(p.numel() for p in network.parameters()) == convolutions + 2 * sum(norms) + 24 * 5 + 5


def test_the_resolution_is_halved_twice():
    outputs = list(build("2x2|2x1|2x3").backbone.cells_outputs(torch.zeros(2, 3, 16, 16)))
    assert [output.shape[2] for output in outputs] == [16, 16, 8, 4, 4, 4]


def test_a_block_is_the_equation():
    block = build("4x2|4x1|4x1").eval().backbone.blocks[1]
    x = torch.randn(2, 8, 6, 6).relu()
    inner = F.conv2d(x, block.conv1.weight, padding=1) / (1 + 1e-5) ** 0.5
    inner = F.conv2d(inner.relu(), block.conv2.weight, padding=1) / (1 + 1e-5) ** 0.5
    torch.testing.assert_close(block(x), (x + inner).relu(), rtol=1e-4, atol=1e-5)


def test_sampling_is_uniform_over_resnets(generator):
    space = ResNet(widths=(2, 4), depths=(1, 3))
    counts: dict[str, int] = {}
    for _ in range(3200):
        name = space.notation(space.sample(generator))
        counts[name] = counts.get(name, 0) + 1
    assert len(counts) == 4**3
    assert max(abs(count - 50) for count in counts.values()) < 5 * 50**0.5


def test_invalid_architectures_are_refused():
    for text, message in [
        ("4x2|4x1", "There must be 3 stages"),
        ("4x2|4x1|7x1", "must have a width of"),
        ("4x2|4x1|4x9", "and a depth of"),
        (
            "4x2|4x1|four",
            "The architecture must be width×depth of three stages, such as 4x2|4x1|6x3, or JSON",
        ),
        ("[]", "The architecture must be width×depth of three stages, such as 4x2|4x1|6x3, or JSON"),
        ("{}", "genotype"),
    ]:
        with pytest.raises(InputError, match=message):
            SPACE.parse(text)


def test_a_stage_of_different_blocks_is_refused():
    cells = dict(SPACE.parse("4x2|4x1|4x1"))
    cells["stage1"] = Cell([("residual_4", 0, 1), ("residual_5", 1, 2)], 1, [2])
    with pytest.raises(InputError, match="stage1 must be a chain of 2 blocks"):
        SPACE.check(Genotype("resnet", cells))
    cells["stage1"] = Cell([("skip_connect", 0, 1)], 1, [1])
    with pytest.raises(InputError, match="must have a width of"):
        SPACE.check(Genotype("resnet", cells))
