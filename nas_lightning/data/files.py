"""Images in files: folders, tar archives, pickles, and how they are decoded."""

from __future__ import annotations

import functools
import io
import math
import os
import pickle
import random as python_random
import signal
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from nas_lightning.data.loaders import Samples, TensorSamples
from nas_lightning.data.order import SAMPLE, BatchRows
from nas_lightning.errors import InputError, near_match
from nas_lightning.utils.progress import follow
from nas_lightning.utils.randomness import seed_of
from nas_lightning.utils.text import printable
from nas_lightning.validation import NonNegativeInt, PositiveInt, checked

# Images in folders

ENDINGS = frozenset(
    [".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".jp2"]
)
"""Extensions of image files; other files are ignored."""


def walk_images(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the path of every image and the name of its folder, in natural order of the paths.

    Hidden files and folders, whose names start with a dot, are ignored. Links to folders above are not
    followed.
    """
    from timm.utils.misc import natural_key

    paths = (
        os.path.join(folder, name)
        for folder, names in _walk(str(root), ())
        for name in names
        if os.path.splitext(name)[1].lower() in ENDINGS and not is_hidden(name)
    )
    for path in sorted(paths, key=natural_key):
        folder = os.path.dirname(path)
        yield path, "" if folder == str(root) else printable(os.path.basename(folder))


def is_hidden(path: str) -> bool:
    """Return whether a file or one of its folders is hidden; macOS leaves `._1.jpg` beside `1.jpg`.

    >>> is_hidden("cats/._1.jpg"), is_hidden(".thumbnails/1.jpg"), is_hidden("./cats/1.jpg")
    (True, True, False)
    """
    return any(part.startswith(".") and part.strip(".") for part in path.split("/"))


def _walk(folder: str, above: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Yield folders and the names of their files; `above` are the real paths of the parents."""
    here = os.path.realpath(folder)
    if here in above:
        return
    with os.scandir(folder) as scan:
        entries = list(scan)
    yield folder, [entry.name for entry in entries if entry.is_file()]
    for entry in entries:
        if entry.is_dir() and not is_hidden(entry.name):
            yield from _walk(entry.path, (*above, here))


# Pickled dictionaries of arrays, the format of CIFAR and the downsampled ImageNet

# Needed for arrays; pickles that import anything else are refused.
ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy.core.numeric", "_frombuffer"),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it imports {module}.{name}")
        return super().find_class(module, name)


def read_pickle(path: Path) -> dict[str, Any]:
    """Read the dictionary in a file, without importing anything but arrays; keys may be bytes."""
    try:
        with open(path, "rb") as stream:
            entries = dict(_Unpickler(stream, encoding="latin1").load())
        return {as_text(key): value for key, value in entries.items()}
    except Exception as error:  # the exception depends on the bytes of a broken pickle
        raise InputError(f"The file must be a pickled dictionary of arrays: {error}", where=path) from None


def as_text(value: Any) -> str:
    """Return a string, also of bytes, as a pickle has that was read with `encoding="bytes"` and saved again.

    >>> as_text(b"airplane"), as_text("airplane")
    ('airplane', 'airplane')
    """
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def read_batches(paths: list[Path], image: tuple[int, int, int], labels: str) -> tuple[Tensor, Tensor]:
    """Read the images (n, c, h, w) as bytes and the labels (n,) of several files."""
    parts = [_read_batch(path, image, labels) for path in paths]
    return torch.cat([images for images, _ in parts]), torch.cat([targets for _, targets in parts])


def _read_batch(path: Path, image: tuple[int, int, int], labels: str) -> tuple[Tensor, Tensor]:
    entries = read_pickle(path)
    if "data" not in entries or labels not in entries:
        got = ", ".join(sorted(entries))
        raise InputError(f"The file must have the entries data and {labels}", got=got, where=path)
    try:
        pixels, targets = np.asarray(entries["data"]), torch.as_tensor(entries[labels]).long()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"The entries must be arrays: {error}", where=path) from None
    if targets.dim() != 1 or pixels.dtype != np.uint8 or pixels.size != len(targets) * math.prod(image):
        expected = f"There must be bytes for {targets.numel()} images of {image} and as many labels"
        raise InputError(expected, got=f"{pixels.dtype} {pixels.shape}", where=path)
    return torch.from_numpy(pixels.copy()).view(-1, *image), targets


# Listings of image files, in folders or tar files; one folder is one class

_LONG_LISTING = 50_000_000  # bytes of a tar file whose listing takes seconds
TRAIN_NAMES = ("train", "train.tar")
TEST_NAMES = ("test", "test.tar", "val", "val.tar", "validation", "validation.tar")


class ImageFile(NamedTuple):
    """The location of an image: a whole file, or `size` bytes from `offset`, a `member` of a tar file.

    Args:
        path: of the file.
        offset: of the first byte.
        size: number of bytes; −1: all.
        member: the name in a tar file; empty: the file is not a tar file.
    """

    path: str
    offset: int = 0
    size: int = -1
    member: str = ""

    @property
    def label(self) -> str:
        """The location for messages."""
        return printable(f"{self.path}: {self.member}" if self.member else self.path)


@dataclass(frozen=True)
class Listing:
    """Image files, their labels, and the names of the classes.

    Args:
        files: one per image.
        labels: the class of each: (n,).
        classes: names.
    """

    files: list[ImageFile]
    labels: Tensor
    classes: tuple[str, ...]

    def with_classes(self, classes: tuple[str, ...], where: object) -> Listing:
        """Return the same files with labels that are indices of `classes`."""
        for name in self.classes:
            if name not in classes:
                raise InputError(
                    f"The class must be one of the training part ({near_match(name, classes)})",
                    got=name,
                    where=where,
                )
        places = torch.tensor([classes.index(name) for name in self.classes])
        return Listing(self.files, places[self.labels], classes)


def find_images(root: str | Path) -> Listing:
    """List all images below a folder, or in a tar file; the class is the name of the image's folder."""
    root = Path(root)
    if not root.exists():
        raise InputError("There is no such folder or .tar file of images", where=root)
    if root.is_file() and not tarfile_readable(root):
        raise InputError("The path must be a folder or an uncompressed .tar file of images", where=root)
    try:
        if root.is_file():
            about = root.stat()
            return _in_tar(str(root), about.st_size, about.st_mtime_ns)
        return _in_folder(root)
    except (RuntimeError, ValueError, OSError, tarfile.TarError):  # an empty folder, an empty or broken tar
        raise InputError("There are no readable images in one folder per class", where=root) from None


def _in_folder(root: Path) -> Listing:
    from timm.utils.misc import natural_key

    files = list(walk_images(root))
    if not files:
        raise ValueError("no images")
    classes = sorted({name for _, name in files}, key=natural_key)
    places = {name: place for place, name in enumerate(classes)}
    labels = torch.tensor([places[name] for _, name in files])
    return Listing([ImageFile(path) for path, _ in files], labels, tuple(classes))


@functools.lru_cache(maxsize=8)  # jobs of a sweep read the same file
def _in_tar(root: str, size: int, changed: int) -> Listing:
    """List a tar file; its size and the time of its last change identify its content."""
    from timm.data.readers import create_reader  # slow to import

    if size > _LONG_LISTING:
        print(f"Listing the images of {root}", file=sys.stderr, flush=True)
    with _all_extensions():
        reader = create_reader("", root=root)
    names = sorted(reader.class_name_to_idx, key=reader.class_name_to_idx.__getitem__)
    found = [
        (_member(root, info, inner), names[label])
        for (info, _, inner), label in zip(reader.samples, reader.targets.tolist(), strict=True)
        if not is_hidden(info.name)
    ]
    if not found:
        raise ValueError("no images")
    used = {name for _, name in found}
    classes = tuple(name for name in names if name in used)
    places = {name: place for place, name in enumerate(classes)}
    return Listing([file for file, _ in found], torch.tensor([places[name] for _, name in found]), classes)


@contextmanager
def _all_extensions() -> Iterator[None]:
    """Let timm's readers find images of all `ENDINGS`."""
    from timm.data.readers.img_extensions import get_img_extensions, set_img_extensions

    before = get_img_extensions()
    set_img_extensions(ENDINGS)
    try:
        yield
    finally:
        set_img_extensions(before)


def _member(path: str, info: tarfile.TarInfo, inner: tarfile.TarInfo | None) -> ImageFile:
    """Return an image in a tar file, or in the tar file `inner` within it."""
    if inner is None:
        return ImageFile(path, info.offset_data, info.size, info.name)
    return ImageFile(path, inner.offset_data + info.offset_data, info.size, f"{inner.name}/{info.name}")


def find_parts(root: str | Path) -> tuple[Path, Path | None]:
    """Return the locations of the training and the test images; the second is None if there is one part."""
    root = Path(root)
    train = [root / name for name in TRAIN_NAMES if (root / name).exists()]
    test = [root / name for name in TEST_NAMES if (root / name).exists()]
    if not train:
        return root, None
    return train[0], test[0] if test else None


def tarfile_readable(path: Path) -> bool:
    """Return whether a file is an uncompressed tar file."""
    try:
        with tarfile.open(path, "r:"):
            return path.suffix == ".tar"
    except (tarfile.TarError, OSError):
        return False


# Decoding one image to 8 bits per channel in color

MOST_PIXELS = 89_478_485
"""Default limit on the size of an image: a quarter of a gigabyte."""
_ORIENTATION = 0x0112
_SIXTEEN_BITS = ("I;16", "I;16B", "I;16L", "I;16N")
_SIXTEEN_BIT_FILES = ("PNG", "PPM", "JPEG2000")  # whose gray images of more than 8 bits have mode I


def decode(file: ImageFile, most_pixels: int = MOST_PIXELS) -> Image.Image:
    """Decode an image in color, or raise an `InputError` that names its file.

    16-bit gray and floats from 0 to 1 are scaled to 8 bits; transparency is dropped; the orientation in EXIF
    data is applied. Images of more than `most_pixels` are refused by their header, before they are decoded.
    """
    try:
        with open(file.path, "rb") as stream:
            stream.seek(file.offset)
            content = stream.read(file.size)
        with _without_limit(), Image.open(io.BytesIO(content)) as image:
            _check_size(image, most_pixels)
            return _upright(_to_color(image), image)
    except InputError as error:
        raise InputError(str(error), where=file.label) from None
    except UnidentifiedImageError:
        raise InputError("The file is damaged or not an image", where=file.label) from None
    except Exception as error:  # the exception depends on the decoder and the broken bytes
        raise InputError(f"Cannot read the image: {error}", where=file.label) from None


@contextmanager
def _without_limit() -> Iterator[None]:
    """Disable Pillow's limit, which `most_pixels` replaces."""
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = limit


def _check_size(image: Image.Image, most_pixels: int) -> None:
    width, height = image.size
    if width * height > most_pixels:
        raise InputError(f"The image must have at most {most_pixels:,} pixels", got=f"{width} × {height}")


def _upright(color: Image.Image, original: Image.Image) -> Image.Image:
    """Apply the EXIF orientation, if it can be read."""
    try:
        orientation = original.getexif().get(_ORIENTATION, 1)
        if orientation == 1:
            return color
        color.getexif()[_ORIENTATION] = orientation
        return ImageOps.exif_transpose(color)
    except Exception:  # broken tags
        return color


def _to_color(image: Image.Image) -> Image.Image:
    if image.mode in _SIXTEEN_BITS or (image.mode == "I" and image.format in _SIXTEEN_BIT_FILES):
        gray = np.asarray(image).astype(np.float64) / 65_535
    elif image.mode == "F":
        gray = np.asarray(image).astype(np.float64)
    elif image.mode == "I":
        raise InputError("The image must have 8 or 16 bits, or floats from 0 to 1", got="32-bit integers")
    else:
        return image.convert("RGB")
    if not (np.isfinite(gray).all() and gray.min() >= 0 and gray.max() <= 1):
        raise InputError("Floats must be from 0 to 1", got=f"{gray.min():.4g} to {gray.max():.4g}")
    return Image.fromarray(np.rint(255 * gray).astype(np.uint8)).convert("RGB")


# Samples in files

MEMORY_LIMIT = 2 * 1024**3  # bytes up to which "auto" keeps images in memory
CHUNK = 256

InMemory = bool | Literal["auto"]
Transform = Callable[[Image.Image], Tensor]  # → (c, h, w) bytes
Item = tuple[int, int]  # row, seed


class FileSamples(Samples):
    """Image files, read and transformed when they are drawn, with the same result for any number of workers.

    Args:
        files: their locations.
        labels: (n,).
        image: (channels, height, width) after the transforms.
        plain: the transform for evaluation.
        augmenting: the random transform for training; None: `plain`.
        workers: number of worker processes.
        keep: whether `in_memory` reads all images; "auto": up to 2 GB.
        most_pixels: limit on the size of an image, checked before it is decoded.
        advice: what users can do about images that cannot be read, for the error.
    """

    @checked
    def __init__(
        self,
        files: Sequence[ImageFile],
        labels: Tensor,
        image: tuple[int, int, int],
        *,
        plain: Transform,
        augmenting: Transform | None = None,
        workers: NonNegativeInt = 0,
        keep: InMemory = False,
        most_pixels: PositiveInt = MOST_PIXELS,
        advice: str = "",
    ) -> None:
        self.advice = advice
        self.files, self.labels, self.image, self.most_pixels = files, labels, image, most_pixels
        self.plain, self.augmenting, self.workers, self.keep = plain, augmenting, workers, keep

    def name(self, row: int) -> str:
        return self.files[row].label

    def select(self, rows: Tensor) -> FileSamples:
        return FileSamples(
            [self.files[row] for row in rows.tolist()],
            self.labels[rows],
            self.image,
            plain=self.plain,
            augmenting=self.augmenting,
            workers=self.workers,
            keep=self.keep,
            most_pixels=self.most_pixels,
            advice=self.advice,
        )

    def read(self, draws: Iterable[BatchRows], *, random: bool) -> Iterator[tuple[Tensor, Tensor]]:
        draws = list(draws)
        augmenting = self.augmenting if random else None
        loader = DataLoader(
            _ImageDataset(self.files, self.plain, augmenting, self.most_pixels),
            batch_sampler=(_items(draw) for draw in draws),
            num_workers=self.workers,
            collate_fn=_collate,
            pin_memory=torch.cuda.is_available(),
            worker_init_fn=_exit_quietly,
            generator=torch.Generator(),  # otherwise each pass would advance the global generator
        )
        for draw, images in zip(draws, loader, strict=True):
            if isinstance(images, InputError):
                raise BrokenImagesError([str(images)], self.advice)
            yield images, self.labels[draw.rows]

    def in_memory(self) -> Samples:
        size = len(self) * int(np.prod(self.image))
        if not (self.keep is True or (self.keep == "auto" and size <= MEMORY_LIMIT)):
            return self
        images = torch.empty((len(self), *self.image), dtype=torch.uint8)
        broken: dict[int, str] = {}
        for row, image in self._each(broken):
            images[row] = image
        if broken:
            raise BrokenImagesError(broken.values(), self.advice)
        return TensorSamples(images, self.labels, names=[file.label for file in self.files])

    def broken(self) -> dict[int, str]:
        """Read all images; return the errors of those that cannot be read, by row."""
        broken: dict[int, str] = {}
        for _ in self._each(broken):
            pass
        return broken

    def without_broken(self) -> FileSamples:
        """Return the samples whose images can be read; name the others on the screen."""
        broken = self.broken()
        if not broken:
            return self
        print(
            f"Left out {len(broken):,} of {len(self):,} images: {_join([*broken.values()])}", file=sys.stderr
        )
        return self.select(torch.tensor([row for row in range(len(self)) if row not in broken]).long())

    def _each(self, broken: dict[int, str]) -> Iterator[tuple[int, Tensor]]:
        """Yield row and image of each file that can be read; write the errors of the others to `broken`."""
        loader = DataLoader(
            _ImageDataset(self.files, self.plain, None, self.most_pixels),
            batch_sampler=(
                [(row, 0) for row in rows.tolist()] for rows in torch.arange(len(self)).split(CHUNK)
            ),
            num_workers=self.workers,
            collate_fn=list,
            worker_init_fn=_exit_quietly,
            generator=torch.Generator(),
        )
        images = (image for chunk in loader for image in chunk)
        for row, image in enumerate(follow(images, "images read", total=len(self))):
            if isinstance(image, InputError):
                broken[row] = str(image)
            else:
                yield row, image


class BrokenImagesError(InputError):
    """Images that cannot be read.

    Args:
        errors: of each file.
        advice: what users can do about them.
    """

    def __init__(self, errors: Iterable[str], advice: str = "") -> None:
        self.errors = list(errors)
        count = f"{len(self.errors):,} that cannot" if len(self.errors) > 1 else "one that cannot"
        super().__init__(f"expected images that can be read{advice}, got {count}: {_join(self.errors)}")


_MOST_NAMED = 100


def _join(errors: Sequence[str]) -> str:
    """Join the errors of files, at most `_MOST_NAMED` of them."""
    more = [f"and {len(errors) - _MOST_NAMED:,} more"] if len(errors) > _MOST_NAMED else []
    return "; ".join([*errors[:_MOST_NAMED], *more])


def _exit_quietly(worker: int) -> None:
    """Let a worker exit without a message when its process group is terminated."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


class _ImageDataset(Dataset[Tensor | InputError]):
    """The images of (row, seed); an `InputError` is returned, for the main process to raise."""

    def __init__(
        self, files: Sequence[ImageFile], plain: Transform, augmenting: Transform | None, most_pixels: int
    ) -> None:
        self.files, self.plain, self.augmenting, self.most_pixels = files, plain, augmenting, most_pixels

    def __getitem__(self, item: Item) -> Tensor | InputError:
        row, seed = item
        try:
            image = decode(self.files[row], self.most_pixels)
        except InputError as error:
            return error
        if self.augmenting is None:
            return self.plain(image)
        with global_seeds(seed):
            return self.augmenting(image)


def _items(draw: BatchRows) -> list[Item]:
    """Return each row with a seed that depends on its position in the global batch."""
    return [(row, seed_of(SAMPLE, *draw.key, draw.first + i)) for i, row in enumerate(draw.rows.tolist())]


def _collate(images: list[Tensor | InputError]) -> Tensor | InputError:
    for image in images:
        if isinstance(image, InputError):
            return image
    return torch.stack(images)  # type: ignore[arg-type]


class Fit:
    """Resize an image to cover height × width, and crop the center.

    Args:
        height: of the result, in pixels.
        width: of the result, in pixels.
    """

    def __init__(self, height: int, width: int) -> None:
        self.size = (width, height)

    def __call__(self, image: Image.Image) -> Tensor:
        if image.size != self.size:
            image = ImageOps.fit(image, self.size, method=Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


@contextmanager
def global_seeds(seed: int) -> Iterator[None]:
    """Seed the global generators, from which transforms draw, and restore them afterwards."""
    before = python_random.getstate(), np.random.get_state(), torch.get_rng_state()
    python_random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        python_random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])
