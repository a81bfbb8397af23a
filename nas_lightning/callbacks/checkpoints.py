"""Checkpoints, and the state that makes a resumed run equal an uninterrupted one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException

from nas_lightning.errors import InputError
from nas_lightning.runs.metrics_csv import MetricsCSV
from nas_lightning.training.epoch_means import EpochMeans, name_as_others_do
from nas_lightning.utils.files import replacing
from nas_lightning.utils.randomness import seed_of
from nas_lightning.validation import PositiveInt, checked


def resume_callbacks() -> list[pl.Callback]:
    """Return the callbacks that make a resumed run equal to an uninterrupted one.

    Our commands always add them.

    >>> [type(callback).__name__ for callback in resume_callbacks()]
    ['RNGState', 'DataLoaderState', 'RewindMetrics']
    """
    return [RNGState(), DataLoaderState(), RewindMetrics()]


class AtomicCheckpoints(TorchCheckpointIO):
    """Writes a checkpoint next to its destination and renames it: a kill leaves the old or the new one.

    Lightning writes to the system's temporary folder, which may be on another disk: the last step is then a
    copy, and a kill during it leaves half a checkpoint.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     AtomicCheckpoints().save_checkpoint({"epoch": 3}, f"{folder}/last.ckpt")
    ...     os.listdir(folder), AtomicCheckpoints().load_checkpoint(f"{folder}/last.ckpt")
    (['last.ckpt'], {'epoch': 3})
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        with replacing(path) as partial, partial.open("wb") as file:  # a full disk is then an `OSError`
            torch.save(checkpoint, file)


class StepCheckpoint(pl.Callback):
    """Saves a checkpoint every few steps, for epochs of hours.

    A run resumed from it continues with the next batch and ends as an uninterrupted one. With several
    processes, the means that the epoch itself logs are those of the first process. Nothing is saved after the
    last batch of an epoch, since the checkpoint at its end follows.

    Args:
        path: of the checkpoint, which each save replaces.
        every_n_steps: the interval; None: no checkpoints.

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
    """Saves a checkpoint on SIGTERM after the current step, and stops all processes together.

    SIGTERM is sent by `kill`, by containers, and on preemption. On `requeue_signal`, SLURM also starts the
    job again; `#SBATCH --signal=SIGUSR1@120` sends it two minutes before the time limit. Lightning's own
    handlers save at once, which may be in the middle of a step, or let several processes wait for each other
    at different places until their backend gives up.

    Several processes exchange whether one got a signal, which also synchronizes GPUs; they do so every few
    batches.

    Args:
        path: of the checkpoint.
        requeue_signal: the name of a signal; None: SIGTERM only.
        every_n_batches: how often several processes exchange signals.

    >>> callback = SignalCheckpoint("my_run/checkpoints/last.ckpt", requeue_signal=None)  # SIGTERM only
    >>> callback.every_n_batches
    10
    """

    @checked
    def __init__(
        self, path: str | Path, requeue_signal: str | None = "SIGUSR1", every_n_batches: PositiveInt = 10
    ) -> None:
        if requeue_signal is not None and requeue_signal not in signal.Signals.__members__:
            raise InputError(
                "`requeue_signal` must be the name of a signal", got=requeue_signal, where="requeue_signal"
            )
        self.path, self.requeue_signal = Path(path), requeue_signal
        self.every_n_batches = every_n_batches
        self._signals: set[int] = set()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._signals = set()
        if threading.current_thread() is not threading.main_thread():  # only it may handle signals
            return
        for name in filter(
            None, ("SIGTERM", self.requeue_signal)
        ):  # Lightning restores the earlier ones after `fit`
            signal.signal(signal.Signals[name], self._note_signal)

    def _note_signal(self, number: int, frame: Any) -> None:
        self._signals.add(number)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # the end of an epoch has its own checkpoint; processes may get the signal at different steps, or not
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
    """Return whether `here` is true in any process."""
    return trainer.strategy.reduce_boolean_decision(here, all=False)


class BestCheckpoint(ModelCheckpoint):
    """Lightning's `ModelCheckpoint`, which does nothing in runs without validation.

    In those the last epoch counts; test data never decides.

    >>> best = BestCheckpoint(monitor="valid_accuracy", mode="max", filename="best")
    >>> trainer = pl.Trainer(callbacks=[best], accelerator="cpu", logger=False)
    >>> trainer.checkpoint_callback.monitor
    'valid_accuracy'
    """

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        scores = getattr(pl_module, "val_scores", None)
        names = [*scores.named.values(), "loss"] if isinstance(scores, EpochMeans) else ["accuracy", "loss"]
        logged = {f"valid_{name}": None for name in names}
        if self.monitor not in {*logged, *name_as_others_do(logged)}:
            expected = f"`monitor` must be a metric of the validation ({', '.join(logged)})"
            raise InputError(expected, got=self.monitor, where="callbacks.best.monitor")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if sum(trainer.fit_loop.epoch_loop.val_loop.max_batches):
            super().on_train_epoch_end(trainer, pl_module)


_KEY = "nas_lightning_rng"


class RNGState(pl.Callback):
    """Gives each process its own random numbers, and saves the generators of Python, NumPy, and torch.

    Weights are initialized before, and equal. Masks of dropout and drop path then differ between processes;
    sampled architectures do not, since strategies have a generator of their own, nor does the first process
    differ from a run of one process.

    States are restored when `fit` starts: after the model is restored and before a loader draws numbers, so
    that a run resumed at the end of an epoch equals an uninterrupted one to the bit. On fewer processes, the
    states of the missing ones are ignored; additional ones get a seed.

    >>> trainer, module = pl.Trainer(accelerator="cpu", logger=False), pl.LightningModule()
    >>> checkpoint = {}
    >>> RNGState().on_save_checkpoint(trainer, module, checkpoint)
    >>> number = torch.rand(())
    >>> resumed = RNGState()
    >>> resumed.on_load_checkpoint(trainer, module, checkpoint)
    >>> resumed.on_fit_start(trainer, module)
    >>> bool(torch.rand(()) == number)
    True
    """

    def __init__(self) -> None:
        self._restored: list[dict[str, Any]] = []

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Runs on every process."""
        states: list[Any] = [None] * trainer.world_size
        if trainer.world_size > 1:
            torch.distributed.all_gather_object(states, rng_state())
        else:
            states = [rng_state()]
        checkpoint[_KEY] = states

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._restored = checkpoint.get(_KEY, [])

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        rank = trainer.global_rank
        if rank < len(self._restored):
            set_rng_state(self._restored[rank])
        elif rank > 0:
            seed = seed_of(torch.initial_seed(), rank) % 2**32  # NumPy's largest
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
        self._restored = []  # a second `fit` continues from its own state


def rng_state() -> dict[str, Any]:
    """Return the states of all generators in containers that a weights-only load accepts."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(words), gauss],
        "numpy": [name, [int(key) for key in keys], position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Restore the states of `rng_state`, except for GPUs that this machine does not have."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"].cpu())
    for device, cuda in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(cuda.cpu(), device)


EPOCH_ROW, STEP_ROW = "nas_lightning_epoch_row", "nas_lightning_step_row"


class RewindMetrics(pl.Callback):
    """Removes the rows of `MetricsCSV` that a resumed run computes again, so that the file has each row once.

    Rows are on disk before a checkpoint that follows them, and a resumed run repeats those after it. Only the
    row of the step or epoch after which a checkpoint is saved is written after it and not computed again. The
    checkpoint therefore has a copy of that row, for the case that a kill between the two has lost it.

    >>> logger = MetricsCSV("my_run")
    >>> trainer = pl.Trainer(callbacks=[RewindMetrics()], logger=logger, accelerator="cpu")
    >>> trainer.logger is logger
    True
    """

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, float]] = {}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint.update(_pending_row(trainer))

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._rows = {name: checkpoint[name] for name in (EPOCH_ROW, STEP_ROW) if name in checkpoint}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        _rewind(trainer, self._rows)
        self._rows = {}

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._rows:  # all epochs were done, so no training started
            _rewind(trainer, self._rows)

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.fit_loop.epoch_loop._batches_that_stepped:  # a test after training, not a test alone
            _rewind(trainer, {})


def _pending_row(trainer: pl.Trainer) -> dict[str, dict[str, float]]:
    """Return the row that Lightning is about to log: of the epoch that has ended, or of a step."""
    connector = trainer._logger_connector
    if not trainer.training:
        return {}
    within = connector._first_loop_iter is not None
    if within and not connector.should_update_logs:
        return {STEP_ROW: {}}
    row = {name: float(value) for name, value in connector.metrics["log"].items()}
    return {STEP_ROW if within else EPOCH_ROW: {"epoch": trainer.current_epoch, **row} if row else {}}


def _rewind(trainer: pl.Trainer, rows: dict[str, dict[str, float]]) -> None:
    step = trainer.fit_loop.epoch_loop._batches_that_stepped  # the `step` of loggers
    if STEP_ROW in rows:  # saved before Lightning counted this step, which is not repeated
        step += 1
    for logger in trainer.loggers:
        if isinstance(logger, MetricsCSV):
            logger.rewind(step, rows.get(STEP_ROW) or rows.get(EPOCH_ROW))


class DataLoaderState(pl.Callback):
    """Restores the position of loaders if a module has asked for them too early.

    Lightning restores the state of a loader when it creates it. A module that uses
    `trainer.estimated_stepping_batches` in `configure_optimizers` has it created before the states are read
    from the checkpoint: the loader would then repeat its epoch. This callback restores a pending state when
    training starts.

    >>> trainer = pl.Trainer(callbacks=[DataLoaderState()], accelerator="cpu", logger=False)
    >>> any(isinstance(callback, DataLoaderState) for callback in trainer.callbacks)
    True
    """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        loop = trainer.fit_loop
        if not loop._combined_loader_states_to_load:
            return
        loop._load_combined_loader_states()
        if loop._data_fetcher is not None:
            iter(loop._data_fetcher)  # replaces the iterator at the first position
