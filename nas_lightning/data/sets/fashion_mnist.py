"""Fashion-MNIST (Xiao et al. 2017, arXiv:1708.07747): 60,000 + 10,000 grey images of 28×28."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nas_lightning.checks import checked
from nas_lightning.data.base import Contents
from nas_lightning.data.samples import TensorSamples
from nas_lightning.data.sets.base import SmallImages
from nas_lightning.data.sets.download import fetch, missing_data_error
from nas_lightning.errors import InputError

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
