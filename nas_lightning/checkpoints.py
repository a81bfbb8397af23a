"""Checkpoints that a run can always be resumed from, whenever it is killed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins import TorchCheckpointIO

from nas_lightning.errors import InputError


class AtomicCheckpoints(TorchCheckpointIO):
    """Writes a checkpoint beside its place and then renames it: the old one is whole until the new one is.

    Lightning writes to the system's folder of temporary files, which may be on another disk: then the last
    step is a copy, and a kill in the middle of it leaves half a checkpoint.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.partial")
        torch.save(checkpoint, partial)
        os.replace(partial, path)


class StepCheckpoint(pl.Callback):
    """Saves within epochs, too: for epochs of hours.

    A run resumed there goes on with the batch that comes next. Parameters, optimisers and random numbers are
    those of a run that was never stopped; the epoch's own mean losses cover the batches after the restart.

    Args:
        path: the file, which each save replaces.
        every_n_steps: how often; None: never.

    """

    def __init__(self, path: str | Path, every_n_steps: int | None = None) -> None:
        if every_n_steps is not None and every_n_steps < 1:
            raise InputError("expected at least one step", got=every_n_steps, where="every_n_steps")
        self.path, self.every_n_steps = Path(path), every_n_steps
        self._saved = 0

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        step = trainer.global_step
        if self.every_n_steps and step != self._saved and step % self.every_n_steps == 0:
            self._saved = step
            trainer.save_checkpoint(self.path)
