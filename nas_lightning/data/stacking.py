"""Samples that become a batch: pictures as numbers, labels by their names, and all of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nas_lightning.errors import InputError, near_match

_WHERE = "the samples of a batch"
_COLOURED = ("P", "PA", "CMYK", "YCbCr", "LAB", "HSV")
"""Modes of PIL whose numbers are no red, green and blue."""


def as_tensor(value: Any, what: str) -> Tensor:
    """A tensor of what is one, or an array, a picture, or numbers.

    >>> as_tensor([1, 2], "targets")
    tensor([1, 2])
    """
    if isinstance(value, Tensor):
        return value
    if is_picture(value):
        return _pixels(value.convert("RGB") if what == "inputs" and value.mode in _COLOURED else value)
    if isinstance(value, (list, tuple)) and value and all(map(_has_shape, value)):
        return stack(value, what)
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        where = f"the {what} of a batch"
        raise InputError("expected a tensor or an array", got=type(value).__name__, where=where) from None


def stack(values: Sequence[Any], what: str) -> Tensor:
    """One tensor of several of one shape.

    >>> stack([torch.zeros(2), [1.0, 2.0]], "inputs").shape
    torch.Size([2, 2])
    """
    tensors = [as_tensor(value, what) for value in values]
    shapes = sorted({tuple(tensor.shape) for tensor in tensors})
    if len(shapes) > 1:
        channels = {shape[0] for shape in shapes if len(shape) == 3}
        fix = "give all as many channels, image.convert('RGB')" if len(channels) > 1 else "resize them"
        got = " and ".join(map(str, shapes[:2]))
        raise InputError(f"expected {what} of one shape: {fix}", got=got, where=_WHERE)
    return torch.stack(tensors)


def as_numbers(labels: Any, names: Sequence[str] | None) -> Any:
    """Labels that are names of classes by their places; others as they are.

    >>> as_numbers(["owl", "cat"], ("cat", "owl")), as_numbers(3, None)
    ([1, 0], 3)
    """
    if isinstance(labels, (list, tuple)):
        return [as_numbers(label, names) for label in labels] if _is_name(labels[:1]) else labels
    if not isinstance(labels, str):
        return labels
    if names is None:
        expected = "expected labels as numbers, or classes=(…), whose places they are"
        raise InputError(expected, got=labels, where=_WHERE)
    if labels not in names:
        raise InputError(
            f"expected a label of classes ({near_match(labels, names)})", got=labels, where=_WHERE
        )
    return list(names).index(labels)


def is_picture(value: Any) -> bool:
    """Whether it is an image of PIL."""
    return hasattr(value, "getbands")


def _is_name(first: Sequence[Any]) -> bool:
    return bool(first) and isinstance(first[0], str)


def _has_shape(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray)) or is_picture(value)


def _pixels(image: Any) -> Tensor:
    """A PIL image as bytes, or whatever its pixels are: (c, h, w)."""
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)
