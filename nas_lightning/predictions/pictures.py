"""Images to predict: a folder of any depth, a tar file, or one file; a folder may be named like a class.

>>> from tempfile import TemporaryDirectory
>>> from PIL import Image
>>> with TemporaryDirectory() as root:
...     for name in ("cats/1.png", "unsorted/2.png", "3.png"):
...         Path(root, name).parent.mkdir(exist_ok=True)
...         Image.new("RGB", (20, 16)).save(Path(root, name))
...     pictures = list_pictures(root)
>>> [(picture.name, picture.folder) for picture in pictures]
[('3.png', ''), ('cats/1.png', 'cats'), ('unsorted/2.png', 'unsorted')]
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from nas_lightning.data.formats.decode import MOST_PIXELS, decode
from nas_lightning.data.formats.files import Fit
from nas_lightning.data.formats.folders import walk_images
from nas_lightning.data.formats.listing import ImageFile, find_images
from nas_lightning.errors import InputError
from nas_lightning.text import printable


class Picture(NamedTuple):
    """An image and what its place says.

    Args:
        file: where its bytes are.
        name: its path below the folder.
        folder: the name of the folder that it is in; empty for the topmost.
    """

    file: ImageFile
    name: str
    folder: str


def list_pictures(source: str | Path) -> list[Picture]:
    """All images of a folder or a tar file in natural order, or the one that a file is."""
    source = Path(source)
    if source.is_dir():
        found = [
            Picture(ImageFile(path), printable(os.path.relpath(path, source)), folder)
            for path, folder in walk_images(source)
        ]
    elif source.suffix == ".tar":
        listing = find_images(source)
        folders = [listing.classes[label] for label in listing.labels.tolist()]
        found = [
            Picture(file, printable(file.member), folder)
            for file, folder in zip(listing.files, folders, strict=True)
        ]
    elif source.is_file():
        found = [Picture(ImageFile(str(source)), printable(source.name), "")]
    else:
        raise InputError(
            "expected an image, or a folder or a .tar file of images", got="nothing", where=source
        )
    if not found:
        raise InputError("expected files of images", got="none", where=source)
    return found


def read_pixels(file: ImageFile, image: tuple[int, int, int], most_pixels: int = MOST_PIXELS) -> Tensor:
    """The picture as a network of such images takes it, values from 0 to 1: (c, h, w); or an `InputError`."""
    channels, height, width = image
    if channels not in (1, 3):
        raise InputError("expected a network for images in grey or in colour", got=f"{channels} channels")
    picture = decode(file, most_pixels)
    if channels == 1:
        picture = picture.convert("L").convert("RGB")
    return Fit(height, width)(picture)[:channels].float() / 255


def true_classes(pictures: list[Picture], classes: tuple[str, ...]) -> Tensor:
    """The places of their folders' names in the classes, −1 where no class has it: (n,)."""
    places = {name: place for place, name in enumerate(classes)}
    return torch.tensor([places.get(picture.folder, -1) for picture in pictures])
