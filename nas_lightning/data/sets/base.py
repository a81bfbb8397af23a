"""Data sets with the usual augmentation of small images: a crop after padding, a mirror image, and more."""

from __future__ import annotations

from typing import Any

from nas_lightning.checks import NonNegativeInt, checked
from nas_lightning.data.augment import Augment
from nas_lightning.data.base import ImageData
from nas_lightning.data.rand_augment import Magnitude


class SmallImages(ImageData):
    """Base of the sets of small images.

    Args:
        augment: crop and mirror training images.
        crop_padding: pixels around an image before it is cropped to its size.
        rand_augment: magnitude of RandAugment's two operations for training images, e.g. 9; 0: none.
        cutout: side of the square that is cut out of training images, whatever `augment` says.
        **image_data: see `ImageData`.
    """

    mirrors: bool = True
    """Whether the mirror image of an image is one of its class."""

    @checked
    def __init__(
        self,
        *,
        augment: bool = True,
        crop_padding: NonNegativeInt = 4,
        rand_augment: Magnitude = 0,
        cutout: NonNegativeInt = 0,
        **image_data: Any,
    ) -> None:
        whole = Augment(crop_padding, self.mirrors, cutout, rand_augment)
        super().__init__(augment=whole if augment else Augment(cutout=cutout), **image_data)
