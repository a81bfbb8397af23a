"""Operations against their definitions, on maps of even and odd sides."""

import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.spaces.operations import (
    SEARCH_NORM,
    TRAIN_NORM,
    FactorizedReduce,
    NeedsReLU,
    Norm,
    add_operation,
    all_operations,
    build_op,
    find_operation,
    has_parameters,
)

PARAMETERS = {  # of the convolutions, for c channels: depthwise k²c, pointwise c², and 2c a batch norm
    "skip_connect": lambda c: 0,
    "max_pool_3x3": lambda c: 0,
    "avg_pool_3x3": lambda c: 0,
    "sep_conv_3x3": lambda c: 2 * (9 * c + c * c + 2 * c),
    "sep_conv_5x5": lambda c: 2 * (25 * c + c * c + 2 * c),
    "sep_conv_7x7": lambda c: 2 * (49 * c + c * c + 2 * c),
    "dil_conv_3x3": lambda c: 9 * c + c * c + 2 * c,
    "dil_conv_5x5": lambda c: 25 * c + c * c + 2 * c,
    "conv_7x1_1x7": lambda c: 14 * c * c + 2 * c,
    "nor_conv_1x1": lambda c: c * c + 2 * c,
    "nor_conv_3x3": lambda c: 9 * c * c + 2 * c,
}


OPERATIONS = [op.name for op in all_operations() if not op.is_custom]
"""All of the repository, whoever added them."""


def test_kind_of_operation_matches_its_parameters():
    for name in OPERATIONS:
        learns = any(True for _ in build_op(name, 6, 1, TRAIN_NORM).parameters())
        assert (find_operation(name).kind == "learned") == learns == has_parameters(name)


def test_parameters():
    for name in PARAMETERS:
        built = sum(p.numel() for p in build_op(name, 6, 1, TRAIN_NORM).parameters())
        assert built == PARAMETERS[name](6)


def test_shapes():
    for name in OPERATIONS:
        for stride in [1, 2]:
            for norm in [TRAIN_NORM, SEARCH_NORM]:
                for size in [(8, 8), (7, 7), (5, 8), (2, 1), (1, 1)]:
                    op = build_op(name, 4, stride, norm)
                    out = op(torch.randn(3, 4, *size))
                    assert out.shape == (3, 4, *(-(-side // stride) for side in size))


def test_separable_convolutions_equal_plain_ones():
    for kernel, dilation in [(3, 1), (5, 1), (7, 1), (3, 2), (5, 2)]:
        for stride in [1, 2]:
            op = build_op(
                f"{'dil' if dilation == 2 else 'sep'}_conv_{kernel}x{kernel}", 4, stride, TRAIN_NORM
            ).double()
            x = torch.randn(2, 4, 9, 8, dtype=torch.float64)
            weights = [p for p in op.parameters() if p.ndim == 4]

            def block(x, depthwise, pointwise, stride):
                padding = dilation * (kernel - 1) // 2
                x = F.conv2d(x, depthwise, stride=stride, padding=padding, dilation=dilation, groups=4)
                return F.batch_norm(F.conv2d(x, pointwise), None, None, training=True)

            expected = block(F.relu(x), weights[0], weights[1], stride)
            if dilation == 1:
                expected = block(F.relu(expected), weights[2], weights[3], 1)
            torch.testing.assert_close(op(F.relu(x)), expected)


def test_average_pool_leaves_the_border_out():
    for stride in [1, 2]:
        ones = torch.ones(1, 2, 7, 6)
        torch.testing.assert_close(
            build_op("avg_pool_3x3", 2, stride, TRAIN_NORM)(ones), ones[..., ::stride, ::stride]
        )


def test_factorized_reduce_reads_even_and_odd_pixels():
    for size in [(6, 6), (7, 7), (6, 7), (1, 4)]:
        op = FactorizedReduce(3, 5, Norm(affine=False, tracked=False)).double()
        x = torch.randn(2, 3, *size, dtype=torch.float64)
        padded = F.pad(x, (0, 2, 0, 2))
        rows, columns = (-(-side // 2) for side in size)
        even = torch.einsum(
            "oc,bchw->bohw", op.even.weight[..., 0, 0], padded[..., 0::2, 0::2][..., :rows, :columns]
        )
        odd = torch.einsum(
            "oc,bchw->bohw", op.odd.weight[..., 0, 0], padded[..., 1::2, 1::2][..., :rows, :columns]
        )
        expected = F.batch_norm(torch.cat([even, odd], 1), None, None, training=True)
        torch.testing.assert_close(op(x), expected)


def test_needs_relu_marks_operations_without_a_relu():
    """Convolutions leave the ReLU before them to their caller; pools and skips have none."""
    for name in PARAMETERS:
        for stride in (1, 2):
            op = build_op(name, 4, stride, SEARCH_NORM)
            x = torch.randn(2, 4, 6, 6) - 2  # low enough for whole pooling windows below zero
            changes = not torch.allclose(op(x), op(F.relu(x)))
            assert changes
            convolves = any(isinstance(module, torch.nn.Conv2d) for module in op.modules())
            assert isinstance(op, NeedsReLU) == convolves


def test_search_norm_shares_nothing_between_paths():
    for name in OPERATIONS:
        op = build_op(name, 4, 2, SEARCH_NORM)
        assert not list(op.buffers())
        assert all(p.ndim == 4 for p in op.parameters())
        pools = name.endswith("pool_3x3")
        assert any(isinstance(module, torch.nn.BatchNorm2d) for module in op.modules()) or not pools
        trained = build_op(name, 4, 2, TRAIN_NORM)
        assert not pools or not any(isinstance(module, torch.nn.BatchNorm2d) for module in trained.modules())


def test_unknown_operation():
    with pytest.raises(InputError, match="did you mean 'sep_conv_3x3'"):
        build_op("sep_conv_3x4", 4, 1, TRAIN_NORM)
    with pytest.raises(InputError, match="Unknown operation"):
        build_op("none", 4, 1, TRAIN_NORM)


def test_gradients_of_strided_pointwise_convolutions():
    """Few channels, channels-last, large maps: where oneDNN's own stride corrupts memory (its issue 6035)."""
    for name in ["skip_connect", "nor_conv_1x1"]:
        op = build_op(name, 4, 2, Norm(affine=False, tracked=False)).to(memory_format=torch.channels_last)
        x = torch.randn(2, 4, 64, 64).contiguous(memory_format=torch.channels_last)
        direction = torch.randn(2, 4, 32, 32)
        kernels = [p for p in op.parameters() if p.ndim == 4]
        got = torch.autograd.grad((op(x) * direction).sum(), kernels)
        parts = [x[..., start::2, start::2] for start in range(len(kernels))]
        mixed = [
            torch.einsum("oc,bchw->bohw", k[..., 0, 0], part) for k, part in zip(kernels, parts, strict=True)
        ]
        expected = F.batch_norm(torch.cat(mixed, 1), None, None, training=True)
        for a, b in zip(got, torch.autograd.grad((expected * direction).sum(), kernels), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-2)


class Learner(torch.nn.Conv2d):
    def __init__(self, channels, stride, norm):
        super().__init__(channels, channels, 3, stride, padding=1)


def test_registering_draws_no_random_numbers():
    """It is done once, so whatever the first time drew, a second run in the process would not."""
    before = torch.get_rng_state()
    assert add_operation(Learner).kind == "learned"
    assert torch.equal(torch.get_rng_state(), before)


def test_noise_is_normal_and_independent_of_the_input(generator):
    """Kolmogorov's test of 100,000 numbers; neighbors, channels and images have nothing in common."""
    x = torch.randn(8, 16, 28, 28, generator=generator, requires_grad=True)
    noise = build_op("noise", 16, 1, SEARCH_NORM)(x)
    assert not noise.requires_grad
    assert stats.kstest(noise.flatten().numpy(), "norm").pvalue > 0.01
    pairs = [(noise[:, 1:], noise[:, :-1]), (noise[1:], noise[:-1]), (noise[..., 1:], noise[..., :-1])]
    for one, two in [*pairs, (noise, x.detach())]:
        assert abs(float(torch.corrcoef(torch.stack([one.flatten(), two.flatten()]))[0, 1])) < 0.015


def test_noise_depends_on_the_image_only(generator):
    """The same in every batch, another for another image."""
    x = torch.randn(3, 4, 8, 8, generator=generator)
    op = build_op("noise", 4, 2, SEARCH_NORM)
    assert torch.equal(op(x)[1:2], op(x[1:2]))
    assert not torch.equal(op(x)[0], op(x)[1])
    assert not op.state_dict()
