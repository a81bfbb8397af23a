"""ImageNet16-120: the first 120 classes of ImageNet at 16×16 (Chrabaszcz et al. 2017, arXiv:1707.08819).

The form in which NAS-Bench-201 (arXiv:2001.00326, section 2.2) uses the downsampled images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from nas_lightning.checks import NonNegativeInt, at_most, checked
from nas_lightning.data.base import Classes, Contents
from nas_lightning.data.formats.pickles import read_batches
from nas_lightning.data.samples import TensorSamples
from nas_lightning.data.sets.base import SmallImages
from nas_lightning.data.sets.download import missing_data_error

IMAGE = (3, 16, 16)
MEAN = (122.68 / 255, 116.66 / 255, 104.01 / 255)
STD = (63.22 / 255, 61.26 / 255, 65.09 / 255)
TRAIN_FILES = [f"train_data_batch_{number}" for number in range(1, 11)]
TEST_FILE = "val_data"
FOLDERS = ("", "Imagenet16_train", "Imagenet16_val")  # the published archives unpack into the latter two


class ImageNet16(SmallImages):
    """The first classes of the downsampled ImageNet; the published validation images are the test part.

    Args:
        root: has the eleven published files, train_data_batch_1 … 10 and val_data.
        num_classes: how many of the 1,000 classes.
        crop_padding: pixels around an image before it is cropped to its size.
        **image_data: see `SmallImages`.

    >>> data = ImageNet16(root="my_data", num_classes=200)  # read when it is first asked for an image
    >>> data.augment.crop_padding, data.batch_size
    (2, 64)
    """

    name = "imagenet16"

    @checked
    def __init__(
        self,
        *,
        root: str = "data/imagenet16",
        num_classes: Annotated[Classes, at_most(1000)] = 120,
        crop_padding: NonNegativeInt = 2,
        **image_data: Any,
    ) -> None:
        super().__init__(crop_padding=crop_padding, **image_data)
        self.root, self.first = Path(root), num_classes

    def load(self) -> Contents:
        classes = tuple(str(number) for number in range(1, self.first + 1))
        train = self._part(TRAIN_FILES)
        return Contents(train, self._part([TEST_FILE]), classes, MEAN, STD)

    def _part(self, files: list[str]) -> TensorSamples:
        images, numbers = read_batches([self._find(file) for file in files], IMAGE, "labels")
        rows = (numbers <= self.first).nonzero().squeeze(1)  # classes are numbered from 1
        return TensorSamples(images[rows], numbers[rows] - 1)

    def _find(self, file: str) -> Path:
        for folder in FOLDERS:
            if (self.root / folder / file).is_file():
                return self.root / folder / file
        files = f"{file} and the other files of the downsampled ImageNet 16×16 (image-net.org)"
        raise missing_data_error(self.name, self.root, files, download=False)
