"""Random numbers that go on where they stopped, which Lightning leaves to callbacks."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch

_KEY = "nas_lightning_rng"


class RNGState(pl.Callback):
    """Keeps the states of Python's, NumPy's and torch's generators in checkpoints, one set a process.

    They are put back when `fit` starts: the model is restored by then and no loader has drawn a number yet,
    so that a run resumed at the end of an epoch equals one that was never stopped, bit for bit. Resumed on
    fewer processes, the states of the missing ones are left out; further ones keep their seed.

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
        if trainer.global_rank < len(self._restored):
            set_rng_state(self._restored[trainer.global_rank])
        self._restored = []  # a second `fit` goes on from its own state


def rng_state() -> dict[str, Any]:
    """All generators' states in containers that a weights-only load accepts."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(words), gauss],
        "numpy": [name, [int(key) for key in keys], position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """The inverse of `rng_state`; generators of GPUs that are not here are left out."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"].cpu())
    for device, cuda in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(cuda.cpu(), device)
