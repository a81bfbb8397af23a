"""Data sets by name."""

from __future__ import annotations

import gzip
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nas_lightning.data.augment import Augment, Magnitude, statistics
from nas_lightning.data.base import Classes, Contents, ImageData, SmallImages
from nas_lightning.data.files import (
    MOST_PIXELS,
    BrokenImagesError,
    FileSamples,
    Fit,
    ImageFile,
    InMemory,
    Listing,
    as_text,
    decode,
    find_images,
    find_parts,
    read_batches,
    read_pickle,
)
from nas_lightning.data.loaders import TensorSamples
from nas_lightning.data.order import CONTENT, stratified_split
from nas_lightning.errors import InputError
from nas_lightning.utils.machine import MoreProcesses
from nas_lightning.utils.randomness import generator
from nas_lightning.validation import (
    Between0And1,
    Channels,
    ImageSide,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    at_most,
    checked,
)

# Errors of missing files and failed downloads


def missing_data_error(name: str, root: str | Path, files: str, *, download: bool) -> InputError:
    """Return the error for missing files, with the ways to provide them."""
    how = f"pass dataset.root=FOLDER with {files}"
    if download:
        how += ", or dataset.download=true to download them"
    return InputError(f"Cannot find the data set {name}: {how}", where=root)


def fetch(download: Callable[[], object], name: str) -> None:
    """Run torchvision's download; its exceptions become an `InputError`."""
    try:
        download()
    except (OSError, RuntimeError) as error:  # no network, a full disk, a wrong checksum
        raise InputError(f"Cannot download {name}: {error}") from None


# Data sets that need no download


MAX_NUMBERS = 2**28  # of `Fake`: a gigabyte


class Digits(SmallImages):
    """Handwritten digits (Alpaydin & Kaynak 1998), as scikit-learn carries them: 1,797 gray images of 8×8.

    1,438 training and 359 test images; the split does not depend on the seed.

    Args:
        batch_size: images per step.
        crop_padding: pixels added around an image before it is cropped to its size.
        **image_data: see `SmallImages`.

    >>> data = Digits()
    >>> data.image, data.num_classes, len(data.train), len(data.test)
    ((1, 8, 8), 10, 1438, 359)
    """

    mirrors = False
    name = "digits"

    @checked
    def __init__(
        self, *, batch_size: PositiveInt = 32, crop_padding: NonNegativeInt = 1, **image_data: Any
    ) -> None:
        super().__init__(batch_size=batch_size, crop_padding=crop_padding, **image_data)

    def load(self) -> Contents:
        rows = torch.from_numpy(np.loadtxt(_digits_file(), delimiter=","))  # (n, 64 + 1)
        images = (rows[:, :-1] * (255 / 16)).round().to(torch.uint8).view(-1, 1, 8, 8)
        labels = rows[:, -1].long()
        train, test = stratified_split(labels, 0.8, generator(CONTENT, 0))
        everything = TensorSamples(images, labels)
        mean, std = statistics(images[train])
        classes = tuple(str(digit) for digit in range(10))
        return Contents(everything.select(train), everything.select(test), classes, mean, std)


def _digits_file() -> Path:
    """Return the file in scikit-learn, without the slow import of the package."""
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


class Fake(SmallImages):
    """Random images for tests: each class is a random image, and a sample is its class's image plus noise.

    The images do not depend on the seed.

    Args:
        shape: (channels, height, width) of an image.
        num_classes: number of classes.
        train_size: number of training images, at least one per class.
        test_size: number of test images, at least one per class.
        noise: standard deviation of the noise, relative to that of the classes' images.
        batch_size: images per step and process.
        crop_padding: pixels added around an image before it is cropped to its size.
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
                f"Each part must have at least {num_classes} images", got=(train_size, test_size)
            )
        numbers = math.prod(shape) * (train_size + test_size + num_classes)
        if numbers > MAX_NUMBERS:
            expected = f"All images together can have at most {MAX_NUMBERS:,} values"
            raise InputError(expected, got=f"{numbers:,}", where="Fake.shape")
        self.shape, self.size, self.noise = tuple(shape), num_classes, noise
        self.sizes = (train_size, test_size)

    def load(self) -> Contents:
        random = generator(CONTENT, 1)
        total = sum(self.sizes)
        centers = torch.randn(self.size, *self.shape, generator=random)
        labels = torch.arange(total) % self.size
        images = centers[labels] + self.noise * torch.randn(total, *self.shape, generator=random)
        everything = TensorSamples((128 + 32 * images).clamp(0, 255).to(torch.uint8), labels)
        train = everything.select(torch.arange(self.sizes[0]))
        test = everything.select(torch.arange(self.sizes[0], total))
        mean, std = statistics(everything.images[: self.sizes[0]])
        return Contents(train, test, tuple(f"class_{i}" for i in range(self.size)), mean, std)


# Fashion-MNIST

FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


class FashionMnist(SmallImages):
    """Fashion-MNIST (Xiao et al. 2017, arXiv:1708.07747): 60,000 + 10,000 gray images of 28×28.

    Args:
        root: a folder with the four published files, compressed or not, or with FashionMNIST/raw in it.
        download: download missing files to `root`.
        **image_data: see `SmallImages`.

    >>> data = FashionMnist(root="my_data", subset=1000)  # files are read when first needed
    >>> data.subset, data.augment.crop_padding
    (1000, 4)
    """

    name = "fashion_mnist"
    mean_std = (0.2860,), (0.3530,)

    @checked
    def __init__(self, *, root: str = "data", download: bool = False, **image_data: Any) -> None:
        super().__init__(**image_data)
        self.root, self.download = Path(root), download

    def fetch(self) -> None:
        if self.download:
            from torchvision.datasets import FashionMNIST  # slow to import

            fetch(lambda: FashionMNIST(str(self.root), download=True), self.name)

    def load(self) -> Contents:
        return Contents(self._part("train"), self._part("t10k"), FASHION_CLASSES, *self.mean_std)

    def _part(self, part: str) -> TensorSamples:
        images = read_idx(self._find(f"{part}-images-idx3-ubyte"), dimensions=3)
        labels = read_idx(self._find(f"{part}-labels-idx1-ubyte"), dimensions=1)
        if len(images) != len(labels) or images.shape[1:] != (28, 28):
            got = f"{len(labels)} labels and images of {tuple(images.shape)}"
            raise InputError("There must be images of 28×28 and a label for each", got=got, where=self.root)
        return TensorSamples(images.unsqueeze(1), labels)

    def _find(self, file: str) -> Path:
        for folder in (self.root, self.root / "FashionMNIST" / "raw"):
            for path in (folder / file, folder / f"{file}.gz"):
                if path.is_file():
                    return path
        raise missing_data_error(
            self.name, self.root, f"{file}[.gz] and the other three files", download=True
        )


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Read an array in the IDX format: two zeros, 8 for bytes, number of dimensions, their lengths, data."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        zeros, kind, rank, *shape = struct.unpack_from(f">HBB{dimensions}I", content)
    except (OSError, EOFError, struct.error) as error:
        raise InputError(f"Cannot read the IDX file: {error}", where=path) from None
    data = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions)
    if (zeros, kind, rank) != (0, 8, dimensions) or len(data) != math.prod(shape):
        raise InputError(f"The IDX file must have bytes with {dimensions} dimensions", where=path)
    return torch.from_numpy(data.copy()).view(*shape)


# ImageNet16-120


class ImageNet16(SmallImages):
    """The first 120 classes of ImageNet at 16×16 (Chrabaszcz et al. 2017, arXiv:1707.08819).

    As used by NAS-Bench-201 (arXiv:2001.00326, section 2.2). The published validation images are the test
    part.

    Args:
        root: a folder with the eleven published files, train_data_batch_1 … 10 and val_data.
        num_classes: how many of the 1,000 classes.
        crop_padding: pixels added around an image before it is cropped to its size.
        **image_data: see `SmallImages`.

    >>> data = ImageNet16(root="my_data", num_classes=200)  # files are read when first needed
    >>> data.augment.crop_padding, data.batch_size
    (2, 64)
    """

    name = "imagenet16"
    image_shape = (3, 16, 16)
    mean_std = (122.68 / 255, 116.66 / 255, 104.01 / 255), (63.22 / 255, 61.26 / 255, 65.09 / 255)
    train_files = tuple(f"train_data_batch_{number}" for number in range(1, 11))
    test_file = "val_data"
    folders = ("", "Imagenet16_train", "Imagenet16_val")  # the published archives unpack into the latter two

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
        train, test = self._part(self.train_files), self._part([self.test_file])
        return Contents(train, test, classes, *self.mean_std)

    def _part(self, files: Sequence[str]) -> TensorSamples:
        images, numbers = read_batches([self._find(file) for file in files], self.image_shape, "labels")
        rows = (numbers <= self.first).nonzero().squeeze(1)  # classes are numbered from 1
        return TensorSamples(images[rows], numbers[rows] - 1)

    def _find(self, file: str) -> Path:
        for folder in self.folders:
            if (self.root / folder / file).is_file():
                return self.root / folder / file
        files = f"{file} and the other files of the downsampled ImageNet 16×16 (image-net.org)"
        raise missing_data_error(self.name, self.root, files, download=False)


# The user's images, with one folder per class

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


_ADVICE = " (dataset.skip_broken=true leaves out the others)"


class ImageFolder(SmallImages):
    """The user's images, one folder per class, read in color and normalized with ImageNet's statistics.

    A root with train/ and test/ (or val/), as folders or .tar files, has two parts; of any other root, a
    fraction of every class is held out for testing, independent of the seed.

    Args:
        root: a folder or a .tar file with one folder of images per class, or with such parts.
        image_size: height and width to which images are resized and cropped; None: those of the first.
        num_classes: expected number of classes, to detect a wrong folder early; None: not checked.
        test_fraction: fraction of every class for testing, if the root has no parts.
        in_memory: keep all images as bytes, which is faster and finds broken files at the start; "auto": up
            to 2 GB.
        num_workers: number of processes that read images from disk.
        most_pixels: limit on the size of an image, checked before it is decoded.
        skip_broken: read all images first, and leave out those that cannot be read.
        flip: whether the mirror image of an image belongs to the same class.
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
        skip_broken: bool = False,
        flip: bool = True,
        **image_data: Any,
    ) -> None:
        self.mirrors = flip
        super().__init__(**image_data)
        self.root, self.image_size, self.declared = root, image_size, num_classes
        self.test_fraction, self.keep, self.workers = test_fraction, in_memory, num_workers
        self.most_pixels, self.skip_broken = most_pixels, skip_broken
        self._listed: list[FileSamples] = []

    def load(self) -> Contents:
        if self.root is None:
            raise InputError(
                "Pass dataset.root=FOLDER, which has one folder of images per class", where=self.name
            )
        train, test = list_parts(self.root)
        if self.declared is not None and self.declared != len(train.classes):
            raise InputError(
                f"`num_classes` must be {len(train.classes)}, as the folder has",
                got=self.declared,
                where=self.root,
            )
        height = width = self.image_size
        if height is None or width is None:
            width, height = self._first(train).size
        image, fit = (3, height, width), Fit(height, width)

        def samples(part: Listing) -> FileSamples:
            listed = FileSamples(
                part.files,
                part.labels,
                image,
                plain=fit,
                workers=self.workers,
                keep=self.keep,
                most_pixels=self.most_pixels,
                advice=_ADVICE,
            )
            return listed.without_broken() if self.skip_broken else listed

        self._listed = [samples(part) for part in (train, test) if part is not None]
        everything = self._listed[0]
        if test is not None:
            return Contents(everything, self._listed[1], train.classes, IMAGENET_MEAN, IMAGENET_STD)
        rows, others = stratified_split(everything.labels, 1 - self.test_fraction, generator(CONTENT, 0))
        return Contents(
            everything.select(rows),
            everything.select(others),
            train.classes,
            IMAGENET_MEAN,
            IMAGENET_STD,
        )

    def setup(self, stage: str | None = None) -> None:
        with self._naming_all():
            super().setup(stage)

    def prepare(self) -> None:
        with self._naming_all():
            super().prepare()

    @contextmanager
    def _naming_all(self) -> Iterator[None]:
        """Name all broken images of both parts, if there is one."""
        try:
            yield
        except BrokenImagesError:
            broken = [error for part in self._listed for error in part.broken().values()]
            raise BrokenImagesError(broken, _ADVICE) from None

    def _first(self, part: Listing) -> Image.Image:
        """Return the first image, or with `skip_broken` the first that can be read."""
        for file in part.files if self.skip_broken else ():
            with suppress(InputError):
                return decode(file, self.most_pixels)
        return decode(part.files[0], self.most_pixels)


def list_parts(root: str | Path) -> tuple[Listing, Listing | None]:
    """List the training and the test images of a root, with the same labels."""
    train_root, test_root = find_parts(root)
    train = find_images(train_root)
    if test_root is None:
        return train, None
    return train, find_images(test_root).with_classes(train.classes, test_root)


# CIFAR


class Cifar(SmallImages):
    """Base of CIFAR-10 and CIFAR-100 (Krizhevsky 2009): 50,000 + 10,000 images of 32×32.

    Args:
        root: a folder with the published Python batches, or with train and test as class folders or .tar
            files of them.
        download: download missing files to `root`.
        **image_data: see `SmallImages`.
    """

    image_shape = (3, 32, 32)
    size: int
    mean_std: tuple[tuple[float, ...], tuple[float, ...]]
    torchvision_name: str
    folder: str
    train_files: tuple[str, ...]
    test_file: str
    labels: str
    meta: tuple[str, str]

    @checked
    def __init__(self, *, root: str = "data", download: bool = False, **image_data: Any) -> None:
        super().__init__(**image_data)
        self.root, self.download = Path(root), download

    def fetch(self) -> None:
        if self.download:
            from torchvision import datasets  # slow to import

            dataset = {"CIFAR10": datasets.CIFAR10, "CIFAR100": datasets.CIFAR100}[self.torchvision_name]
            fetch(lambda: dataset(str(self.root), download=True), self.name)

    def load(self) -> Contents:
        for folder in (self.root / self.folder, self.root):
            if (folder / self.test_file).is_file():
                return self._from_batches(folder)
        if not any(self.root.glob("train*")):
            files = f"{self.folder}/, or train.tar and test.tar with one folder per class"
            raise missing_data_error(self.name, self.root, files, download=True)
        train, test = list_parts(self.root)
        if test is None or len(train.classes) != self.size:
            got = f"{len(train.classes)} classes{', no test part' if test is None else ''}"
            raise InputError(f"`train` and `test` must have {self.size} classes", got=got, where=self.root)
        return Contents(self._read(train), self._read(test), train.classes, *self.mean_std)

    def _from_batches(self, folder: Path) -> Contents:
        paths = [folder / name for name in (*self.train_files, self.test_file, self.meta[0])]
        for path in paths:
            if not path.is_file():
                raise InputError("There is no such file", where=path)
        train = read_batches(paths[: len(self.train_files)], self.image_shape, self.labels)
        test = read_batches([folder / self.test_file], self.image_shape, self.labels)
        names = read_pickle(paths[-1]).get(self.meta[1])
        if not isinstance(names, list):
            raise InputError(f"The entry {self.meta[1]} must be a list of names", where=paths[-1])
        classes = tuple(map(as_text, names))
        return Contents(TensorSamples(*train), TensorSamples(*test), classes, *self.mean_std)

    def _read(self, part: Listing) -> FileSamples:
        fit = Fit(*self.image_shape[1:])
        return FileSamples(part.files, part.labels, self.image_shape, plain=fit, keep=True)


class Cifar10(Cifar):
    """CIFAR-10.

    >>> data = Cifar10(root="my_data", cutout=16, batch_size=96)  # files are read when first needed
    >>> data.augment.cutout, data.eval_batch_size
    (16, 192)
    """

    name = "cifar10"
    size = 10
    mean_std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    torchvision_name = "CIFAR10"
    folder = "cifar-10-batches-py"
    train_files = tuple(f"data_batch_{number}" for number in range(1, 6))
    test_file = "test_batch"
    labels = "labels"
    meta = "batches.meta", "label_names"


class Cifar100(Cifar):
    """CIFAR-100.

    >>> Cifar100(root="my_data", val_fraction=0.1).val_fraction
    0.1
    """

    name = "cifar100"
    size = 100
    mean_std = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
    torchvision_name = "CIFAR100"
    folder = "cifar-100-python"
    train_files = ("train",)
    test_file = "test"
    labels = "fine_labels"
    meta = "meta", "fine_label_names"


# ImageNet and Tiny ImageNet


class ImageNet(ImageData):
    """ImageNet (Russakovsky et al. 2015, arXiv:1409.0575), or other photographs in class folders, on disk.

    Training uses random crops of random size, mirrored or not, with color jitter or RandAugment; evaluation
    uses the center. All transforms are timm's.

    Args:
        root: a folder with train and val (or test), as class folders or as .tar files of them.
        image_size: height and width of the crops.
        color_jitter: maximum relative change of brightness, contrast, and saturation; 0: none.
        rand_augment: magnitude of RandAugment's operations, instead of color jitter; 0: none.
        num_workers: number of processes that read images.
        batch_size: images per step and process.
        augment: whether training uses random crops instead of the center.
        cutout: side of the square that is erased in training images, independent of `augment`.
        **image_data: see `ImageData`.

    >>> data = ImageNet(root="my_images", image_size=160, rand_augment=9)  # files are read when first needed
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
            raise InputError("There must be a folder `val` or `test` beside `train`", where=self.root)
        return Contents(self._samples(train), self._samples(test), train.classes, IMAGENET_MEAN, IMAGENET_STD)

    def _samples(self, part: Listing) -> FileSamples:
        from timm.data import create_transform  # slow to import

        size = self.image_size
        plain = create_transform(size, use_prefetcher=True)  # bytes; whole batches are normalized later
        augmenting = None
        if self.random_crops:
            augmenting = create_transform(
                size,
                is_training=True,
                color_jitter=self.color_jitter,  # timm ignores it if there is RandAugment
                auto_augment=self.rand_augment,
                use_prefetcher=True,
            )
        return FileSamples(
            part.files, part.labels, (3, size, size), plain=plain, augmenting=augmenting, workers=self.workers
        )


class TinyImageNet(SmallImages):
    """Tiny ImageNet (Stanford CS231n): 100,000 + 10,000 images of 64×64 in 200 classes.

    The published validation images are the test part.

    Args:
        root: a folder with train/ and val/ as published, or with tiny-imagenet-200 in it.
        download: download the published archive to `root` if it is missing.
        in_memory: keep all images as bytes; "auto": up to 2 GB.
        num_workers: number of processes that read images from disk.
        **image_data: see `SmallImages`.

    >>> data = TinyImageNet(root="my_data", num_workers=8)  # files are read when first needed
    >>> data.workers, data.augment.crop_padding
    (8, 4)
    """

    name = "tiny_imagenet"
    image_shape = (3, 64, 64)
    mean_std = (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)
    folder = "tiny-imagenet-200"
    url = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"

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
        if self.download and not (self.root / self.folder).exists():
            from torchvision.datasets.utils import download_and_extract_archive  # slow to import

            fetch(lambda: download_and_extract_archive(self.url, str(self.root)), self.name)

    def load(self) -> Contents:
        roots = [root for root in (self.root, self.root / self.folder) if (root / "train").is_dir()]
        if not roots:
            raise missing_data_error(
                self.name, self.root, f"{self.folder}/train and {self.folder}/val", download=True
            )
        train = _class_folders(roots[0] / "train")
        annotations = roots[0] / "val" / "val_annotations.txt"
        test = _read_annotations(annotations) if annotations.is_file() else _class_folders(roots[0] / "val")
        test = test.with_classes(train.classes, roots[0] / "val")
        return Contents(self._samples(train), self._samples(test), train.classes, *self.mean_std)

    def _samples(self, part: Listing) -> FileSamples:
        return FileSamples(
            part.files,
            part.labels,
            self.image_shape,
            plain=Fit(*self.image_shape[1:]),
            workers=self.workers,
            keep=self.keep,
        )


def _class_folders(root: Path) -> Listing:
    """List images in CLASS/images/ or CLASS/."""
    return _listing(
        [(path, path.relative_to(root).parts[0]) for path in sorted(root.glob("*/**/*.JPEG"))], root
    )


def _read_annotations(annotations: Path) -> Listing:
    """List images whose classes are in a table of file, class, and the corners of a box."""
    rows = [line.split() for line in annotations.read_text().splitlines() if line.strip()]
    if any(len(row) < 2 for row in rows):
        raise InputError("Each line must have a file and its class", where=annotations)
    return _listing([(annotations.parent / "images" / row[0], row[1]) for row in rows], annotations)


def _listing(images: list[tuple[Path, str]], where: Path) -> Listing:
    if not images:
        raise InputError("There are no JPEG images in one folder per class", where=where)
    classes = tuple(sorted({name for _, name in images}))
    number = {name: label for label, name in enumerate(classes)}
    labels = torch.tensor([number[name] for _, name in images])
    return Listing([ImageFile(str(path)) for path, _ in images], labels, classes)
