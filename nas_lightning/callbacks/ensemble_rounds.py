"""The sets that a search for an ensemble tried, in a file of its run."""

from __future__ import annotations

from pathlib import Path

import pytorch_lightning as pl

from nas_lightning.checks import checked
from nas_lightning.errors import InputError
from nas_lightning.files import json_text, write_whole
from nas_lightning.strategies.nesbs.strategy import Nesbs

ROUNDS_FILE = "rounds.json"


class SaveRounds(pl.Callback):
    """Writes every round at the end of the search: members, losses, accuracies, δ; the best marked.

    Args:
        folder: the run's folder.

    >>> SaveRounds("my_run").path.as_posix()
    'my_run/rounds.json'
    """

    @checked
    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / ROUNDS_FILE

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not isinstance(pl_module, Nesbs):
            raise InputError(
                "expected strategy=nesbs", got=type(pl_module).__name__, where="callbacks.rounds"
            )
        if trainer.is_global_zero:
            best = min(pl_module.rounds_done, key=lambda done: done.loss, default=None)
            entries = [{**done.to_dict(), "selected": done is best} for done in pl_module.rounds_done]
            text = json_text({"sampler": pl_module.sampling.sampler, "rounds": entries}, 2)
            write_whole(self.path, text + "\n")
