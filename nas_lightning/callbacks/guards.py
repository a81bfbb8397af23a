"""Guards: divergence, memory, collapse to skip connections, and the expected time."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import nn

from nas_lightning.data import ExternalData, ImageData
from nas_lightning.errors import DivergenceError, InputError, near_match
from nas_lightning.genotype import Cell, Genotype
from nas_lightning.objectives.memory import Memory, free_memory, optimizer_copies, training_memory
from nas_lightning.spaces.operations import NONE, SKIP
from nas_lightning.training.optimizers import build_optimizer
from nas_lightning.training.retrain import Retrain, training_logits
from nas_lightning.utils.text import duration
from nas_lightning.validation import NonNegativeFloat, PositiveInt, above, at_most, checked

if TYPE_CHECKING:
    from nas_lightning.strategies.base import Strategy


LOSS = "train_loss"


class DivergenceGuard(pl.Callback):
    """Ends a run with one line if its loss or weights are not finite.

    Weights are checked after the last batch of an epoch, before anything is derived from them, and before
    each checkpoint, so that the last checkpoint is finite; the loss is checked when the epoch logs it.

    Args:
        monitor: the logged name of the loss.

    >>> module = pl.LightningModule()
    >>> module.layer = nn.Linear(1, 1)
    >>> _ = module.layer.bias.data.fill_(float("nan"))
    >>> DivergenceGuard().on_save_checkpoint(pl.Trainer(accelerator="cpu", logger=False), module, {})
    Traceback (most recent call last):
        ...
    nas_lightning.errors.DivergenceError: Weights must be finite: lower the learning rate, or ...
    """

    def __init__(self, monitor: str = LOSS) -> None:
        self.monitor = monitor
        self._ended = False  # an epoch, in this start of the run

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any) -> None:
        if trainer.is_last_batch:
            _check_weights(trainer, pl_module)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._check_monitor(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._check_monitor(trainer)

    def _check_monitor(self, trainer: pl.Trainer) -> None:
        """Raise an `InputError` for a name that no epoch has logged; not all searches have the default."""
        names = sorted(trainer.callback_metrics)
        if self._ended and self.monitor not in (LOSS, *names):
            expected = f"`monitor` must be a logged metric ({near_match(self.monitor, names)})"
            raise InputError(expected, got=self.monitor, where="callbacks.divergence.monitor")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        value = trainer.callback_metrics.get(self.monitor)
        self._ended = True
        if value is not None and not bool(torch.isfinite(value).all()):
            raise _divergence(trainer, f"`{self.monitor}`", float(value))

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        _check_weights(trainer, pl_module)


def infinite_parameter(module: nn.Module) -> str | None:
    """Return the name of the first parameter with a value that is not finite.

    >>> layer = nn.Linear(2, 2)
    >>> infinite_parameter(layer) is None
    True
    >>> _ = layer.bias.data.fill_(float("nan"))
    >>> infinite_parameter(layer)
    'bias'
    """
    return next((name for name, value in module.named_parameters() if not _finite(value)), None)


def _finite(value: torch.Tensor) -> bool:
    return bool(torch.isfinite(value.detach()).all())


def _check_weights(trainer: pl.Trainer, module: nn.Module) -> None:
    name = infinite_parameter(module)
    if name is not None:
        raise _divergence(trainer, "Weights", f"nan or inf in {name}")


def _divergence(trainer: pl.Trainer, quantity: str, got: object) -> DivergenceError:
    where = f"epoch {trainer.current_epoch}, step {trainer.global_step}"
    remedy = "lower the learning rate, or clip gradients"
    return DivergenceError(f"{quantity} must be finite: {remedy}", got=got, where=where)


_MB, _GB = 1024**2, 1024**3


class MemoryGuard(pl.Callback):
    """Estimates the memory of a training step of `Retrain`, and rejects a batch size that cannot fit.

    The estimate is a lower bound: tensors that autograd keeps, weights, optimizer, and running average,
    without the memory of libraries and the display.

    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> network = space.network(space.sample(torch.Generator().manual_seed(0)), **sizes)
    >>> one, two = (step_memory(Retrain(network, 10), (batch, 1, 8, 8), "32-true") for batch in (16, 32))
    >>> one.weights == two.weights, one.activations < two.activations
    (True, True)
    """

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]  # set by `fit`
        if not (isinstance(pl_module, Retrain) and isinstance(data, (ImageData, ExternalData))):
            return
        device = trainer.strategy.root_device
        free = free_memory(device)
        if free is not None and device.type == "cpu":
            free //= trainer.num_devices  # processes that share it

        def memory_of_batch(batch: int) -> Memory:
            return step_memory(pl_module, (batch, *data.image), str(trainer.precision))

        try:
            memory_of_batch(1)
        except Exception:  # a custom network may depend on values, which meta tensors do not have
            return
        check_fits(memory_of_batch, data.batch_size, free, str(device))


def step_memory(module: Retrain, images: tuple[int, ...], precision: str) -> Memory:
    """Return a lower bound of the memory of a step on images of shape (b, c, h, w)."""
    chosen = module.hparams
    copies = optimizer_copies(
        lambda parameters: build_optimizer(parameters, chosen["opt"], lr=0.1, momentum=chosen["momentum"])
    )
    half = torch.bfloat16 if precision.endswith("-mixed") else None
    average = 0 if module.average is None else 1
    return training_memory(module.network, training_logits, images, copies=copies + average, dtype=half)


def check_fits(memory_of_batch: Any, batch: int, free: int | None, device: str) -> None:
    """Print the memory of a batch, or raise an `InputError` that names the largest part of it that fits."""
    memory: Memory = memory_of_batch(batch)
    if free is None or memory.total <= free:
        of = "" if free is None else f" of {_gb(free)} free on {device}"
        _say(
            f"memory: at least {_gb(memory.total)}{of} for {batch} images a step "
            f"({_gb(memory.activations)} activations, {_gb(memory.weights)} weights and optimizer)"
        )
        return
    parts = next((k for k in range(2, batch + 1) if memory_of_batch(batch // k).total <= free), None)
    fix = "no batch fits: choose a smaller network"
    if parts is not None:
        fix = (
            f"dataset.batch_size={batch // parts} fits, and with trainer.accumulate_grad_batches={parts} "
            "steps stay as large"
        )
    raise InputError(
        f"Not enough memory on {device}: {_gb(free)} are free, and {batch} images a step need at least "
        f"{_gb(memory.total)}; {fix}",
        where="dataset.batch_size",
    )


def _gb(size: int) -> str:
    """Format a size with two significant digits.

    >>> _gb(9_500_000), _gb(1_800_000_000), _gb(24 * 1024**3)
    ('9.1 MB', '1.7 GB', '24 GB')
    """
    number, unit = (size / _MB, "MB") if size < 1000 * _MB else (size / _GB, "GB")
    return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"


@rank_zero_only
def _say(line: str) -> None:
    print(line, flush=True)


# Collapse to skip connections, the best-known failure of DARTS
#
# Skips let gradients pass and win while the other operations are untrained. DARTS+ (Liang et al. 2019,
# arXiv:1909.06035) and P-DARTS (Chen et al. 2019, arXiv:1904.12760) allow two on the eight edges of a normal
# cell, and DARTS+ stops the search then.

log = logging.getLogger(__name__)


class CollapseWarning(pl.Callback):
    """Logs `skip_share` after every epoch and warns once if a cell has too many skips.

    `skip_share` is the share of skips among the operations of a cell other than `none`, for the cell with the
    largest share. Published cells are below one half (DARTS: 3 of 8), the default. The rule of DARTS+ is
    `threshold=0.25, patience=1, stop=True`.

    Args:
        threshold: the share at which a cell counts as collapsed.
        patience: the number of consecutive epochs.
        stop: whether the search ends, in addition to the warning.

    >>> rule_of_darts_plus = CollapseWarning(threshold=0.25, patience=1, stop=True)
    >>> rule_of_darts_plus.state_dict()
    {'epochs': 0, 'warned': False}
    """

    @checked
    def __init__(
        self,
        threshold: Annotated[float, above(0), at_most(1)] = 0.5,
        patience: PositiveInt = 3,
        stop: bool = False,
    ) -> None:
        self.threshold, self.patience, self.stop = threshold, patience, stop
        self.epochs = 0  # in a row
        self.warned = False

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        strategy = cast("Strategy", pl_module)
        if not strategy.scores():  # the strategy compares whole architectures
            return
        share = skip_share(strategy.derive())
        pl_module.log("skip_share", share, sync_dist=True)  # equal on all processes
        self.epochs = self.epochs + 1 if share >= self.threshold else 0
        if self.epochs >= self.patience:
            if not self.warned:
                self._warn(share, trainer.current_epoch)
            self.warned = True
            trainer.should_stop = trainer.should_stop or self.stop

    @rank_zero_only
    def _warn(self, share: float, epoch: int) -> None:
        advice = "the search stops" if self.stop else "callbacks.collapse.stop=true ends such a search"
        log.warning(
            "The search may be collapsing: %.0f %% of a cell's operations are skips after %d epochs; %s.",
            100 * share,
            epoch + 1,
            advice,
        )

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs, "warned": self.warned}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epochs, self.warned = state_dict["epochs"], state_dict["warned"]


def skip_share(genotypes: Iterable[Genotype]) -> float:
    """Return the share of skips among operations other than `none`, for the cell with the largest share.

    >>> cell = Cell([("skip_connect", 0, 1), ("none", 0, 2), ("nor_conv_3x3", 1, 2)], inputs=1, output=[2])
    >>> skip_share([Genotype("nasbench201", {"cell": cell})])
    0.5
    """
    return max(_share(cell) for genotype in genotypes for _, cell in genotype)


def _share(cell: Cell) -> float:
    ops = [edge.op for edge in cell.edges if edge.op != NONE]
    return ops.count(SKIP) / len(ops) if ops else 0.0


class ExpectedTime(pl.Callback):
    """Prints the expected time of an epoch and of the run, from the first steps.

    Evaluation is not included; searches with more work in later epochs take longer.

    Args:
        steps: the number of measured steps.
        warmup: the number of steps before them, in which devices and compilers warm up.
        from_seconds: minimum expected time for a line.

    >>> callback = ExpectedTime(steps=50, from_seconds=600)  # for runs of ten minutes and more
    >>> callback.warmup + callback.steps  # the step after which it prints the line
    53
    """

    @checked
    def __init__(
        self, steps: PositiveInt = 20, warmup: PositiveInt = 3, from_seconds: NonNegativeFloat = 60.0
    ) -> None:
        self.steps, self.warmup, self.from_seconds = steps, warmup, from_seconds
        self._count, self._start = 0, 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._count = 0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._count += 1
        if self._count == self.warmup:
            self._start = time.monotonic()
        if self._count == self.warmup + self.steps:
            self._tell(trainer, batch_idx, (time.monotonic() - self._start) / self.steps)

    def _tell(self, trainer: pl.Trainer, batch_idx: int, step: float) -> None:
        epochs, batches = trainer.max_epochs, trainer.num_training_batches
        if epochs is None or epochs < 0 or batches == float("inf"):
            return
        left = (epochs - trainer.current_epoch) * batches - batch_idx - 1
        if left * step >= self.from_seconds and trainer.is_global_zero:
            line = f"about {duration(batches * step)} an epoch, {duration(left * step)} to go"
            bar = trainer.progress_bar_callback
            (print if bar is None else bar.print)(line)
