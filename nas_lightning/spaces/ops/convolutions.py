"""Convolutions: separable and dilated (DARTS, arXiv:1806.09055), wide (NASNet), plain (arXiv:2001.00326)."""

from __future__ import annotations

from functools import partial

from torch import nn

from nas_lightning.spaces.ops.layers import PreActivated, conv_norm, separable
from nas_lightning.spaces.ops.norm import Norm
from nas_lightning.spaces.ops.registry import operation


def sep_conv(channels: int, stride: int, norm: Norm, *, kernel: int) -> nn.Module:
    """A separable convolution, twice."""
    first = [*separable(channels, kernel, stride), norm(channels)]
    second = [*separable(channels, kernel, 1), norm(channels)]
    return PreActivated(*first, nn.ReLU(), *second)


def dil_conv(channels: int, stride: int, norm: Norm, *, kernel: int) -> nn.Module:
    """A separable convolution that reads every second pixel."""
    return PreActivated(*separable(channels, kernel, stride, dilation=2), norm(channels))


def nor_conv(channels: int, stride: int, norm: Norm, *, kernel: int) -> nn.Module:
    """A plain convolution."""
    return conv_norm(channels, channels, kernel, stride, norm)


@operation("conv_7x1_1x7")
def conv_7x1_1x7(channels: int, stride: int, norm: Norm) -> nn.Module:
    """A wide convolution, along rows and then along columns."""
    return PreActivated(
        nn.Conv2d(channels, channels, (1, 7), stride=(1, stride), padding=(0, 3), bias=False),
        nn.Conv2d(channels, channels, (7, 1), stride=(stride, 1), padding=(3, 0), bias=False),
        norm(channels),
    )


for build, kernels in ((sep_conv, (3, 5, 7)), (dil_conv, (3, 5)), (nor_conv, (1, 3))):
    for kernel in kernels:
        operation(f"{build.__name__}_{kernel}x{kernel}")(partial(build, kernel=kernel))
