"""What a search thought after each epoch: genotypes and scores, as one line of `history.jsonl` an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytorch_lightning as pl
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.checks import checked
from nas_lightning.files import write_whole
from nas_lightning.runs.history import FIGURES, HISTORY_FILE, history_line, read_history

if TYPE_CHECKING:
    from nas_lightning.strategies.base import Strategy


class GenotypeHistory(pl.Callback):
    """Appends {"epoch", "genotypes", "groups": {name: {"edges", "ops", "scores"}}} after every epoch.

    The scores, (edges, ops) rounded to six digits, are those that the strategy derives its genotypes from; a
    strategy without scores has no groups. A resumed run drops the epochs that it repeats. When the search
    ends, genotypes and weights are drawn in `folder`/figures.

    Args:
        folder: the run's folder.
        figures: draw at the end.

    >>> history = GenotypeHistory("my_run", figures=False)
    >>> history.path.as_posix()
    'my_run/history.jsonl'
    """

    @checked
    def __init__(self, folder: str | Path, figures: bool = True) -> None:
        self.path = Path(folder) / HISTORY_FILE
        self.figures = figures

    @rank_zero_only
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.path.is_file():
            kept = [entry for entry in read_history(self.path) if entry["epoch"] < trainer.current_epoch]
            write_whole(self.path, "".join(history_line(entry) for entry in kept))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        strategy = cast("Strategy", pl_module)
        groups = {}
        for name, scores in strategy.scores().items():
            group = strategy.space.groups[name]
            by_name = group.by_name(scores.detach()).tolist()
            table = [[round(score, 6) for score in row] for row in by_name]
            groups[name] = {"edges": group.rows, "ops": group.ops, "scores": table}
        genotypes = [genotype.to_dict() for genotype in strategy.derive()]
        self._append({"epoch": trainer.current_epoch, "genotypes": genotypes, "groups": groups})

    @rank_zero_only
    def _append(self, entry: Mapping[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(history_line(entry))

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.figures:
            from nas_lightning.plots.files import save_genotypes, save_weights  # and with them matplotlib

            strategy = cast("Strategy", pl_module)
            front = strategy.front()
            genotypes = strategy.derive() if front is None else [front.genotypes[front.knee]]
            if trainer.is_global_zero:
                folder = self.path.parent / FIGURES
                save_genotypes(genotypes, folder)
                if self.path.is_file():  # not after a search of no epochs
                    save_weights(read_history(self.path), folder)
