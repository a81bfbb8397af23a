"""Metrics of labels 0 and 1, which losses want as floats."""

from __future__ import annotations

from torch import Tensor
from torchmetrics import Metric


class OfLabels(Metric):
    """A metric that wants whole numbers, given floats.

    Args:
        metric: which.

    >>> import torch
    >>> from torchmetrics.classification import BinaryAccuracy
    >>> metric = OfLabels(BinaryAccuracy())
    >>> metric.update(torch.tensor([[0.9], [0.8]]), torch.tensor([[1.0], [0.0]]))
    >>> metric.compute()
    tensor(0.5000)
    """

    full_state_update = False

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self.metric = metric

    def update(self, predictions: Tensor, y: Tensor) -> None:
        self.metric.update(predictions.detach().float(), y.long())

    def compute(self) -> Tensor:
        value: Tensor = self.metric.compute()
        return value

    def reset(self) -> None:
        super().reset()
        self.metric.reset()

    def persistent(self, mode: bool = False) -> None:
        super().persistent(mode)
        self.metric.persistent(mode)
