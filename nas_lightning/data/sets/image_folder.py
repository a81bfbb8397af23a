"""Anybody's images: one folder a class, as folders or in tar files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nas_lightning.checks import Between0And1, ImageSide, PositiveInt, checked
from nas_lightning.data.base import Classes, Contents
from nas_lightning.data.formats.decode import MOST_PIXELS, decode
from nas_lightning.data.formats.files import FileSamples, Fit, InMemory
from nas_lightning.data.formats.listing import Listing, find_images, find_parts
from nas_lightning.data.order import CONTENT, stratified_split
from nas_lightning.data.sets.base import SmallImages
from nas_lightning.errors import InputError
from nas_lightning.machine import MoreProcesses
from nas_lightning.randomness import generator

# Of ImageNet, which stand in where a set's own are not known
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ImageFolder(SmallImages):
    """Images in `root`, read in colour.

    A root with train/ and test/ (or val/), as folders or .tar files, has its parts; of any other, a share of
    every class is held out, the same whatever the seed.

    Args:
        root: a folder or a .tar file with one folder of images per class, or with such parts.
        image_size: height and width that images are resized and cropped to; None: those of the first.
        num_classes: how many classes there should be, to find a wrong folder early; None: whatever is there.
        test_fraction: share of every class that is for testing, where the root has no parts.
        in_memory: keep all images as bytes: much faster, and broken files are found at the start; "auto" does
            so up to 2 GB.
        num_workers: processes that read images which are not in memory.
        most_pixels: of a file; larger images are refused before they are decoded.
        flip: whether the mirror image of an image is one of its class.
        **image_data: see `SmallImages`.

    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> with TemporaryDirectory() as root:
    ...     for name in ("cats/1", "cats/2", "dogs/1", "dogs/2"):
    ...         Path(root, name).parent.mkdir(exist_ok=True)
    ...         Image.new("RGB", (20, 16)).save(f"{root}/{name}.png")
    ...     data = ImageFolder(root=root, image_size=8, test_fraction=0.5, batch_size=2)
    ...     data.image, data.classes, len(data.train), len(data.test)
    ((3, 8, 8), ('cats', 'dogs'), 2, 2)
    """

    name = "image_folder"

    @checked
    def __init__(
        self,
        *,
        root: str | None = None,
        image_size: ImageSide | None = None,
        num_classes: Classes | None = None,
        test_fraction: Between0And1 = 0.2,
        in_memory: InMemory = "auto",
        num_workers: MoreProcesses = 0,
        most_pixels: PositiveInt = MOST_PIXELS,
        flip: bool = True,
        **image_data: Any,
    ) -> None:
        self.mirrors = flip
        super().__init__(**image_data)
        self.root, self.image_size, self.declared = root, image_size, num_classes
        self.test_fraction, self.keep, self.workers = test_fraction, in_memory, num_workers
        self.most_pixels = most_pixels

    def load(self) -> Contents:
        if self.root is None:
            raise InputError(
                "expected dataset.root=FOLDER with one folder of images per class", where=self.name
            )
        train, test = list_parts(self.root)
        if self.declared is not None and self.declared != len(train.classes):
            raise InputError(f"expected num_classes={len(train.classes)}", got=self.declared, where=self.root)
        height = width = self.image_size
        if height is None or width is None:
            width, height = decode(train.files[0], self.most_pixels).size
        image, fit = (3, height, width), Fit(height, width)

        def samples(part: Listing) -> FileSamples:
            how: dict[str, Any] = {
                "workers": self.workers,
                "keep": self.keep,
                "most_pixels": self.most_pixels,
            }
            return FileSamples(part.files, part.labels, image, plain=fit, **how)

        if test is not None:
            return Contents(samples(train), samples(test), train.classes, MEAN, STD)
        everything = samples(train)
        rows, others = stratified_split(train.labels, 1 - self.test_fraction, generator(CONTENT, 0))
        return Contents(everything.select(rows), everything.select(others), train.classes, MEAN, STD)


def list_parts(root: str | Path) -> tuple[Listing, Listing | None]:
    """The training and the test images of a root, with the same labels."""
    train_root, test_root = find_parts(root)
    train = find_images(train_root)
    if test_root is None:
        return train, None
    return train, find_images(test_root).with_classes(train.classes, test_root)
