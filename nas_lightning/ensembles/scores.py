"""What an ensemble is worth where there are no classes: the task's metrics, of each member and together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nas_lightning.ensembles.ensemble import Ensemble
from nas_lightning.ensembles.evaluation import Batch
from nas_lightning.errors import InputError
from nas_lightning.tables import Entry, Table
from nas_lightning.tasks.base import Task


@dataclass(frozen=True)
class Scores:
    """The loss and the task's metrics, by name.

    Args:
        members: of each member alone.
        together: of the mean of their predictions.
    """

    members: tuple[Mapping[str, float], ...]
    together: Mapping[str, float]

    def table(self, images: str) -> Table:
        """Members alone and together."""
        rows: list[list[Entry]] = [
            [f"member {number}", *alone.values()] for number, alone in enumerate(self.members, 1)
        ]
        title = f"{len(rows)} members, alone and together, on the test images of {images}"
        return Table("ensemble", title, ["", *self.together], [*rows, ["ensemble", *self.together.values()]])


@torch.no_grad()
def evaluate_task(ensemble: Ensemble, batches: Iterable[Batch], task: Task) -> Scores:
    """Let the ensemble predict all images of (x, y) batches, in eval mode."""
    parameter = next(ensemble.parameters())
    was_training = ensemble.training
    ensemble.eval()
    sums: list[_Sum] = []
    for x, y in batches:
        outputs = ensemble.member_logits(x.to(parameter)).cpu()  # (members, b, outputs, …)
        sums = sums or [_Sum(task, outputs.shape[2]) for _ in range(len(outputs) + 1)]
        for sum_, z in zip(sums, [*outputs, ensemble.link.combine(outputs)], strict=True):
            sum_.add(z, y.cpu())
    ensemble.train(was_training)
    if not sums:
        raise InputError("expected at least one batch", got="none")
    *members, together = [sum_.values() for sum_ in sums]
    return Scores(tuple(members), together)


class _Sum:
    """Loss and metrics of some outputs, batch by batch."""

    def __init__(self, task: Task, outputs: int) -> None:
        self.task, self.loss, self.images = task, 0.0, 0
        self.metrics = task.metrics(outputs)

    def add(self, z: Tensor, y: Tensor) -> None:
        self.loss += float(self.task.evaluation_loss(z, y)) * len(y)
        self.images += len(y)
        for metric in self.metrics.values():
            metric.update(self.task.predictions(z), y)

    def values(self) -> dict[str, float]:
        values = {name: float(metric.compute()) for name, metric in self.metrics.items()}
        return {"loss": self.loss / self.images, **values}
