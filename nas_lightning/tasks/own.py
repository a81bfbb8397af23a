"""A task of one's own: any loss, any metrics of torchmetrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from torch import Tensor
from torchmetrics import Metric, MetricCollection

from nas_lightning.checks import checked
from nas_lightning.errors import InputError, near_match
from nas_lightning.tasks.base import Task, as_rows


class OwnTask(Task):
    """A loss of outputs (b, outputs) and targets, and metrics of the same.

    Args:
        loss: (outputs, targets) → the mean over the batch.
        metrics: by name, or a collection; each is copied wherever one is needed.
        score: which of them searches and trainings maximise.
        targets: what loaders give → what loss and metrics take; None: numbers (b, outputs) as floats.

    >>> import torch
    >>> from torchmetrics import PearsonCorrCoef
    >>> task = OwnTask(loss=torch.nn.HuberLoss(), metrics={"pearson": PearsonCorrCoef()}, score="pearson")
    >>> task.targets(torch.tensor([1, 2])).shape
    torch.Size([2, 1])
    """

    name: ClassVar[str] = "own"

    @checked
    def __init__(
        self,
        *,
        loss: Callable[[Tensor, Tensor], Tensor],
        metrics: Any,
        score: str,
        targets: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.measured = loss
        self.collection: dict[str, Metric] = dict(
            metrics.items() if isinstance(metrics, (Mapping, MetricCollection)) else {}
        )
        self.score, self.convert = score, targets or as_rows
        if score not in self.collection:
            expected = f"expected one of the metrics ({near_match(score, self.collection)})"
            raise InputError(expected, got=score, where="task.score")
        if self.collection[score].higher_is_better is False:
            got = type(self.collection[score]).__name__
            raise InputError("expected a metric of which more is better", got=got, where="task.score")

    def targets(self, y: Tensor) -> Tensor:
        return self.convert(y)

    def count(self, y: Tensor) -> int:
        return y.shape[1] if y.dim() > 1 else 1

    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        if smoothing:
            raise InputError(
                "expected no label_smoothing with a loss of one's own", got=smoothing, where="task"
            )
        return self.measured(z, y)

    def metrics(self, outputs: int) -> Mapping[str, Metric]:
        return {name: metric.clone() for name, metric in self.collection.items()}
