"""Pooling of 3×3 pixels (DARTS, arXiv:1806.09055, section 3.1.1)."""

from __future__ import annotations

from torch import nn

from nas_lightning.spaces.ops.norm import Norm
from nas_lightning.spaces.ops.registry import operation


@operation("max_pool_3x3", kind="pooling")
def max_pool_3x3(channels: int, stride: int, norm: Norm) -> nn.Module:
    return _with_norm(nn.MaxPool2d(3, stride, padding=1), channels, norm)


@operation("avg_pool_3x3", kind="pooling")
def avg_pool_3x3(channels: int, stride: int, norm: Norm) -> nn.Module:
    """The mean of the pixels that there are: the padding does not count."""
    return _with_norm(nn.AvgPool2d(3, stride, padding=1, count_include_pad=False), channels, norm)


def _with_norm(pool: nn.Module, channels: int, norm: Norm) -> nn.Module:
    return nn.Sequential(pool, norm(channels)) if norm.after_pool else pool
