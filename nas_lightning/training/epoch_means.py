"""Loss and metrics of an epoch, exact for any processes, any sizes of batches, and across a restart."""

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
"""The label of images that only fill up a batch: they count in no metric."""


class EpochMeans(nn.Module):
    """What an epoch has come to so far.

    It is part of the module's state, so that an epoch that was interrupted goes on with what it had; with
    several processes the first one's part is saved. Call `reset` where an epoch starts, not where it ends: a
    checkpoint may be taken in between.

    Args:
        num_classes: what the network tells apart.
        top5: whether the accuracy among the five likeliest classes counts, too.
        task: what else is measured, where it is not classes.

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
        """Forget the last epoch."""
        for metric in [self.loss, *self._metrics()]:
            metric.reset()

    def update(self, total: Tensor, logits: Tensor, y: Tensor, images: int | Tensor) -> None:
        """`total` is the sum of the losses of `images` images."""
        self.loss.update(total, images)
        said = logits if isinstance(self.task, MultiClass) else self.task.predictions(logits)
        for metric in self._metrics():
            metric.update(said, y)

    def log(self, module: pl.LightningModule, stage: str) -> None:
        """Log the epoch that ends, over all processes."""
        if self.loss.images:
            values = {f"{stage}_loss": self.loss.compute()}
            values |= {
                f"{stage}_{name}": getattr(self, own).compute()
                for own, name in self.named.items()
                if own != "top5"
            }
            module.log_dict(values, prog_bar=True, sync_dist=True)  # they are equal, but Lightning would warn
            if "top5" in self.named:
                values[f"{stage}_accuracy_top5"] = self.top5.compute()
                module.log(f"{stage}_accuracy_top5", values[f"{stage}_accuracy_top5"], sync_dist=True)
            module.log_dict(name_as_others_do(values), logger=False, sync_dist=True)


def name_as_others_do(metrics: Mapping[str, T]) -> dict[str, T]:
    """Those of validation by the names that callbacks often monitor, and that trainings had in version 0.2.

    >>> name_as_others_do({"valid_loss": 0.5, "train_loss": 0.4})
    {'val_loss': 0.5}
    """
    return {f"val_{n.removeprefix('valid_')}": v for n, v in metrics.items() if n.startswith("valid_")}


def evaluation_total(task: Task, logits: Tensor, y: Tensor) -> tuple[Tensor, int | Tensor]:
    """The sum of the losses of the images that count, and how many those are."""
    if not isinstance(task, MultiClass):
        return task.evaluation_loss(logits, y) * len(y), len(y)
    total = F.cross_entropy(logits, y, reduction="sum", ignore_index=PADDING)
    return total, (y != PADDING).sum()


class MeanLoss(Metric):
    """Σ loss / Σ images. torchmetrics' own mean either hides a diverged loss or leaves its weights out."""

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
    # validation would wait for the device at each step
    return MulticlassAccuracy(
        num_classes, top_k=top_k, average="micro", ignore_index=PADDING, validate_args=False
    )
