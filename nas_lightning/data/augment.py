"""Augmentation of whole batches: crop, flip, RandAugment, cutout, normalization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F

from nas_lightning.validation import NonNegativeInt, at_least, at_most, checked

# RandAugment (Cubuk et al. 2020, arXiv:1909.13719) for batches of bytes
#
# Two operations per sample, drawn from fourteen, of one magnitude. torchvision's functions are applied to all
# samples of a batch that drew the same operation.

LARGEST = 30
Magnitude = Annotated[int, at_least(0), at_most(LARGEST)]
ROUNDS = 2
"""N of the paper: operations per sample."""

# (images, m, s) → images, for the fraction m of the largest magnitude and the sign s
Operation = Callable[[Tensor, float, int], Tensor]


def rand_augment(x: Tensor, drawn: Tensor, magnitude: int) -> Tensor:
    """Apply the drawn operations: (b, c, h, w) bytes → the same shape.

    Args:
        x: images of one or three channels.
        drawn: (b, 2 · rounds): an operation from 0 to 13 and a sign of 0 (negative) or 1 per round.
        magnitude: M of the paper, from 0 to 30.
    """
    operations = list(_operations().values())
    for choice in drawn.view(len(x), -1, 2).unbind(1):  # (b, 2)
        x = x.clone()
        for operation, sign in choice.unique(dim=0).tolist():
            rows = (choice == choice.new_tensor([operation, sign])).all(1)
            x[rows] = operations[operation](x[rows], magnitude / LARGEST, 2 * sign - 1)
    return x


def draw(count: int, random: torch.Generator) -> list[Tensor]:
    """Draw columns (count,) for `rand_augment`: an operation and a sign for each round."""
    highs = (len(_operations()), 2) * ROUNDS
    return [torch.randint(high, (count,), generator=random) for high in highs]


def _operations() -> Mapping[str, Operation]:
    from torchvision.transforms.v2 import functional as F  # slow to import

    def affine(x: Tensor, shear: list[float] | None = None, shift: list[int] | None = None) -> Tensor:
        return F.affine(x, 0.0, shift or [0, 0], 1.0, shear or [0.0, 0.0], center=[0, 0])

    def angle(m: float, s: int) -> float:
        return float(torch.rad2deg(torch.atan(torch.tensor(0.3 * m * s))))

    return {
        "identity": lambda x, m, s: x,
        "shear_x": lambda x, m, s: affine(x, shear=[angle(m, s), 0.0]),
        "shear_y": lambda x, m, s: affine(x, shear=[0.0, angle(m, s)]),
        "translate_x": lambda x, m, s: affine(x, shift=[int(150 / 331 * x.shape[3] * m * s), 0]),
        "translate_y": lambda x, m, s: affine(x, shift=[0, int(150 / 331 * x.shape[2] * m * s)]),
        "rotate": lambda x, m, s: F.rotate(x, 30 * m * s),
        "brightness": lambda x, m, s: F.adjust_brightness(x, 1 + 0.9 * m * s),
        "color": lambda x, m, s: F.adjust_saturation(x, 1 + 0.9 * m * s),
        "contrast": lambda x, m, s: F.adjust_contrast(x, 1 + 0.9 * m * s),
        "sharpness": lambda x, m, s: F.adjust_sharpness(x, 1 + 0.9 * m * s),
        "posterize": lambda x, m, s: F.posterize(x, 8 - round(4 * m)),
        "solarize": lambda x, m, s: F.solarize(x, 255 * (1 - m)),
        "autocontrast": lambda x, m, s: F.autocontrast(x),
        "equalize": lambda x, m, s: F.equalize(x),
    }


# Crop, flip, RandAugment, cutout, and normalization of batches
#
# The random numbers are an argument: (batch, 5 or more) integers from `Augment.parameters`, drawn for the
# global batch, so that the result does not depend on the number of processes.


@checked
@dataclass(frozen=True)
class Augment:
    """Augmentation of a batch: a crop after padding, mirror images, RandAugment, an erased square.

    Args:
        crop_padding: pixels added around an image before it is cropped to its size.
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
        """Draw (count, 5 or more): crop offsets y, x; mirrored; center y, x to erase; RandAugment's."""
        shift = 2 * self.crop_padding + 1
        highs = (shift, shift, 2, height, width)
        columns = [torch.randint(high, (count,), generator=random) for high in highs]
        return torch.stack([*columns, *(draw(count, random) if self.rand_augment else [])], dim=1)

    def __call__(self, x: Tensor, parameters: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
        """Map (b, c, h, w) bytes to normalized floats of the same shape."""
        if self.crop_padding or self.flip:
            mirrored = parameters[:, 2] if self.flip else torch.zeros_like(parameters[:, 2])
            x = crop_and_mirror(x, parameters[:, :2], mirrored, self.crop_padding)
        if self.rand_augment:
            x = rand_augment(x, parameters[:, 5:], self.rand_augment)
        x = normalize(x, mean, std)
        return erase(x, parameters[:, 3:5], self.cutout) if self.cutout else x


def crop_and_mirror(x: Tensor, offsets: Tensor, mirrored: Tensor, padding: int) -> Tensor:
    """Pad with zeros, crop to the original size at offsets (b, 2) in [0, 2·padding], and mirror.

    A single gather by the index of each pixel in the padded image, which is faster than indexing windows.
    """
    batch, channels, height, width = x.shape
    rows = offsets[:, :1] + torch.arange(height, device=x.device)  # (b, h)
    columns = offsets[:, 1:] + torch.arange(width, device=x.device)  # (b, w)
    columns = torch.where(mirrored[:, None] == 1, columns.flip(1), columns)
    places = rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]
    pixels = F.pad(x, [padding] * 4).flatten(2).gather(2, places.view(batch, 1, -1).expand(-1, channels, -1))
    return pixels.view_as(x)


def erase(x: Tensor, centers: Tensor, side: int) -> Tensor:
    """Cutout (DeVries & Taylor 2017, arXiv:1708.04552): set a square to zero, the mean of normalized images.

    The square is clipped at the borders of the image.
    """
    height, width = x.shape[-2:]
    top, left = (centers - side // 2).unbind(1)

    def inside(first: Tensor, length: int) -> Tensor:  # (b, length)
        position = torch.arange(length, device=x.device) - first[:, None]
        return (position >= 0) & (position < side)

    square = inside(top, height)[:, None, :, None] & inside(left, width)[:, None, None, :]
    return x * (~square).to(x.dtype)  # faster than a masked fill


def normalize(x: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Map bytes to (x / 255 − mean) / std, channel by channel."""
    shape = (1, -1, 1, 1)
    scale = torch.tensor([1 / (255 * s) for s in std], device=x.device).view(shape)
    shift = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], device=x.device).view(shape)
    return x.to(torch.float32).mul_(scale).add_(shift)


def statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel of (n, c, h, w) bytes, divided by 255."""
    channels = images.transpose(0, 1).flatten(1).double() / 255
    std, mean = torch.std_mean(channels, dim=1, correction=0)
    return tuple(mean.tolist()), tuple(std.clamp_min(1 / 255).tolist())
