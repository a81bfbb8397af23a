"""Read the time and the metrics of a trainer that has finished."""

from __future__ import annotations

from pathlib import Path

import pytorch_lightning as pl

from nas_lightning.callbacks.progress import Stopwatch
from nas_lightning.errors import InputError
from nas_lightning.runs.metrics_csv import METRICS_FILE, read_metrics
from nas_lightning.training.epoch_means import name_as_others_do

_LEFT_OUT = ("step", "epoch")


def stopwatch_of(trainer: pl.Trainer) -> Stopwatch:
    """Return the trainer's stopwatch; add one if it has none."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, Stopwatch):
            return callback
    stopwatch = Stopwatch()
    trainer.callbacks.insert(0, stopwatch)  # type: ignore[attr-defined]
    return stopwatch


def check_steps(trainer: pl.Trainer) -> None:
    """Raise if the run, including earlier processes, has not trained on any batch."""
    if not trainer.fit_loop.epoch_loop.batch_progress.total.completed:
        expected = "The run must have at least one step (trainer.max_steps, .max_time, .limit_train_batches)"
        raise InputError(expected, got="none", where="trainer")


def last_metrics(trainer: pl.Trainer, run: Path) -> dict[str, float]:
    """Return the last value of each metric.

    A run that was killed after its last epoch trains no further when it is resumed; its metrics come from
    `metrics.csv`.
    """
    path = run / METRICS_FILE
    rows = read_metrics(path) if path.is_file() else []
    stored = {name: value for row in rows for name, value in row.items()}
    values = {**stored, **{name: float(value) for name, value in trainer.callback_metrics.items()}}
    left_out = name_as_others_do(values)
    kept = {name: value for name, value in values.items() if name not in left_out}
    return {name: round(value, 6) for name, value in kept.items() if not name.startswith(_LEFT_OUT)}
