"""Pickled dictionaries of arrays, the form in which CIFAR and the downsampled ImageNet are given out."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nas_lightning.errors import InputError

# What arrays are made of; a pickle that asks for anything else is none of these files.
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
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in the file."""
    try:
        with open(path, "rb") as stream:
            return dict(_Unpickler(stream, encoding="latin1").load())
    except Exception as error:  # broken pickles raise whatever their bytes lead to
        raise InputError(f"expected a pickled dictionary of arrays: {error}", where=path) from None


def read_batches(paths: list[Path], image: tuple[int, int, int], labels: str) -> tuple[Tensor, Tensor]:
    """The images (n, c, h, w) as bytes and the labels (n,) of several files, in their order."""
    images, targets = [], []
    for path in paths:
        entry = read_pickle(path)
        if "data" not in entry or labels not in entry:
            raise InputError(
                f"expected the entries data and {labels}", got=", ".join(sorted(entry)), where=path
            )
        data, target = np.asarray(entry["data"]), torch.as_tensor(entry[labels])
        if data.dtype != np.uint8 or data.size != len(target) * int(np.prod(image)):
            raise InputError(
                f"expected bytes for {len(target)} images of {image}",
                got=f"{data.dtype} {data.shape}",
                where=path,
            )
        images.append(torch.from_numpy(data.copy()).view(-1, *image))
        targets.append(target)
    return torch.cat(images), torch.cat(targets).long()
