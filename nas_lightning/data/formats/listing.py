"""The image files in a folder or a tar file, as timm reads them; one folder is one class."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from nas_lightning.data.formats.folders import ENDINGS, walk_images
from nas_lightning.errors import InputError, near_match
from nas_lightning.text import printable

TRAIN_NAMES = ("train", "train.tar")
TEST_NAMES = ("test", "test.tar", "val", "val.tar", "validation", "validation.tar")


class ImageFile(NamedTuple):
    """Where an image's bytes are: all of a file, or `size` bytes from `offset`, a `member` of a tar.

    Args:
        path: of the file.
        offset: its first byte in it.
        size: its bytes; −1: all that there are.
        member: its name in a tar; empty: the file is no tar.
    """

    path: str
    offset: int = 0
    size: int = -1
    member: str = ""

    @property
    def label(self) -> str:
        """For messages."""
        return printable(f"{self.path}: {self.member}" if self.member else self.path)


@dataclass(frozen=True)
class Listing:
    """Image files, their labels (n,) and what the labels stand for.

    Args:
        files: one an image, in their order.
        labels: the class of each: (n,).
        classes: the names of classes.
    """

    files: list[ImageFile]
    labels: Tensor
    classes: tuple[str, ...]

    def with_classes(self, classes: tuple[str, ...], where: object) -> Listing:
        """The same files with labels that are places in `classes`."""
        for name in self.classes:
            if name not in classes:
                raise InputError(
                    f"expected a class of the training part ({near_match(name, classes)})",
                    got=name,
                    where=where,
                )
        places = torch.tensor([classes.index(name) for name in self.classes])
        return Listing(self.files, places[self.labels], classes)


def find_images(root: str | Path) -> Listing:
    """Every image below a folder, or in a tar file; its class is the name of the folder it is in."""
    root = Path(root)
    if not root.exists():
        raise InputError("expected a folder or a .tar file of images", got="nothing there", where=root)
    if root.is_file() and not tarfile_readable(root):
        raise InputError("expected a folder or an uncompressed .tar file of images", where=root)
    try:
        return _in_tar(root) if root.is_file() else _in_folder(root)
    except (RuntimeError, ValueError, OSError, tarfile.TarError):  # an empty folder, an empty or broken tar
        raise InputError(
            "expected images in one folder per class", got="none that can be read", where=root
        ) from None


def _in_folder(root: Path) -> Listing:
    from timm.utils.misc import natural_key

    files = list(walk_images(root))
    if not files:
        raise ValueError("no images")
    classes = sorted({name for _, name in files}, key=natural_key)
    places = {name: place for place, name in enumerate(classes)}
    labels = torch.tensor([places[name] for _, name in files])
    return Listing([ImageFile(path) for path, _ in files], labels, tuple(classes))


def _in_tar(root: Path) -> Listing:
    from timm.data.readers import create_reader  # a second to import, which only files need

    with _endings():
        reader = create_reader("", root=str(root))
    names = reader.class_name_to_idx
    files = [_member(str(root), info, inner) for info, _, inner in reader.samples]
    classes = tuple(sorted(names, key=names.__getitem__))
    return Listing(files, torch.tensor(reader.targets.tolist()), classes)


@contextmanager
def _endings() -> Iterator[None]:
    """Within, timm's readers find images of every ending that folders may have."""
    from timm.data.readers.img_extensions import get_img_extensions, set_img_extensions

    before = get_img_extensions()
    set_img_extensions(ENDINGS)
    try:
        yield
    finally:
        set_img_extensions(before)


def _member(path: str, info: tarfile.TarInfo, inner: tarfile.TarInfo | None) -> ImageFile:
    """An image in a tar file, or in the tar file `inner` within it."""
    if inner is None:
        return ImageFile(path, info.offset_data, info.size, info.name)
    return ImageFile(path, inner.offset_data + info.offset_data, info.size, f"{inner.name}/{info.name}")


def find_parts(root: str | Path) -> tuple[Path, Path | None]:
    """Where the training and the test images are; the second is None where there is one part only."""
    root = Path(root)
    train = [root / name for name in TRAIN_NAMES if (root / name).exists()]
    test = [root / name for name in TEST_NAMES if (root / name).exists()]
    if not train:
        return root, None
    return train[0], test[0] if test else None


def tarfile_readable(path: Path) -> bool:
    """Whether the file is an uncompressed tar file, in which each image has its place."""
    try:
        with tarfile.open(path, "r:"):
            return path.suffix == ".tar"
    except (tarfile.TarError, OSError):
        return False
