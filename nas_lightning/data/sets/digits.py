"""Handwritten digits (Alpaydin & Kaynak 1998), as scikit-learn carries them: 1,797 grey images of 8×8."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nas_lightning.checks import NonNegativeInt, PositiveInt, checked
from nas_lightning.data.augment import statistics
from nas_lightning.data.base import Contents
from nas_lightning.data.order import CONTENT, stratified_split
from nas_lightning.data.samples import TensorSamples
from nas_lightning.data.sets.base import SmallImages
from nas_lightning.randomness import generator


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
