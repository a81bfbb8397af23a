"""Batches in any form as (inputs, targets), and samples stacked into batches."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nas_lightning.errors import InputError, near_match

# Samples to tensors

SAMPLES, BATCH = "the samples of a batch", "a batch"  # of messages
_COLOR_MODES = ("P", "PA", "CMYK", "YCbCr", "LAB", "HSV")
"""Modes of PIL that are converted to RGB."""


def as_tensor(value: Any, what: str) -> Tensor:
    """Convert a tensor, an array, a PIL image, numbers, or a list of these to a tensor.

    >>> as_tensor([1, 2], "targets")
    tensor([1, 2])
    """
    if isinstance(value, Tensor):
        return value
    if is_picture(value):
        return _pixels(value.convert("RGB") if what == "inputs" and value.mode in _COLOR_MODES else value)
    if isinstance(value, (list, tuple)) and value and all(map(_has_shape, value)):
        return stack(value, what)
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        where = f"the {what} of a batch"
        raise InputError(
            "The value must be a tensor or an array", got=type(value).__name__, where=where
        ) from None


def stack(values: Sequence[Any], what: str) -> Tensor:
    """Stack values of the same shape.

    >>> stack([torch.zeros(2), [1.0, 2.0]], "inputs").shape
    torch.Size([2, 2])
    """
    tensors = [as_tensor(value, what) for value in values]
    shapes = sorted({tuple(tensor.shape) for tensor in tensors})
    if len(shapes) > 1:
        channels = {shape[0] for shape in shapes if len(shape) == 3}
        fix = "convert all to the same channels, image.convert('RGB')" if len(channels) > 1 else "resize them"
        got = " and ".join(map(str, shapes[:2]))
        raise InputError(f"All {what} must have the same shape: {fix}", got=got, where=SAMPLES)
    return torch.stack(tensors)


def as_numbers(labels: Any, names: Sequence[str] | None) -> Any:
    """Convert labels that are class names to their indices; return others unchanged.

    >>> as_numbers(["owl", "cat"], ("cat", "owl")), as_numbers(3, None)
    ([1, 0], 3)
    """
    if isinstance(labels, (list, tuple)):
        return [as_numbers(label, names) for label in labels] if _is_name(labels[:1]) else labels
    if not isinstance(labels, str):
        return labels
    if names is None:
        expected = "Labels must be numbers; for names pass classes=(…)"
        raise InputError(expected, got=labels, where=SAMPLES)
    if labels not in names:
        raise InputError(
            f"Labels must be in `classes` ({near_match(labels, names)})", got=labels, where=SAMPLES
        )
    return list(names).index(labels)


def is_picture(value: Any) -> bool:
    """Return whether it is a PIL image."""
    return hasattr(value, "getbands")


def _is_name(first: Sequence[Any]) -> bool:
    return bool(first) and isinstance(first[0], str)


def _has_shape(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray)) or is_picture(value)


def _pixels(image: Any) -> Tensor:
    """Return a PIL image as a tensor (c, h, w), of bytes for most modes."""
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)


# Batches to (inputs, targets)

Batch = tuple[Tensor, Tensor]
INPUTS = ("image", "images", "img", "imgs", "pixel_values", "x", "input", "inputs", "data")
TARGETS = ("label", "labels", "target", "targets", "y", "class", "mask", "masks")


@dataclass(frozen=True)
class Reader:
    """Converts a loader's batches, or samples, to inputs and targets.

    Args:
        inputs: the name or index of the inputs; None: one of `INPUTS`, or the first.
        targets: the name or index of the targets; None: one of `TARGETS`, or the second.
        convert: batch → (inputs, targets), instead of names or indices.
        names: of the classes, for targets that are class names.

    >>> read = Reader(inputs="scan", targets="grade")
    >>> read.pair({"scan": [0.5], "grade": 2, "patient": "A"})
    ([0.5], 2)
    """

    inputs: str | int | None = None
    targets: str | int | None = None
    convert: Callable[[Any], tuple[Any, Any]] | None = None
    names: Sequence[str] | None = None

    def __call__(self, batch: Any) -> Batch:
        """Return inputs (b, c, h, w) as floats, and targets as tensors."""
        return read_batch(batch, self)

    def pair(self, batch: Any) -> tuple[Any, Any]:
        """Return the unchanged inputs, and the targets with class names replaced by indices."""
        x, y = self._find(batch)
        return x, as_numbers(y, self.names)

    def _find(self, batch: Any) -> tuple[Any, Any]:
        if self.convert is not None:
            return _check_pair(self.convert(batch))
        named = entries_of(batch)
        if named is not None and (isinstance(batch, Mapping) or self._knows(named)):
            return _entry(named, self.inputs, INPUTS), _entry(named, self.targets, TARGETS)
        if not isinstance(batch, Sequence) or isinstance(batch, (str, bytes)) or len(batch) < 2:
            got = "inputs alone" if isinstance(batch, Tensor) else type(batch).__name__
            raise InputError("Batches must be (inputs, targets) or a dict of them", got=got, where=BATCH)
        first = self.inputs if isinstance(self.inputs, int) else 0
        return batch[first], batch[self.targets if isinstance(self.targets, int) else 1]

    def _knows(self, named: Mapping[str, Any]) -> bool:
        """Return whether a named tuple has fields for inputs and targets."""
        return all(
            any(name in named for name in names)
            for names in ((self.inputs, *INPUTS), (self.targets, *TARGETS))
        )


def read_batch(batch: Any, reader: Reader | None = None) -> Batch:
    """Return inputs as 32-bit floats, bytes scaled to 0 to 1, and targets as tensors.

    >>> pixels = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    >>> x, y = read_batch({"pixel_values": pixels, "labels": torch.ones(2, 1)})
    >>> x.dtype, tuple(x.shape), tuple(y.shape)
    (torch.float32, (2, 3, 4, 4), (2, 1))
    """
    reader = reader or Reader()
    if reader.convert is None and _are_samples(batch):
        x, y = collate(batch, reader)
        return as_floats(x), y
    x, y = reader.pair(batch)
    return as_floats(as_tensor(x, "inputs")), as_tensor(y, "targets")


def collate(samples: Sequence[Any], reader: Reader) -> Batch:
    """Stack samples to a batch (inputs, targets), PIL images as bytes."""
    pairs = [reader.pair(sample) for sample in samples]
    return stack([x for x, _ in pairs], "inputs"), stack([y for _, y in pairs], "targets")


def _are_samples(batch: Any) -> bool:
    """Return whether a batch is a list of samples that are not stacked."""
    return isinstance(batch, list) and bool(batch) and all(isinstance(s, (Mapping, tuple)) for s in batch)


def as_floats(x: Tensor) -> Tensor:
    """Convert images to 32-bit floats; bytes are scaled to 0 to 1, other integers are not.

    >>> as_floats(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([0., 1.])
    """
    if x.dtype == torch.uint8:
        return x.float() / 255
    if x.is_complex():
        raise InputError("Inputs must be real", got=x.dtype, where=BATCH)
    return x.float()


def check_images(x: Tensor, y: Tensor, image: Sequence[int] | None = None) -> None:
    """Raise unless these are labeled images (b, c, h, w), with the channels of `image`."""
    shape = tuple(x.shape)
    if x.dim() != 4:
        fix = {
            2: "",
            3: "; unsqueeze(1) makes gray images of (b, h, w), unsqueeze(2) of series (b, c, t)"
            "; single samples come from an IterableDataset",
        }
        raise InputError(f"Images must have shape (b, c, h, w){fix.get(x.dim(), '')}", got=shape, where=BATCH)
    if image is not None and not math.isfinite(float(x.sum())):
        raise InputError("Images must be finite", got="NaN or infinity", where=BATCH)
    if y.dim() and len(y) != len(x):
        raise InputError(f"Each of {len(x)} images must have a target", got=tuple(y.shape), where=BATCH)
    if image is not None and shape[1] != image[0]:
        last = "; these seem to be channels-last" if shape[-1] == image[0] else ""
        raise InputError(f"Images must have {image[0]} channels (b, c, h, w){last}", got=shape, where=BATCH)


def check_layout(x: Tensor, image: Sequence[int] | None = None) -> None:
    """Raise for images 1, 3, or 4 pixels wide, which are probably channels-last, unless `image` is given."""
    if image is None and x.shape[3] in (1, 3, 4) and min(x.shape[1:3]) > 4:
        expected = "Images must be (b, c, h, w); these seem to be channels-last, else pass image=(c, h, w)"
        raise InputError(expected, got=tuple(x.shape), where=BATCH)


def is_read(batch: Any) -> bool:
    """Return whether a batch already has the form that `read_batch` returns."""
    return (
        type(batch) in (tuple, list)
        and len(batch) == 2
        and isinstance(batch[0], Tensor)
        and isinstance(batch[1], Tensor)
        and batch[0].is_floating_point()
        and (batch[1].dtype == torch.long and batch[1].dim() == 1)
    )


def entries_of(batch: Any) -> Mapping[str, Any] | None:
    """Return the entries of a mapping, a named tuple, or a data class; None for other types."""
    if isinstance(batch, Mapping):
        return batch
    if isinstance(batch, tuple) and hasattr(batch, "_asdict"):
        fields: Mapping[str, Any] = batch._asdict()
        return fields
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        return vars(batch)
    return None


def _entry(entries: Mapping[str, Any], name: str | int | None, usual: Sequence[str]) -> Any:
    names = usual if name is None else [name]
    for candidate in names:
        if candidate in entries:
            return entries[candidate]  # type: ignore[index]  # a number may be a dict's key
    which = "inputs" if usual is INPUTS else "targets"
    expected = f"Batches must have one of {', '.join(map(str, names))}; for another name pass {which}=NAME"
    raise InputError(expected, got=", ".join(map(str, entries)), where=BATCH)


def _check_pair(pair: Any) -> tuple[Any, Any]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InputError("The reader must return (inputs, targets)", got=type(pair).__name__, where=BATCH)
    return pair[0], pair[1]
