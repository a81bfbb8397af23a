"""What a data set has, once it is found: its images, its classes and the statistics of its channels."""

from __future__ import annotations

from dataclasses import dataclass

from nas_lightning.data.samples import Samples
from nas_lightning.errors import InputError


@dataclass(frozen=True)
class Contents:
    """A data set as its `load` returns it.

    Args:
        train: the training images.
        test: the test images.
        classes: the names of the classes, in the order of their labels.
        mean: of each channel, as a fraction of the largest value.
        std: of each channel, as a fraction of the largest value.
    """

    train: Samples
    test: Samples
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def check_contents(contents: Contents, name: str) -> None:
    """Raise for what no data set has."""
    classes = len(contents.classes)
    if classes < 2:
        raise InputError("expected images of at least 2 classes", got=classes, where=name)
    for part, samples in (("training", contents.train), ("test", contents.test)):
        if not len(samples):
            raise InputError(f"expected {part} images", got="none", where=name)
        low, high = int(samples.labels.min()), int(samples.labels.max())
        if low < 0 or high >= classes:
            raise InputError(
                f"expected {part} labels from 0 to {classes - 1} for {classes} classes",
                got=f"labels from {low} to {high}",
                where=name,
            )
