"""Loss and metrics of an epoch, exact for any number of processes, batch sizes, and restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from nas_lightning.tasks import MULTI_CLASS, MultiClass, Task

T = TypeVar("T")
PADDING = -1
"""Label of images that only pad a batch and are not counted."""


class EpochMeans(nn.Module):
    """Running loss and metrics of an epoch.

    They are part of the module's state, so that an interrupted epoch continues with them; with several
    processes those of the first are saved. Call `reset` at the start of an epoch, not at its end, since a
    checkpoint may be written in between.

    Args:
        num_classes: number of classes.
        top5: whether to compute the top-5 accuracy.
        task: the task, whose metrics replace accuracies.

    >>> means, y = EpochMeans(num_classes=3), torch.tensor([0, 2])
    >>> means.update(torch.tensor(4.0), torch.eye(3)[[0, 1]], y, len(y))
    >>> means.loss.compute(), means.accuracy.compute()
    (tensor(2.), tensor(0.5000))
    """

    def __init__(self, num_classes: int, top5: bool = False, task: Task = MULTI_CLASS) -> None:
        super().__init__()
        self.loss, self.task, self.named = MeanLoss(), task, {"accuracy": "accuracy"}
        if isinstance(task, MultiClass):
            self.accuracy = _accuracy(num_classes, 1)
            if top5:
                self.top5, self.named = _accuracy(num_classes, 5), {**self.named, "top5": "accuracy_top5"}
        else:
            measures = task.metrics(num_classes)
            self.named = {f"of_task_{name}": name for name in measures}
            for name, metric in measures.items():
                self.add_module(f"of_task_{name}", metric)
        for metric in [self.loss, *self._metrics()]:
            metric.persistent(True)

    def _metrics(self) -> list[Any]:
        return [getattr(self, own) for own in self.named]

    def reset(self) -> None:
        """Reset to the start of an epoch."""
        for metric in [self.loss, *self._metrics()]:
            metric.reset()

    def update(self, total: Tensor, logits: Tensor, y: Tensor, images: int | Tensor) -> None:
        """Add a batch; `total` is the sum of the losses of `images` images."""
        self.loss.update(total, images)
        said = logits if isinstance(self.task, MultiClass) else self.task.predictions(logits)
        for metric in self._metrics():
            metric.update(said, y)

    def log(self, module: pl.LightningModule, stage: str) -> None:
        """Log the epoch over all processes."""
        if self.loss.images:
            values = {f"{stage}_loss": self.loss.compute()}
            values |= {
                f"{stage}_{name}": getattr(self, own).compute()
                for own, name in self.named.items()
                if own != "top5"
            }
            module.log_dict(
                values, prog_bar=True, sync_dist=True
            )  # equal in all processes; without it Lightning warns
            if "top5" in self.named:
                values[f"{stage}_accuracy_top5"] = self.top5.compute()
                module.log(f"{stage}_accuracy_top5", values[f"{stage}_accuracy_top5"], sync_dist=True)
            module.log_dict(name_as_others_do(values), logger=False, sync_dist=True)


def name_as_others_do(metrics: Mapping[str, T]) -> dict[str, T]:
    """Return validation metrics under the names `val_…`, which callbacks often monitor.

    >>> name_as_others_do({"valid_loss": 0.5, "train_loss": 0.4})
    {'val_loss': 0.5}
    """
    return {f"val_{n.removeprefix('valid_')}": v for n, v in metrics.items() if n.startswith("valid_")}


def evaluation_total(task: Task, logits: Tensor, y: Tensor) -> tuple[Tensor, int | Tensor]:
    """Return the sum of the losses of the images that count, and their number."""
    if not isinstance(task, MultiClass):
        return task.evaluation_loss(logits, y) * len(y), len(y)
    total = F.cross_entropy(logits, y, reduction="sum", ignore_index=PADDING)
    return total, (y != PADDING).sum()


class MeanLoss(Metric):
    """Σ loss / Σ images. torchmetrics' mean hides a diverged loss or ignores its weights."""

    total: Tensor
    images: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("images", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, total: Tensor, images: int | Tensor) -> None:
        self.total += total
        self.images += images

    def compute(self) -> Tensor:
        return self.total / self.images


def _accuracy(num_classes: int, top_k: int) -> MulticlassAccuracy:
    # the validation of arguments would synchronize with the device
    return MulticlassAccuracy(
        num_classes, top_k=top_k, average="micro", ignore_index=PADDING, validate_args=False
    )
