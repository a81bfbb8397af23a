"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009): 50,000 + 10,000 images of 32×32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nas_lightning.checks import checked
from nas_lightning.data.base import Contents
from nas_lightning.data.formats.files import FileSamples, Fit
from nas_lightning.data.formats.listing import Listing
from nas_lightning.data.formats.pickles import read_batches, read_pickle
from nas_lightning.data.samples import TensorSamples
from nas_lightning.data.sets.base import SmallImages
from nas_lightning.data.sets.download import fetch, missing_data_error
from nas_lightning.data.sets.image_folder import list_parts
from nas_lightning.errors import InputError

IMAGE = (3, 32, 32)


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
        train = read_batches(paths[: len(self.train_files)], IMAGE, self.labels)
        test = read_batches([folder / self.test_file], IMAGE, self.labels)
        names = tuple(read_pickle(folder / self.meta[0])[self.meta[1]])
        return Contents(TensorSamples(*train), TensorSamples(*test), names, *self.mean_std)


def _in_memory(part: Listing) -> FileSamples:
    return FileSamples(part.files, part.labels, IMAGE, plain=Fit(*IMAGE[1:]), keep=True)


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
