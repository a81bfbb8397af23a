"""Progress and elapsed time."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import TQDMProgressBar
from torch import Tensor

from nas_lightning.utils.progress import APART, FIRST
from nas_lightning.utils.text import split_score
from nas_lightning.validation import NonNegativeInt, checked

_KEY = "nas_lightning_seconds"


class Stopwatch(pl.Callback):
    """Counts the seconds of a run over all starts.

    Time after the last checkpoint of a start does not count, since the next start repeats that work. The
    watch stops at the end of training and continues when `go_on` is called.

    >>> earlier, now, checkpoint = Stopwatch(), Stopwatch(), {}
    >>> earlier.on_save_checkpoint(None, None, checkpoint)
    >>> now.on_load_checkpoint(None, None, checkpoint)
    >>> now.seconds() > earlier.seconds() - 1
    True
    """

    def __init__(self) -> None:
        self._start, self._earlier = time.monotonic(), 0.0
        self._end: float | None = None  # while it stands

    def seconds(self) -> float:
        """Return the seconds of all starts until now."""
        now = time.monotonic() if self._end is None else self._end
        return self._earlier + now - self._start

    def go_on(self) -> None:
        """Count again."""
        if self._end is not None:
            self._start += time.monotonic() - self._end
            self._end = None

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._end = time.monotonic()

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[_KEY] = self.seconds()

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._earlier = checkpoint.get(_KEY, 0.0)


# Progress in one line: a live bar in a terminal, a line an epoch in a file or pipe.

_SIDES = ("train", "valid", "val")
_OF_ROUNDS = {  # of searches without a supernet: metric, its name here, its format
    "valid_accuracy_12_epochs": ("valid after 12 epochs", ".1%"),
    "oracle_test_accuracy": ("oracle", ".1%"),
    "num_scored": ("scored", ".0f"),
}


class SearchProgressBar(TQDMProgressBar):
    """Shows the epoch, and loss and accuracy of training and validation when they are logged.

    In a terminal, Lightning's bar shows these values. Otherwise, one line is printed after every epoch, and
    every minute within an epoch, so that log files are readable; short rounds share a line. Values that an
    epoch does not log are not repeated.

    Args:
        refresh_rate: number of batches between updates of the bar; 0: no bar.

    >>> bar = SearchProgressBar(refresh_rate=0)  # one line per epoch, also in a terminal
    >>> bar.is_enabled
    False
    """

    @checked
    def __init__(self, refresh_rate: NonNegativeInt = 1) -> None:
        super().__init__(refresh_rate)
        self.live = sys.stdout.isatty()
        self._ended = ""  # the epoch whose line is due
        self._printed = time.monotonic()  # the time of the last line
        self._before: dict[str, Tensor] = {}  # the metrics with which the running epoch began
        self._stale: dict[str, Tensor] = {}  # those that the last epoch left as they were

    @property
    def is_enabled(self) -> bool:
        """Whether bars are drawn."""
        return super().is_enabled and self.live

    def get_metrics(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        return dict(by_side(_news(trainer.callback_metrics, self._stale)))

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print a line above the bar."""
        super().print(*args, **kwargs) if self.live else print(*args, flush=True)

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        self._print_line(trainer)
        now = dict(trainer.callback_metrics)
        self._stale = {name: value for name, value in now.items() if value is self._before.get(name)}
        self._before = now
        super().on_train_epoch_start(trainer, *args)
        self.train_progress_bar.set_description(_epoch(trainer))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_epoch_end(trainer, pl_module)
        self._ended = _epoch(trainer)  # modules may still log in this hook

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        if time.monotonic() - self._printed > APART:
            count = trainer.num_training_batches
            of = f" of {count:,}" if math.isfinite(count) else ""
            self._print_text(trainer, f"{_epoch(trainer)}   batch {batch_idx + 1:,}{of}")

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_end(trainer, pl_module)
        self._print_line(trainer, last=True)

    def _print_line(self, trainer: pl.Trainer, *, last: bool = False) -> None:
        """Print the line of the last epoch, when all its values are logged.

        Of rounds, which may take less than a second, there is a line every `FIRST` seconds.
        """
        new = by_side(_news(trainer.callback_metrics, self._before))
        names = {name for name, _ in _OF_ROUNDS.values()}
        is_due = last or not new.keys() <= names or time.monotonic() - self._printed > FIRST
        if self._ended and new and is_due:
            sides = [f"{side} {value}" for side, value in new.items()]
            self._print_text(trainer, "   ".join([self._ended, *sides]))
        self._ended = ""

    def _print_text(self, trainer: pl.Trainer, text: str) -> None:
        if not self.live and trainer.is_global_zero and self._enabled:
            print(text, flush=True)
        self._printed = time.monotonic()


def _news(metrics: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the metrics of this epoch; Lightning keeps the tensors of those that it did not log."""
    return {name: value for name, value in metrics.items() if value is not before.get(name)}


def by_side(metrics: Mapping[str, Tensor | float]) -> dict[str, str]:
    """Format loss, accuracy, and scores of the task by side, and the metrics of rounds.

    >>> by_side({"train_loss": 1.5321, "train_accuracy": 0.441, "valid_loss": 1.7})
    {'train': '1.532 44.1%', 'valid': '1.700'}
    >>> by_side({"valid_loss": 2.0, "valid_r2": 0.71})
    {'valid': '2.000 r2 0.71'}
    >>> by_side({"num_scored": 40.0, "oracle_test_accuracy": 0.9437})
    {'oracle': '94.4%', 'scored': '40'}
    """
    shown = {}
    for side in _SIDES:
        parts = []
        if side == "val" and "valid" in shown:  # another name for the same
            continue
        if f"{side}_loss" in metrics:
            parts.append(f"{float(metrics[f'{side}_loss']):.3f}")
        if f"{side}_accuracy" in metrics:
            parts.append(f"{float(metrics[f'{side}_accuracy']):.1%}")
        for name, value in metrics.items():
            score = split_score(name)
            if score and score[0] == side:
                parts.append(f"{score[1]} {float(value):.3g}")
        if parts:
            shown[side] = " ".join(parts)
    for metric, (name, form) in _OF_ROUNDS.items():
        if metric in metrics:
            shown[name] = format(float(metrics[metric]), form)
    return shown


def _epoch(trainer: pl.Trainer) -> str:
    last = trainer.max_epochs
    number = str(trainer.current_epoch + 1)
    return f"epoch {number.rjust(len(str(last)))}/{last}" if last and last > 0 else f"epoch {number}"
