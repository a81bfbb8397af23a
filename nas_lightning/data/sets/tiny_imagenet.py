"""Tiny ImageNet (Stanford CS231n): 100,000 + 10,000 images of 64×64 in 200 classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from nas_lightning.checks import checked
from nas_lightning.data.base import Contents
from nas_lightning.data.formats.files import FileSamples, Fit, InMemory
from nas_lightning.data.formats.listing import ImageFile, Listing
from nas_lightning.data.sets.base import SmallImages
from nas_lightning.data.sets.download import fetch, missing_data_error
from nas_lightning.errors import InputError
from nas_lightning.machine import MoreProcesses

URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
FOLDER = "tiny-imagenet-200"
MEAN, STD = (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)
IMAGE = (3, 64, 64)


class TinyImageNet(SmallImages):
    """The published training images; the published validation images are the test part.

    Args:
        root: it, or tiny-imagenet-200 in it, has train/ and val/ as published.
        download: fetch the published archive into `root` if it is not there.
        in_memory: keep all images as bytes; "auto" does so up to 2 GB.
        num_workers: processes that read images which are not in memory.
        **image_data: see `SmallImages`.

    >>> data = TinyImageNet(root="my_data", num_workers=8)  # read when it is first asked for an image
    >>> data.workers, data.augment.crop_padding
    (8, 4)
    """

    name = "tiny_imagenet"

    @checked
    def __init__(
        self,
        *,
        root: str = "data",
        download: bool = False,
        in_memory: InMemory = "auto",
        num_workers: MoreProcesses = 0,
        **image_data: Any,
    ) -> None:
        super().__init__(**image_data)
        self.root, self.download = Path(root), download
        self.keep, self.workers = in_memory, num_workers

    def fetch(self) -> None:
        if self.download and not (self.root / FOLDER).exists():
            from torchvision.datasets.utils import download_and_extract_archive  # a second to import

            fetch(lambda: download_and_extract_archive(URL, str(self.root)), self.name)

    def load(self) -> Contents:
        roots = [root for root in (self.root, self.root / FOLDER) if (root / "train").is_dir()]
        if not roots:
            raise missing_data_error(self.name, self.root, f"{FOLDER}/train and {FOLDER}/val", download=True)
        train = _class_folders(roots[0] / "train")
        annotations = roots[0] / "val" / "val_annotations.txt"
        test = _read_annotations(annotations) if annotations.is_file() else _class_folders(roots[0] / "val")
        test = test.with_classes(train.classes, roots[0] / "val")
        return Contents(self._samples(train), self._samples(test), train.classes, MEAN, STD)

    def _samples(self, part: Listing) -> FileSamples:
        return FileSamples(
            part.files, part.labels, IMAGE, plain=Fit(*IMAGE[1:]), workers=self.workers, keep=self.keep
        )


def _class_folders(root: Path) -> Listing:
    """Images in CLASS/images/, or in CLASS/."""
    return _listing(
        [(path, path.relative_to(root).parts[0]) for path in sorted(root.glob("*/**/*.JPEG"))], root
    )


def _read_annotations(annotations: Path) -> Listing:
    """Images whose classes are in a table: file, class, and the corners of a box."""
    rows = [line.split() for line in annotations.read_text().splitlines() if line.strip()]
    if any(len(row) < 2 for row in rows):
        raise InputError("expected lines of a file and its class", where=annotations)
    return _listing([(annotations.parent / "images" / row[0], row[1]) for row in rows], annotations)


def _listing(images: list[tuple[Path, str]], where: Path) -> Listing:
    if not images:
        raise InputError("expected JPEG images in one folder per class", got="none", where=where)
    classes = tuple(sorted({name for _, name in images}))
    number = {name: label for label, name in enumerate(classes)}
    labels = torch.tensor([number[name] for _, name in images])
    return Listing([ImageFile(str(path)) for path, _ in images], labels, classes)
