"""ImageNet (Russakovsky et al. 2015, arXiv:1409.0575), or any other photographs in class folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nas_lightning.checks import ImageSide, NonNegativeFloat, NonNegativeInt, PositiveInt, checked
from nas_lightning.data.augment import Augment
from nas_lightning.data.base import Contents, ImageData
from nas_lightning.data.formats.files import FileSamples
from nas_lightning.data.formats.listing import Listing
from nas_lightning.data.rand_augment import Magnitude
from nas_lightning.data.sets.download import missing_data_error
from nas_lightning.data.sets.image_folder import MEAN, STD, list_parts
from nas_lightning.errors import InputError
from nas_lightning.machine import MoreProcesses


class ImageNet(ImageData):
    """Images that stay on disk.

    Training takes random crops of random size, mirrored or not, with changed colours or RandAugment;
    evaluation the centre. All are timm's transforms.

    Args:
        root: has train and val (or test), as class folders or as .tar files of them.
        image_size: height and width of the crops.
        color_jitter: by which share brightness, contrast and saturation change at most; 0: not at all.
        rand_augment: magnitude of RandAugment's operations, in place of changed colours; 0: none.
        num_workers: processes that read images.
        batch_size: images of a step of one process.
        augment: whether training takes random crops, or the centre, too.
        cutout: side of the square that is cut out of training images, whatever `augment` says.
        **image_data: see `ImageData`.

    >>> data = ImageNet(root="my_images", image_size=160, rand_augment=9)  # nothing is read yet
    >>> data.rand_augment, data.batch_size
    ('rand-m9-mstd0.5-inc1', 128)
    """

    name = "imagenet"

    @checked
    def __init__(
        self,
        *,
        root: str = "data/imagenet",
        image_size: ImageSide = 224,
        color_jitter: NonNegativeFloat = 0.4,
        rand_augment: Magnitude = 0,
        num_workers: MoreProcesses = 4,
        batch_size: PositiveInt = 128,
        augment: bool = True,
        cutout: NonNegativeInt = 0,
        **image_data: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, augment=Augment(cutout=cutout), **image_data)
        self.root, self.image_size, self.workers = Path(root), image_size, num_workers
        self.color_jitter, self.random_crops = color_jitter, augment
        self.rand_augment = f"rand-m{rand_augment}-mstd0.5-inc1" if rand_augment else None

    def load(self) -> Contents:
        if not any(self.root.glob("train*")):
            files = "train/ and val/ with one folder per class (register at image-net.org for ImageNet)"
            raise missing_data_error(self.name, self.root, files, download=False)
        train, test = list_parts(self.root)
        if test is None:
            raise InputError("expected val or test beside train", got="neither", where=self.root)
        return Contents(self._samples(train), self._samples(test), train.classes, MEAN, STD)

    def _samples(self, part: Listing) -> FileSamples:
        from timm.data import create_transform  # a second to import, which only files need

        size = self.image_size
        plain = create_transform(
            size, use_prefetcher=True
        )  # bytes, not normalised: that is done for whole batches
        augmenting = None
        if self.random_crops:
            augmenting = create_transform(
                size,
                is_training=True,
                color_jitter=self.color_jitter,  # which timm leaves out beside RandAugment
                auto_augment=self.rand_augment,
                use_prefetcher=True,
            )
        return FileSamples(
            part.files, part.labels, (3, size, size), plain=plain, augmenting=augmenting, workers=self.workers
        )
