"""Numbers of eight bytes that come back from a checkpoint as they were."""

from __future__ import annotations

import pytorch_lightning as pl


def widen(module: pl.LightningModule) -> None:
    """Make a module as wide as its trainer's precision, before a checkpoint is loaded into it.

    Lightning loads first and widens afterwards, which rounds what is restored to four bytes.

    >>> module = pl.LightningModule()
    >>> widen(module)  # nothing to do without a trainer
    """
    trainer = module._trainer
    if trainer is not None and trainer.precision == "64-true":
        module.double()
