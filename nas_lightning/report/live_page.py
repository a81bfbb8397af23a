"""The page of a run that goes on: written anew after epochs, it loads itself again in an open browser."""

from __future__ import annotations

import time
from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning.utilities import rank_zero_only, rank_zero_warn

from nas_lightning.checks import PositiveFloat, checked
from nas_lightning.errors import InputError
from nas_lightning.training.horizon import deadline_of, is_last_epoch

_SHARE = 0.1
"""Of the time, that pages take at most."""
_COMPUTED = 5.0
"""Seconds of a processor for the first page, matplotlib's import among them: some 4 in `darts`."""


class LivePage(pl.Callback):
    """Writes `report.html` after epochs, and never ends a training: what goes wrong is said once.

    Pages take a tenth of the time at most. Where a deadline ends the run, no page is begun that might take
    more than half of what is left.

    Args:
        folder: the run's.
        seconds: that lie between two pages at least, and before the first.

    >>> LivePage("my_run", seconds=60).seconds
    60
    """

    @checked
    def __init__(self, folder: str | Path, seconds: PositiveFloat = 30.0) -> None:
        self.folder, self.seconds = Path(folder), seconds
        self._due = seconds
        self._took: float | None = None  # the last page; None: there was none
        self._is_broken = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._due = time.monotonic() + self.seconds

    @rank_zero_only
    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        is_early = time.monotonic() < self._due
        if self._is_broken or is_early or is_last_epoch(trainer):  # after which the job writes the page
            return
        if self._is_in_time(trainer):
            self._write(trainer)

    def _is_in_time(self, trainer: pl.Trainer) -> bool:
        deadline = deadline_of(trainer)
        if deadline is None:
            return True
        expected = deadline.stretch(_COMPUTED) if self._took is None else self._took
        return deadline.time_remaining() > 2 * expected

    def _write(self, trainer: pl.Trainer) -> None:
        from nas_lightning.report.page import write_report  # and with it matplotlib

        start = time.monotonic()
        try:
            write_report(self.folder, reload=max(1, round(self.seconds)))
        except (InputError, OSError) as error:
            self._is_broken = True
            rank_zero_warn(f"report.html is written at the end only: {error}")
        now = time.monotonic()
        self._took = now - start
        self._due = now + max(self.seconds, (1 / _SHARE - 1) * self._took)
        if (deadline := deadline_of(trainer)) is not None:
            deadline.leave_out(self._took)
