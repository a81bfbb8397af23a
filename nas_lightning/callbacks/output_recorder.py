"""What a network says of the test images, kept for what is written of them at a training's end."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, distributed

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.tasks.multi_class import MultiClass, task_of


class OutputRecorder(pl.Callback):
    """Keeps the class probabilities of a test and the true classes; several processes put theirs in a row.

    Args:
        most: probabilities that are kept; a test that has more leaves none.

    >>> recorder = OutputRecorder()
    >>> recorder.add(torch.zeros(1, 4), torch.tensor([3]))
    >>> recorder.collect()
    (tensor([[0.2500, 0.2500, 0.2500, 0.2500]]), tensor([3]))
    """

    @checked
    def __init__(self, most: PositiveInt = 20_000_000) -> None:
        self.most = most
        self._parts: list[tuple[Tensor, Tensor]] = []
        self._count = 0

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Those of a batch: (b, classes) and (b,)."""
        self._count += logits.numel()
        if self._count <= self.most:
            self._parts.append((logits.detach().float().softmax(dim=1).cpu(), labels.cpu()))

    def collect(self) -> tuple[Tensor, Tensor] | None:
        """Probabilities (n, classes) and true classes (n,); None where there are none, or too many.

        Every process calls it.
        """
        shares = [(self._parts, self._count)]
        if distributed.is_available() and distributed.is_initialized():
            shares = shares * distributed.get_world_size()
            distributed.all_gather_object(shares, (self._parts, self._count))
        parts = [part for share, _ in shares for part in share]
        if not parts or any(count > self.most for _, count in shares):
            return None
        probabilities, truth = zip(*parts, strict=True)
        return torch.cat(probabilities), torch.cat(truth)

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._parts, self._count = [], 0

    def on_test_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, *place: int
    ) -> None:
        if isinstance(outputs, Tensor) and isinstance(task_of(pl_module.network), MultiClass):
            self.add(outputs, batch[1])
