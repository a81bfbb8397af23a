"""Class labels in various forms, and the labels and class names that data sets know.

>>> class_labels(torch.tensor([[1.0], [0.0]])), class_labels(torch.tensor([[0, 1], [1, 0]]))
(tensor([1, 0]), tensor([1, 0]))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from nas_lightning.data.batches import TARGETS
from nas_lightning.errors import InputError

WHERE = "a batch"  # of messages


class Targets(Protocol):
    """The interface of a task that data need; see `nas_lightning.tasks.Task`."""

    least: int
    """The smallest number of outputs."""
    of_classes: bool
    """Whether the data's number of classes is the number of outputs."""

    def targets(self, y: Tensor) -> Tensor:
        """Convert targets for the loss; raise for invalid ones."""

    def count(self, y: Tensor) -> int:
        """Return the number of outputs that the targets need."""

    def check(self, y: Tensor, outputs: int, source: str) -> None:
        """Raise for targets that do not fit the number of outputs."""


class Classes:
    """Classification, the default."""

    least, of_classes = 2, True

    def targets(self, y: Tensor) -> Tensor:
        """Return the labels as whole numbers."""
        return class_labels(y)

    def count(self, y: Tensor) -> int:
        """Return one more than the largest label."""
        return int(y.max()) + 1

    def check(self, y: Tensor, outputs: int, source: str) -> None:
        """Raise for labels out of range."""
        check_range(y, outputs, source)


def class_labels(y: Tensor) -> Tensor:
    """Convert labels (b,) or (b, 1) of any type, or one-hot rows (b, classes), to whole numbers (b,)."""
    whole = y if y.dtype == torch.long else _whole_numbers(y)
    if whole.dim() == 2 and whole.shape[1] == 1:
        return whole[:, 0]
    if whole.dim() == 2 and bool(((whole == 0) | (whole == 1)).all() & (whole.sum(dim=1) == 1).all()):
        return whole.argmax(dim=1)
    if whole.dim() != 1:
        raise InputError("Each image must have a class label, (b,)", got=_describe(y), where=WHERE)
    return whole


def check_range(y: Tensor, classes: int, source: str) -> None:
    """Raise for labels out of range; `source` tells the origin of the number of classes in the message."""
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= classes:
        fix = "; labels count from 0" if low == 1 and high == classes else ""
        raise InputError(
            f"Labels must be from 0 to {classes - 1} for {classes} classes{source}{fix}",
            got=f"labels from {low} to {high}",
            where=WHERE,
        )


def labels_of(dataset: Any) -> Tensor | None:
    """Return a data set's labels if they are available without reading images, else None."""
    if isinstance(dataset, Subset):
        whole = labels_of(dataset.dataset)
        return None if whole is None else whole[torch.as_tensor(list(dataset.indices))]
    if isinstance(dataset, TensorDataset):
        return _as_labels(dataset.tensors[1]) if len(dataset.tensors) > 1 else None
    columns = getattr(dataset, "column_names", None)  # of a Hugging Face data set
    if isinstance(columns, list):
        named = [name for name in TARGETS if name in columns]
        return _as_labels(dataset[named[0]]) if named else None
    for name in ("targets", "labels"):
        found = _as_labels(getattr(dataset, name, None))
        if found is not None and len(found) == len(dataset):
            return found
    return None


def declared_classes(owners: Sequence[Any]) -> int | None:
    """Return the number of classes that these objects declare, or that their labels have; None if unknown."""
    for owner in owners:
        count = getattr(owner, "num_classes", None)
        if isinstance(count, int) and count > 0:
            return count
    names = class_names_of(*owners)
    if names is not None:
        return len(names)
    at_hand = [labels for labels in map(labels_of, owners) if labels is not None]
    if at_hand and not bool(at_hand[0].any()):
        raise InputError(
            "There must be images of at least 2 classes, got the label 0 alone", where="the data"
        )
    return int(at_hand[0].max()) + 1 if at_hand else None


def class_names_of(*owners: Any) -> tuple[str, ...] | None:
    """Return the first class names that these objects have; None if there are none."""
    for owner in owners:
        names = getattr(owner, "classes", None) or _names_of_feature(getattr(owner, "features", None))
        if isinstance(names, (list, tuple)) and len(names) > 1:
            return tuple(str(name) for name in names)
    return None


def _names_of_feature(features: Any) -> Any:
    named = [features[name] for name in TARGETS if name in features] if isinstance(features, Mapping) else []
    return getattr(named[0], "names", None) if named else None


def _as_labels(values: Any) -> Tensor | None:
    if values is None or callable(values):
        return None
    try:
        return class_labels(torch.as_tensor(values if isinstance(values, Tensor) else list(values)))
    except (TypeError, ValueError, RuntimeError):  # not class labels
        return None


def _whole_numbers(y: Tensor) -> Tensor:
    if y.is_complex() or (y.is_floating_point() and not bool((y == y.round()).all())):
        raise InputError("Class labels must be integers", got=_describe(y), where=WHERE)
    return y.long()


def _describe(y: Tensor) -> str:
    first = ", ".join(f"{value:g}" for value in y.flatten()[:3].tolist()) if not y.is_complex() else "…"
    return f"{y.dtype} of shape {tuple(y.shape)}: {first}, …"
