"""Operations on the vertices of NAS-Bench-101's modules (arXiv:1902.09635, section 2.1)."""

from __future__ import annotations

from functools import partial

from torch import nn

from nas_lightning.spaces.ops.layers import Pick
from nas_lightning.spaces.ops.norm import Norm
from nas_lightning.spaces.ops.registry import operation


def conv_norm_relu(c_in: int, c_out: int, kernel: int, norm: nn.Module, stride: int = 1) -> nn.Sequential:
    """Convolution, batch norm, ReLU."""
    if kernel == 1 and stride > 1:  # as `conv_norm`, for its reason
        conv = nn.Conv2d(c_in, c_out, 1, bias=False)
        return nn.Sequential(Pick(stride), conv, norm, nn.ReLU())
    conv = nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, norm, nn.ReLU())


def conv_bn_relu(channels: int, stride: int, norm: Norm, *, kernel: int) -> nn.Module:
    return conv_norm_relu(channels, channels, kernel, norm(channels), stride)


@operation("maxpool3x3", kind="pooling")
def maxpool3x3(channels: int, stride: int, norm: Norm) -> nn.Module:
    """Without a norm, in a supernet too."""
    return nn.MaxPool2d(3, stride, padding=1)


for kernel in (3, 1):
    operation(f"conv{kernel}x{kernel}-bn-relu")(partial(conv_bn_relu, kernel=kernel))
