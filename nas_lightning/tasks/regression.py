"""Numbers instead of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric

from nas_lightning.checks import checked
from nas_lightning.tasks.base import Task, as_rows


class Regression(Task):
    """The mean squared error; the share of variance that is explained, and the mean absolute error.

    Args:
        score: what searches and trainings maximise.

    >>> task = Regression()
    >>> z, y = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[1.0], [2.0], [6.0]])
    >>> float(task.loss(z, y)), round(task.judge(z, y), 4)
    (3.0, 0.3571)
    """

    name: ClassVar[str] = "regression"

    @checked
    def __init__(self, *, score: str = "r2") -> None:
        self.score = score

    def targets(self, y: Tensor) -> Tensor:
        return as_rows(y)

    def count(self, y: Tensor) -> int:
        return y.shape[1]

    def check(self, y: Tensor, outputs: int, source: str) -> None:
        self.same_shape(y, outputs, source)

    def loss(self, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        return F.mse_loss(z, y.to(z))

    def metrics(self, outputs: int) -> Mapping[str, Metric]:
        return {"r2": ExplainedShare(outputs), "mae": MeanDistance()}


class ExplainedShare(Metric):
    """R² = 1 − Σ (y − z)² / Σ (y − ȳ)², the mean over outputs: 0 for the best constant, 1 for the truth.

    Args:
        outputs: how many numbers there are.
    """

    full_state_update = False
    higher_is_better = True
    count: Tensor
    total: Tensor
    squares: Tensor
    errors: Tensor

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.add_state("count", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        for name in ("total", "squares", "errors"):
            self.add_state(name, torch.zeros(outputs, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, z: Tensor, y: Tensor) -> None:
        z, y = z.detach().double(), y.double()
        self.count += len(y)
        self.total += y.sum(dim=0)
        self.squares += y.square().sum(dim=0)
        self.errors += (y - z).square().sum(dim=0)

    def compute(self) -> Tensor:
        spread = self.squares - self.total.square() / self.count
        return (1 - self.errors / spread.clamp_min(1e-12)).mean().float()


class MeanDistance(Metric):
    """The mean of |y − z|."""

    full_state_update = False
    higher_is_better = False
    count: Tensor
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("count", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, z: Tensor, y: Tensor) -> None:
        self.total += (z.detach().float() - y).abs().sum()
        self.count += y.numel()

    def compute(self) -> Tensor:
        return self.total / self.count
