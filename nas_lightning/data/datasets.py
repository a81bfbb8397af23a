"""Data sets by name."""

from __future__ import annotations

import gzip
import math
import struct
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from nas_lightning.data.augment import Augment, Magnitude, statistics
from nas_lightning.data.base import Classes, Contents, ImageData, SmallImages
from nas_lightning.data.files import (
    MOST_PIXELS,
    FileSamples,
    Fit,
    ImageFile,
    InMemory,
    Listing,
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

# What to say where a data set is not there.


def missing_data_error(name: str, root: str | Path, files: str, *, download: bool) -> InputError:
    """One line with what was looked for, and with what the user can do."""
    how = f"pass dataset.root=FOLDER that has {files}"
    if download:
        how += ", or dataset.download=true to fetch them"
    return InputError(f"expected the data set {name}: {how}", got="none of them", where=root)


def fetch(download: Callable[[], object], name: str) -> None:
    """Run torchvision's download; what goes wrong with it becomes one line."""
    try:
        download()
    except (OSError, RuntimeError) as error:  # no network, a full disk, a wrong checksum
        raise InputError(f"expected to download {name}: {error}") from None


# Handwritten digits (Alpaydin & Kaynak 1998), as scikit-learn carries them: 1,797 gray images of 8×8.


class Digits(SmallImages):
    """1,438 training and 359 test images; the split is the same whatever the seed.

    Args:
        batch_size: images of a step.
        crop_padding: pixels around an image before it is cropped to its size.
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
        rows = torch.from_numpy(np.loadtxt(_file(), delimiter=","))  # (n, 64 + 1)
        images = (rows[:, :-1] * (255 / 16)).round().to(torch.uint8).view(-1, 1, 8, 8)
        labels = rows[:, -1].long()
        train, test = stratified_split(labels, 0.8, generator(CONTENT, 0))
        everything = TensorSamples(images, labels)
        mean, std = statistics(images[train])
        classes = tuple(str(digit) for digit in range(10))
        return Contents(everything.select(train), everything.select(test), classes, mean, std)


def _file() -> Path:
    """The file in scikit-learn, which itself takes a second to import."""
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


# Random images of any shape, whose classes differ in their mean image: for tests.

MOST_NUMBERS = 2**28  # a gigabyte


class Fake(SmallImages):
    """Each class is a random image; a sample is its class's image plus noise.

    The images are the same whatever the seed.

    Args:
        shape: (channels, height, width) of an image.
        num_classes: how many there are.
        train_size: training images, at least one a class.
        test_size: test images, at least one a class.
        noise: standard deviation of the noise, relative to that of the classes' images.
        batch_size: images of a step of one process.
        crop_padding: pixels around an image before it is cropped to its size.
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
                f"expected at least {num_classes} images in each part", got=(train_size, test_size)
            )
        numbers = math.prod(shape) * (train_size + test_size + num_classes)
        if numbers > MOST_NUMBERS:
            expected = f"expected images of at most {MOST_NUMBERS:,} numbers together"
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


# Fashion-MNIST (Xiao et al. 2017, arXiv:1708.07747): 60,000 + 10,000 gray images of 28×28.

MEAN, STD = (0.2860,), (0.3530,)
CLASSES = (
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
    """`root`, or FashionMNIST/raw in it, has the four published files, compressed or not.

    Args:
        root: a folder with the four published files, packed or not, or with FashionMNIST/raw in it.
        download: fetch the files into `root` if they are not there.
        **image_data: see `SmallImages`.

    >>> data = FashionMnist(root="my_data", subset=1000)  # read when it is first asked for an image
    >>> data.subset, data.augment.crop_padding
    (1000, 4)
    """

    name = "fashion_mnist"

    @checked
    def __init__(self, *, root: str = "data", download: bool = False, **image_data: Any) -> None:
        super().__init__(**image_data)
        self.root, self.download = Path(root), download

    def fetch(self) -> None:
        if self.download:
            from torchvision.datasets import FashionMNIST  # a second to import, which only downloads need

            fetch(lambda: FashionMNIST(str(self.root), download=True), self.name)

    def load(self) -> Contents:
        return Contents(self._part("train"), self._part("t10k"), CLASSES, MEAN, STD)

    def _part(self, part: str) -> TensorSamples:
        images = read_idx(self._find(f"{part}-images-idx3-ubyte"), dimensions=3)
        labels = read_idx(self._find(f"{part}-labels-idx1-ubyte"), dimensions=1)
        if len(images) != len(labels) or images.shape[1:] != (28, 28):
            got = f"{len(labels)} labels and images of {tuple(images.shape)}"
            raise InputError("expected images of 28×28 and a label for each", got=got, where=self.root)
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
    """An array in the IDX format: two zeros, 8 for bytes, the number of dimensions, their lengths, data."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        zeros, kind, rank, *shape = struct.unpack_from(f">HBB{dimensions}I", content)
    except (OSError, EOFError, struct.error) as error:
        raise InputError(f"expected an IDX file: {error}", where=path) from None
    data = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions)
    if (zeros, kind, rank) != (0, 8, dimensions) or len(data) != math.prod(shape):
        raise InputError(f"expected an IDX file of bytes with {dimensions} dimensions", where=path)
    return torch.from_numpy(data.copy()).view(*shape)


# ImageNet16-120: the first 120 classes of ImageNet at 16×16 (Chrabaszcz et al. 2017, arXiv:1707.08819).
#
# The form in which NAS-Bench-201 (arXiv:2001.00326, section 2.2) uses the downsampled images.

IMAGE = (3, 16, 16)
MEAN_IMAGENET16 = (122.68 / 255, 116.66 / 255, 104.01 / 255)
STD_IMAGENET16 = (63.22 / 255, 61.26 / 255, 65.09 / 255)
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
        return Contents(train, self._part([TEST_FILE]), classes, MEAN_IMAGENET16, STD_IMAGENET16)

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


# Anybody's images: one folder a class, as folders or in tar files.

# Of ImageNet, which stand in where a set's own are not known
MEAN_IMAGE_FOLDER, STD_IMAGE_FOLDER = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ImageFolder(SmallImages):
    """Images in `root`, read in color.

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
            return Contents(samples(train), samples(test), train.classes, MEAN_IMAGE_FOLDER, STD_IMAGE_FOLDER)
        everything = samples(train)
        rows, others = stratified_split(train.labels, 1 - self.test_fraction, generator(CONTENT, 0))
        return Contents(
            everything.select(rows),
            everything.select(others),
            train.classes,
            MEAN_IMAGE_FOLDER,
            STD_IMAGE_FOLDER,
        )


def list_parts(root: str | Path) -> tuple[Listing, Listing | None]:
    """The training and the test images of a root, with the same labels."""
    train_root, test_root = find_parts(root)
    train = find_images(train_root)
    if test_root is None:
        return train, None
    return train, find_images(test_root).with_classes(train.classes, test_root)


# CIFAR-10 and CIFAR-100 (Krizhevsky 2009): 50,000 + 10,000 images of 32×32.

IMAGE_CIFAR = (3, 32, 32)


class Cifar(SmallImages):
    """What the two sets have in common.

    Args:
        root: has the published Python batches, or train and test as class folders or .tar files of them.
        download: fetch the published files into `root` if they are not there.
        **image_data: see `SmallImages`.
    """

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
            from torchvision import datasets  # a second to import, which only downloads need

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
            raise InputError(f"expected train and test with {self.size} classes", got=got, where=self.root)
        return Contents(_in_memory(train), _in_memory(test), train.classes, *self.mean_std)

    def _from_batches(self, folder: Path) -> Contents:
        paths = [folder / name for name in (*self.train_files, self.test_file, self.meta[0])]
        for path in paths:
            if not path.is_file():
                raise InputError("expected the file", got="nothing there", where=path)
        train = read_batches(paths[: len(self.train_files)], IMAGE_CIFAR, self.labels)
        test = read_batches([folder / self.test_file], IMAGE_CIFAR, self.labels)
        names = tuple(read_pickle(folder / self.meta[0])[self.meta[1]])
        return Contents(TensorSamples(*train), TensorSamples(*test), names, *self.mean_std)


def _in_memory(part: Listing) -> FileSamples:
    return FileSamples(part.files, part.labels, IMAGE_CIFAR, plain=Fit(*IMAGE_CIFAR[1:]), keep=True)


class Cifar10(Cifar):
    """Ten classes.

    >>> data = Cifar10(root="my_data", cutout=16, batch_size=96)  # read when it is first asked for an image
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
    """A hundred classes.

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


# ImageNet (Russakovsky et al. 2015, arXiv:1409.0575), or any other photographs in class folders.


class ImageNet(ImageData):
    """Images that stay on disk.

    Training takes random crops of random size, mirrored or not, with changed colors or RandAugment;
    evaluation the center. All are timm's transforms.

    Args:
        root: has train and val (or test), as class folders or as .tar files of them.
        image_size: height and width of the crops.
        color_jitter: by which share brightness, contrast and saturation change at most; 0: not at all.
        rand_augment: magnitude of RandAugment's operations, in place of changed colors; 0: none.
        num_workers: processes that read images.
        batch_size: images of a step of one process.
        augment: whether training takes random crops, or the center, too.
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
        return Contents(
            self._samples(train), self._samples(test), train.classes, MEAN_IMAGE_FOLDER, STD_IMAGE_FOLDER
        )

    def _samples(self, part: Listing) -> FileSamples:
        from timm.data import create_transform  # a second to import, which only files need

        size = self.image_size
        plain = create_transform(
            size, use_prefetcher=True
        )  # bytes, not normalized: that is done for whole batches
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


# Tiny ImageNet (Stanford CS231n): 100,000 + 10,000 images of 64×64 in 200 classes.

URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
FOLDER = "tiny-imagenet-200"
MEAN_TINY_IMAGENET, STD_TINY_IMAGENET = (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)
IMAGE_TINY_IMAGENET = (3, 64, 64)


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
        return Contents(
            self._samples(train), self._samples(test), train.classes, MEAN_TINY_IMAGENET, STD_TINY_IMAGENET
        )

    def _samples(self, part: Listing) -> FileSamples:
        return FileSamples(
            part.files,
            part.labels,
            IMAGE_TINY_IMAGENET,
            plain=Fit(*IMAGE_TINY_IMAGENET[1:]),
            workers=self.workers,
            keep=self.keep,
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
