"""One class of several: what the data sets of architecture search ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from nas_lightning.checks import PositiveFloat, Share, checked
from nas_lightning.data.labels import check_range, class_labels
from nas_lightning.errors import InputError
from nas_lightning.tasks.base import Task
from nas_lightning.tasks.links import SOFTMAX


class MultiClass(Task):
    """Cross entropy and accuracy.

    Args:
        class_weights: what each class counts in the loss of training; None: as much as any other.
        label_smoothing: share of the target that is spread evenly over the classes, in training.
        score: what searches and trainings maximise.

    >>> task = MultiClass(class_weights=(1.0, 9.0))
    >>> float(task.loss(torch.zeros(2, 2), torch.tensor([0, 1])) / torch.tensor(2.0).log())
    1.0
    """

    name: ClassVar[str] = "multi_class"
    link = SOFTMAX
    least = 2
    of_classes = True

    @checked
    def __init__(
        self,
        *,
        class_weights: Sequence[PositiveFloat] | None = None,
        label_smoothing: Share = 0.0,
        score: str = "accuracy",
    ) -> None:
        self.class_weights = None if class_weights is None else tuple(class_weights)
        self.label_smoothing, self.score = label_smoothing, score

    def targets(self, y: Tensor) -> Tensor:
        return class_labels(y)

    def count(self, y: Tensor) -> int:
        return int(y.max()) + 1

    def check(self, y: Tensor, outputs: int, source: str) -> None:
        check_range(y, outputs, source)

    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        smoothing = smoothing or self.label_smoothing
        return F.cross_entropy(z, y, weight=weights_of(self.class_weights, z), label_smoothing=smoothing)

    def evaluation_loss(self, z: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(z, y)

    def metrics(self, outputs: int) -> Mapping[str, Metric]:
        return {"accuracy": MulticlassAccuracy(outputs, average="micro", validate_args=False)}


MULTI_CLASS = MultiClass()


def task_of(module: Any) -> Task:
    """The task of a network, a supernet or data; classes where nobody has said another."""
    task = getattr(module, "task", None)
    return task if isinstance(task, Task) else MULTI_CLASS


def is_usual(task: Task) -> bool:
    """Whether nothing is said but that there are classes."""
    return type(task) is MultiClass and vars(task) == vars(MULTI_CLASS)


def check_classes(owner: Any, what: str) -> None:
    """Raise where something that needs classes meets another task."""
    task = task_of(owner)
    if not isinstance(task, MultiClass):
        raise InputError(f"expected task=multi_class, which {what}", got=task.name, where="task")


def weights_of(weights: Sequence[float] | None, z: Tensor) -> Tensor | None:
    """The weights of classes beside logits (b, classes, …)."""
    if weights is None:
        return None
    if len(weights) != z.shape[1]:
        raise InputError(f"expected {z.shape[1]} class_weights", got=len(weights), where="task.class_weights")
    return torch.tensor(weights, dtype=z.dtype, device=z.device)
