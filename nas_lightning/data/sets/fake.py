"""Random images of any shape, whose classes differ in their mean image: for tests."""

from __future__ import annotations

import math
from typing import Any

import torch

from nas_lightning.checks import Channels, ImageSide, NonNegativeFloat, NonNegativeInt, PositiveInt, checked
from nas_lightning.data.augment import statistics
from nas_lightning.data.base import Classes, Contents
from nas_lightning.data.order import CONTENT
from nas_lightning.data.samples import TensorSamples
from nas_lightning.data.sets.base import SmallImages
from nas_lightning.errors import InputError
from nas_lightning.randomness import generator

MOST_NUMBERS = 2**28  # a gigabyte


class Fake(SmallImages):
    """Each class is a random image; a sample is its class's image plus noise.

    The images are the same whatever the seed.

    Args:
        shape: (channels, height, width) of an image.
        num_classes: how many there are.
        train_size: training images, at least one a class.
        test_size: test images, at least one a class.
        noise: standard deviation of the noise, relative to that of the classes' images.
        batch_size: images of a step of one process.
        crop_padding: pixels around an image before it is cropped to its size.
        **image_data: see `SmallImages`.

    >>> data = Fake(shape=(3, 16, 16), num_classes=4, train_size=64)
    >>> data.image, data.num_classes, len(data.train)
    ((3, 16, 16), 4, 64)
    """

    mirrors = False
    name = "fake"

    @checked
    def __init__(
        self,
        *,
        shape: tuple[Channels, ImageSide, ImageSide] = (3, 8, 8),
        num_classes: Classes = 4,
        train_size: PositiveInt = 128,
        test_size: PositiveInt = 64,
        noise: NonNegativeFloat = 1.0,
        batch_size: PositiveInt = 16,
        crop_padding: NonNegativeInt = 1,
        **image_data: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, crop_padding=crop_padding, **image_data)
        if min(train_size, test_size) < num_classes:
            raise InputError(
                f"expected at least {num_classes} images in each part", got=(train_size, test_size)
            )
        numbers = math.prod(shape) * (train_size + test_size + num_classes)
        if numbers > MOST_NUMBERS:
            expected = f"expected images of at most {MOST_NUMBERS:,} numbers together"
            raise InputError(expected, got=f"{numbers:,}", where="Fake.shape")
        self.shape, self.size, self.noise = tuple(shape), num_classes, noise
        self.sizes = (train_size, test_size)

    def load(self) -> Contents:
        random = generator(CONTENT, 1)
        total = sum(self.sizes)
        centres = torch.randn(self.size, *self.shape, generator=random)
        labels = torch.arange(total) % self.size
        images = centres[labels] + self.noise * torch.randn(total, *self.shape, generator=random)
        everything = TensorSamples((128 + 32 * images).clamp(0, 255).to(torch.uint8), labels)
        train = everything.select(torch.arange(self.sizes[0]))
        test = everything.select(torch.arange(self.sizes[0], total))
        mean, std = statistics(everything.images[: self.sizes[0]])
        return Contents(train, test, tuple(f"class_{i}" for i in range(self.size)), mean, std)
