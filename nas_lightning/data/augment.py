"""Crop, flip, cutout and normalisation of whole batches, as pure functions of tensors on any device.

The random numbers are an argument: (batch, 5) integers from `Augment.parameters`, which draws them for the
global batch, so that the share of a process does not depend on how many processes there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Augment:
    """What is done to a training batch: a random crop after padding, mirror images, an erased square."""

    crop_padding: int = 0
    flip: bool = False
    cutout: int = 0

    def parameters(self, count: int, height: int, width: int, random: torch.Generator) -> Tensor:
        """(count, 5): crop offset y, x; mirrored or not; centre y, x of the erased square."""
        shift = 2 * self.crop_padding + 1
        highs = (shift, shift, 2, height, width)
        return torch.stack([torch.randint(high, (count,), generator=random) for high in highs], dim=1)

    def __call__(self, x: Tensor, parameters: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
        """(b, c, h, w) bytes → normalised floats of the same shape."""
        if self.crop_padding:
            x = crop(x, parameters[:, :2], self.crop_padding)
        if self.flip:
            x = mirror(x, parameters[:, 2].bool())
        x = normalise(x, mean, std)
        return erase(x, parameters[:, 3:], self.cutout) if self.cutout else x


def crop(x: Tensor, offsets: Tensor, padding: int) -> Tensor:
    """Pad with zeros on all sides and cut the original size out at offsets (b, 2) in [0, 2·padding]."""
    batch, _, height, width = x.shape
    padded = F.pad(x, [padding] * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # (b, c, 2p+1, 2p+1, h, w): a view
    return windows[torch.arange(batch, device=x.device), :, offsets[:, 0], offsets[:, 1]]


def mirror(x: Tensor, which: Tensor) -> Tensor:
    """Left and right exchanged in the images that `which` (b,) selects."""
    return torch.where(which[:, None, None, None], x.flip(-1), x)


def erase(x: Tensor, centres: Tensor, side: int) -> Tensor:
    """Cutout (DeVries & Taylor 2017, arXiv:1708.04552): zero in a square, clipped at the image's borders.

    In a normalised image zero is the mean, whatever the channel.
    """
    height, width = x.shape[-2:]
    top, left = (centres - side // 2).unbind(1)

    def inside(first: Tensor, length: int) -> Tensor:  # (b, length)
        position = torch.arange(length, device=x.device) - first[:, None]
        return (position >= 0) & (position < side)

    square = inside(top, height)[:, None, :, None] & inside(left, width)[:, None, None, :]
    return x.masked_fill(square, 0.0)


def normalise(x: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Bytes → (x / 255 − mean) / std, channel by channel."""
    shape = (1, -1, 1, 1)
    scale = torch.tensor([1 / (255 * s) for s in std], device=x.device).view(shape)
    shift = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], device=x.device).view(shape)
    return x.to(torch.float32).mul_(scale).add_(shift)


def statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of (n, c, h, w) bytes, as fractions of 255."""
    channels = images.transpose(0, 1).flatten(1).double() / 255
    std, mean = torch.std_mean(channels, dim=1, correction=0)
    return tuple(mean.tolist()), tuple(std.clamp_min(1 / 255).tolist())
