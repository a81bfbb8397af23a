"""Channels put together, divided and interleaved, which stay innermost in memory; so do their gradients.

What comes back to each of several concatenated maps is a slice of a gradient. torch's norms read slices
three to seven times as slowly as dense maps with their channels last on a CPU, and in a cell every operation
of the node reads it. Here it is made dense once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nas_lightning.spaces.ops.depthwise import is_traced


def concatenate(maps: Sequence[Tensor]) -> Tensor:
    """The maps one after another: some of (b, c, h, w) → (b, Σ c, h, w).

    >>> concatenate([torch.zeros(1, 2, 3, 3), torch.ones(1, 1, 3, 3)])[0, :, 0, 0].tolist()
    [0.0, 0.0, 1.0]
    """
    if not torch.is_grad_enabled() or is_traced():
        return torch.cat(list(maps), dim=1)
    return Concatenation.apply(*maps)


class Concatenation(torch.autograd.Function):
    """(x₁, …, xₙ) ↦ [x₁ … xₙ], channel by channel."""

    @staticmethod
    def forward(ctx: Any, *maps: Tensor) -> Tensor:
        ctx.channels = [x.shape[1] for x in maps]
        return torch.cat(maps, dim=1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        parts = gradient.split(ctx.channels, dim=1)
        return tuple(part.contiguous(memory_format=torch.channels_last) for part in parts)


def divide(x: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """The first of so many parts of the channels, dense, and the others.

    By a split, not by slices: the gradient of a slice does not have the channels last.

    >>> [part.shape[1] for part in divide(torch.zeros(1, 8, 2, 2), 4)]
    [2, 6]
    """
    count = x.shape[1] // parts
    first, others = x.split([count, x.shape[1] - count], dim=1)
    return first.contiguous(memory_format=torch.channels_last), others


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Interleave the channels, so that the next cell's operations see others (PC-DARTS, section 3.2).

    >>> channel_shuffle(torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 4, 1, 1), groups=2).flatten().tolist()
    [1.0, 3.0, 2.0, 4.0]
    """
    return x.movedim(1, -1).unflatten(-1, (groups, -1)).transpose(-2, -1).flatten(-2).movedim(-1, 1)
