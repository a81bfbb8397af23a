"""How benchmarks here fit: on the CPU, and nothing beside the work itself."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl


def quiet_trainer(epochs: int, **options: Any) -> pl.Trainer:
    """A trainer that writes nothing, neither on the screen nor to disk."""
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
