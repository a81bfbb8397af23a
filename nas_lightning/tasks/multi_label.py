"""Any number of several labels, each with a logit of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.classification import MultilabelAccuracy, MultilabelF1Score

from nas_lightning.checks import Between0And1, checked
from nas_lightning.errors import InputError
from nas_lightning.tasks.base import Task, as_rows
from nas_lightning.tasks.links import SIGMOID
from nas_lightning.tasks.of_labels import OfLabels


class MultiLabel(Task):
    """Binary cross entropy of each label, the mean; F₁ over all labels together, and accuracy.

    Args:
        threshold: the probability from which a label counts as said.
        score: what searches and trainings maximise: `f1` or `accuracy`.

    >>> import torch
    >>> MultiLabel().count(torch.tensor([[1.0, 0.0, 1.0]]))
    3
    """

    name: ClassVar[str] = "multi_label"
    link = SIGMOID

    @checked
    def __init__(self, *, threshold: Between0And1 = 0.5, score: str = "f1") -> None:
        self.threshold, self.score = threshold, score

    def targets(self, y: Tensor) -> Tensor:
        rows = as_rows(y)
        if not bool(((rows == 0) | (rows == 1)).all()):
            got = f"values from {float(rows.min()):g} to {float(rows.max()):g}"
            raise InputError("expected 0 or 1 for each label", got=got, where="a batch")
        return rows

    def count(self, y: Tensor) -> int:
        return y.shape[1]

    def check(self, y: Tensor, outputs: int, source: str) -> None:
        self.same_shape(y, outputs, source)

    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        return F.binary_cross_entropy_with_logits(z, (y * (1 - smoothing) + smoothing / 2).to(z))

    def metrics(self, outputs: int) -> Mapping[str, Metric]:
        options: dict[str, Any] = {"threshold": self.threshold, "average": "micro", "validate_args": False}
        return {
            "f1": OfLabels(MultilabelF1Score(outputs, **options)),
            "accuracy": OfLabels(MultilabelAccuracy(outputs, **options)),
        }
