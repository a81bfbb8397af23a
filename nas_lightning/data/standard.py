"""Data sets with the usual augmentation of small images: a crop after padding, and a mirror image."""

from __future__ import annotations

from typing import Any

from nas_lightning.data.augment import Augment
from nas_lightning.data.base import ImageData


class StandardData(ImageData):
    """Base of the sets of small images.

    Args:
        augment: crop and mirror training images.
        crop_padding: pixels around an image before it is cropped to its size.
        cutout: side of the square that is cut out of training images, whatever `augment` says.
        **image_data: see `ImageData`.
    """

    mirrors: bool = True
    """Whether the mirror image of an image is one of its class."""

    def __init__(
        self, *, augment: bool = True, crop_padding: int = 4, cutout: int = 0, **image_data: Any
    ) -> None:
        cropped = Augment(crop_padding, self.mirrors, cutout)
        super().__init__(augment=cropped if augment else Augment(cutout=cutout), **image_data)
