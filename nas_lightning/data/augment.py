"""Crop, flip, RandAugment, cutout, normalisation of whole batches: pure functions of tensors on any device.

The random numbers are an argument: (batch, 5 or more) integers from `Augment.parameters`, which draws
them for the global batch, so that the share of a process does not depend on how many processes there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from nas_lightning.checks import NonNegativeInt, checked
from nas_lightning.data.rand_augment import Magnitude, draw, rand_augment


@checked
@dataclass(frozen=True)
class Augment:
    """What is done to a batch: a crop after padding, mirror images, RandAugment, an erased square.

    Args:
        crop_padding: pixels around an image before it is cropped to its size.
        flip: whether half of the images are mirrored.
        cutout: side of the square that is erased; 0: none.
        rand_augment: magnitude of RandAugment's operations; 0: none.

    >>> augment = Augment(crop_padding=4, flip=True)
    >>> augment.parameters(2, 32, 32, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 5])
    """

    crop_padding: NonNegativeInt = 0
    flip: bool = False
    cutout: NonNegativeInt = 0
    rand_augment: Magnitude = 0

    def parameters(self, count: int, height: int, width: int, random: torch.Generator) -> Tensor:
        """(count, 5): crop offset y, x; mirrored or not; centre y, x of the erased square; RandAugment's."""
        shift = 2 * self.crop_padding + 1
        highs = (shift, shift, 2, height, width)
        columns = [torch.randint(high, (count,), generator=random) for high in highs]
        return torch.stack([*columns, *(draw(count, random) if self.rand_augment else [])], dim=1)

    def __call__(self, x: Tensor, parameters: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
        """(b, c, h, w) bytes → normalised floats of the same shape."""
        if self.crop_padding or self.flip:
            mirrored = parameters[:, 2] if self.flip else torch.zeros_like(parameters[:, 2])
            x = crop_and_mirror(x, parameters[:, :2], mirrored, self.crop_padding)
        if self.rand_augment:
            x = rand_augment(x, parameters[:, 5:], self.rand_augment)
        x = normalise(x, mean, std)
        return erase(x, parameters[:, 3:5], self.cutout) if self.cutout else x


def crop_and_mirror(x: Tensor, offsets: Tensor, mirrored: Tensor, padding: int) -> Tensor:
    """Pad with zeros, cut the original size out at offsets (b, 2) in [0, 2·padding], exchange left and right.

    One gather by the place of each pixel in the padded image, which is far faster than indexing with windows.
    """
    batch, channels, height, width = x.shape
    rows = offsets[:, :1] + torch.arange(height, device=x.device)  # (b, h)
    columns = offsets[:, 1:] + torch.arange(width, device=x.device)  # (b, w)
    columns = torch.where(mirrored[:, None] == 1, columns.flip(1), columns)
    places = rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]
    pixels = F.pad(x, [padding] * 4).flatten(2).gather(2, places.view(batch, 1, -1).expand(-1, channels, -1))
    return pixels.view_as(x)


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
    return x * (~square).to(x.dtype)  # faster than a masked fill


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
