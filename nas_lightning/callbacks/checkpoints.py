"""Checkpoints that a run can always be resumed from, whenever it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning.utilities.exceptions import SIGTERMException

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.errors import InputError
from nas_lightning.files import replacing


class AtomicCheckpoints(TorchCheckpointIO):
    """Writes a checkpoint beside its place and then renames it: the old one is whole until the new one is.

    Lightning writes to the system's folder of temporary files, which may be on another disk: then the last
    step is a copy, and a kill in the middle of it leaves half a checkpoint.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     AtomicCheckpoints().save_checkpoint({"epoch": 3}, f"{folder}/last.ckpt")
    ...     os.listdir(folder), AtomicCheckpoints().load_checkpoint(f"{folder}/last.ckpt")
    (['last.ckpt'], {'epoch': 3})
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        with replacing(path) as partial, partial.open("wb") as file:  # whose errors are the system's own
            torch.save(checkpoint, file)


class StepCheckpoint(pl.Callback):
    """Saves within epochs, too: for epochs of hours.

    A run resumed there goes on with the batch that comes next, and ends as one that was never stopped. With
    several processes the means that the epoch itself logs take the first one's part for that of all.
    After the last batch of an epoch nothing is saved: the checkpoint at its end follows.

    Args:
        path: the file, which each save replaces.
        every_n_steps: how often; None: never.

    >>> callback = StepCheckpoint("my_run/checkpoints/step.ckpt", every_n_steps=1000)
    >>> callback.path.name, callback.every_n_steps
    ('step.ckpt', 1000)
    """

    @checked
    def __init__(self, path: str | Path, every_n_steps: PositiveInt | None = None) -> None:
        self.path, self.every_n_steps = Path(path), every_n_steps
        self._saved = 0

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        step = trainer.global_step
        due = self.every_n_steps and step != self._saved and step % self.every_n_steps == 0
        if due and not trainer.is_last_batch:
            self._saved = step
            trainer.save_checkpoint(self.path)


class SignalCheckpoint(pl.Callback):
    """Saves when the process is told to end, after the step that runs, and stops all processes together.

    SIGTERM, sent by `kill`, by containers and on preemption, saves and stops. `requeue_signal` also asks
    SLURM to start the job again; `#SBATCH --signal=SIGUSR1@120` sends it two minutes before the time is up.
    Lightning's own handlers save at once, which may be in the middle of a step, or let several processes wait
    for each other at different places, for as long as their backend does.

    Several processes have to ask each other, and a GPU waits for the answer; they do so now and then.

    Args:
        path: the file of the checkpoint.
        requeue_signal: the name of the signal; None: SIGTERM alone.
        every_n_batches: how often several processes ask.

    >>> callback = SignalCheckpoint("my_run/checkpoints/last.ckpt", requeue_signal=None)  # SIGTERM alone
    >>> callback.every_n_batches
    10
    """

    @checked
    def __init__(
        self, path: str | Path, requeue_signal: str | None = "SIGUSR1", every_n_batches: PositiveInt = 10
    ) -> None:
        if requeue_signal is not None and requeue_signal not in signal.Signals.__members__:
            raise InputError("expected the name of a signal", got=requeue_signal, where="requeue_signal")
        self.path, self.requeue_signal = Path(path), requeue_signal
        self.every_n_batches = every_n_batches
        self._signals: set[int] = set()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._signals = set()
        if threading.current_thread() is not threading.main_thread():  # which alone may handle signals
            return
        for name in filter(None, ("SIGTERM", self.requeue_signal)):  # Lightning puts those before `fit` back
            signal.signal(signal.Signals[name], self._note_signal)

    def _note_signal(self, number: int, frame: Any) -> None:
        self._signals.add(number)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # at an epoch's end comes its own checkpoint; each process may get the signal at another step, or none
        asked = trainer.world_size == 1 or batch_idx % self.every_n_batches == 0
        if trainer.is_last_batch or not asked or not _in_any_process(trainer, bool(self._signals)):
            return
        trainer.save_checkpoint(self.path)
        self._stop(trainer)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if _in_any_process(trainer, bool(self._signals)):
            self._stop(trainer)

    def _stop(self, trainer: pl.Trainer) -> None:
        requeue = _in_any_process(trainer, bool(self._signals - {signal.SIGTERM}))
        if requeue and trainer.is_global_zero and "SLURM_JOB_ID" in os.environ:
            subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=False)
        raise SIGTERMException


def _in_any_process(trainer: pl.Trainer, here: bool) -> bool:
    """Whether it is so in any process."""
    return trainer.strategy.reduce_boolean_decision(here, all=False)
