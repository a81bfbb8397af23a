"""Tools of all benchmarks: medians of alternating runs on one thread, and a trainer that writes nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytorch_lightning as pl
import torch


def medians(works: Mapping[str, Callable[[], object]], rounds: int = 5, warmup: int = 1) -> dict[str, float]:
    """Return the median processor seconds of each piece of work, run in turn `rounds` times."""
    torch.set_num_threads(1)
    times: dict[str, list[float]] = {name: [] for name in works}
    for round_ in range(warmup + rounds):
        for name, work in works.items():
            start = time.process_time()
            work()
            if round_ >= warmup:
                times[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def report(seconds: Mapping[str, float]) -> None:
    """Print one line for each piece of work."""
    for name, value in seconds.items():
        print(f"{name:48s} {1000 * value:10.1f} ms")


def quiet_trainer(epochs: int, **options: Any) -> pl.Trainer:
    """Return a trainer on the CPU that writes nothing to the screen or to disk."""
    return pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **options,
    )
