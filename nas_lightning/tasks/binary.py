"""Yes or no, by one logit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC

from nas_lightning.checks import PositiveFloat, checked
from nas_lightning.data.labels import check_range, class_labels
from nas_lightning.errors import InputError
from nas_lightning.tasks.base import Task
from nas_lightning.tasks.links import SIGMOID
from nas_lightning.tasks.of_labels import OfLabels


class Binary(Task):
    """Binary cross entropy, accuracy and the area under the ROC curve.

    Args:
        positive_weight: what an image of the class 1 counts in the loss of training, one of class 0 being 1.
        score: what searches and trainings maximise: `accuracy` or `auroc`.

    >>> task = Binary()
    >>> task.predictions(torch.zeros(2, 1)), task.targets(torch.tensor([[True], [False]]))
    (tensor([[0.5000],
            [0.5000]]), tensor([[1.],
            [0.]]))
    """

    name: ClassVar[str] = "binary"
    link = SIGMOID

    @checked
    def __init__(self, *, positive_weight: PositiveFloat = 1.0, score: str = "accuracy") -> None:
        self.positive_weight, self.score = positive_weight, score

    def targets(self, y: Tensor) -> Tensor:
        labels = class_labels(y) if y.dim() < 2 or y.shape[1] == 1 else y
        if labels.dim() != 1:
            raise InputError("expected labels 0 and 1, (b,) or (b, 1)", got=tuple(y.shape), where="a batch")
        check_range(labels, 2, "")
        return labels[:, None].float()

    def count(self, y: Tensor) -> int:
        return 1

    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        y = y * (1 - smoothing) + smoothing / 2
        weight = torch.tensor(self.positive_weight, dtype=z.dtype, device=z.device)
        return F.binary_cross_entropy_with_logits(z, y.to(z), pos_weight=weight)

    def evaluation_loss(self, z: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(z, y.to(z))

    def metrics(self, outputs: int) -> Mapping[str, Metric]:
        if outputs != 1:
            raise InputError("expected one output", got=outputs, where="task=binary")
        return {"accuracy": OfLabels(BinaryAccuracy()), "auroc": OfLabels(BinaryAUROC(thresholds=200))}
