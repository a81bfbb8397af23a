"""Noise in place of an operation (RobustDARTS, Zela et al. 2020, arXiv:1909.09656, section 3).

An operation that no architecture should have: what comes out says nothing of what came in. Its numbers are a
hash of the image, so that they are the same whenever a search is resumed or a cell is computed again.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nas_lightning.spaces.ops.norm import Norm
from nas_lightning.spaces.ops.registry import operation

_GOLDEN, _FIRST, _SECOND = -7046029254386353131, -4658895280553007687, -7723592293110705685
"""The odd numbers of SplitMix64 (Steele et al. 2014), as signed ones."""


@operation("noise", kind="pooling")
class NoiseOp(nn.Module):
    """N(0, 1) of the shape of its input, whatever that is.

    Args:
        channels: of the input.
        stride: what it divides the resolution by.
        norm: has nothing to do.

    >>> op, image = NoiseOp(2, 1, Norm()), torch.ones(1, 2, 8, 8)
    >>> torch.equal(op(image), op(image)), torch.equal(op(image), op(2 * image))
    (True, False)
    """

    def __init__(self, channels: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        keys = x.detach().double().sum(dim=(1, 2, 3)).view(torch.int64)
        return normal(keys, x[:, :, :: self.stride, :: self.stride])


def normal(keys: Tensor, like: Tensor) -> Tensor:
    """Standard normal numbers that follow from the key of each image: (b,) → (b, c, h, w).

    √(−2 ln u) cos(2π v), with u and v uniform (Box and Muller).
    """
    index = torch.arange(2 * like[0].numel(), device=like.device)
    u, v = uniform(keys[:, None] + _GOLDEN * (index + 1)).chunk(2, dim=1)
    return (torch.sqrt(-2 * torch.log(u)) * torch.cos(2 * math.pi * v)).view(like.shape).to(like)


def uniform(numbers: Tensor) -> Tensor:
    """SplitMix64's hash of integers, as numbers in (0, 1), float64."""
    mixed = (numbers ^ _shift(numbers, 30)) * _FIRST
    mixed = (mixed ^ _shift(mixed, 27)) * _SECOND
    mixed = mixed ^ _shift(mixed, 31)
    return (_shift(mixed, 11).double() + 0.5) * 2.0**-53


def _shift(numbers: Tensor, bits: int) -> Tensor:
    """A logical shift to the right."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
