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


# A training that has diverged ends there, and the last checkpoint stays one of finite weights.

LOSS = "train_loss"


class DivergenceGuard(pl.Callback):
    """Ends a run, with one line, whose loss or weights are no longer finite.

    Weights are looked at after the last batch of an epoch, before anybody derives something from them, and
    before each checkpoint, which is not written then; the loss that the epoch logs at its end.

    Args:
        monitor: the loss, by the name that it is logged as.

    >>> module = pl.LightningModule()
    >>> module.layer = nn.Linear(1, 1)
    >>> _ = module.layer.bias.data.fill_(float("nan"))
    >>> DivergenceGuard().on_save_checkpoint(pl.Trainer(accelerator="cpu", logger=False), module, {})
    Traceback (most recent call last):
        ...
    nas_lightning.errors.DivergenceError: expected finite weights: lower the learning rate, or ...
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
        """Raise for a name that no epoch has logged; not all searches have the usual one."""
        names = sorted(trainer.callback_metrics)
        if self._ended and self.monitor not in (LOSS, *names):
            expected = f"expected the name of a metric ({near_match(self.monitor, names)})"
            raise InputError(expected, got=self.monitor, where="callbacks.divergence.monitor")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        value = trainer.callback_metrics.get(self.monitor)
        self._ended = True
        if value is not None and not bool(torch.isfinite(value).all()):
            raise _divergence(trainer, f"a finite {self.monitor}", float(value))

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        _check_weights(trainer, pl_module)


def infinite_parameter(module: nn.Module) -> str | None:
    """The first parameter that has a value which is not finite.

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
        raise _divergence(trainer, "finite weights", f"nan or inf in {name}")


def _divergence(trainer: pl.Trainer, expected: str, got: object) -> DivergenceError:
    where = f"epoch {trainer.current_epoch}, step {trainer.global_step}"
    remedy = "lower the learning rate, or clip gradients"
    return DivergenceError(f"expected {expected}: {remedy}", got=got, where=where)


# Whether a batch fits into the device's memory, said before training starts and not hours later.

_MB, _GB = 1024**2, 1024**3


class MemoryGuard(pl.Callback):
    """Estimates what a training step of `Retrain` keeps, and refuses a batch that cannot fit.

    The estimate is a lower bound: what autograd keeps, weights, optimizer and running average, without what
    libraries and the display need.

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
        except Exception:  # a network of somebody's own decides by values, which shapes alone do not have
            return
        check_fits(memory_of_batch, data.batch_size, free, str(device))


def step_memory(module: Retrain, images: tuple[int, ...], precision: str) -> Memory:
    """What a step of that module on (b, c, h, w) images needs at least."""
    chosen = module.hparams
    copies = optimizer_copies(
        lambda parameters: build_optimizer(parameters, chosen["opt"], lr=0.1, momentum=chosen["momentum"])
    )
    half = torch.bfloat16 if precision.endswith("-mixed") else None
    average = 0 if module.average is None else 1
    return training_memory(module.network, training_logits, images, copies=copies + average, dtype=half)


def check_fits(memory_of_batch: Any, batch: int, free: int | None, device: str) -> None:
    """Say what a batch takes, or raise where there is less: with the largest part of it that fits."""
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
        f"expected at most {_gb(free)}, which is free on {device}; {batch} images a step need at least "
        f"{_gb(memory.total)}; {fix}",
        where="dataset.batch_size",
    )


def _gb(size: int) -> str:
    """Two digits that count.

    >>> _gb(9_500_000), _gb(1_800_000_000), _gb(24 * 1024**3)
    ('9.1 MB', '1.7 GB', '24 GB')
    """
    number, unit = (size / _MB, "MB") if size < 1000 * _MB else (size / _GB, "GB")
    return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"


@rank_zero_only
def _say(line: str) -> None:
    print(line, flush=True)


# A warning when a search collapses to skip connections, DARTS' best-known failure.
#
# Skips let gradients flow and win while the other operations are still untrained: DARTS+ (Liang et al. 2019,
# arXiv:1909.06035) and P-DARTS (Chen et al. 2019, arXiv:1904.12760) allow two of the
# eight edges of a normal cell, and DARTS+ stops the search there.

log = logging.getLogger(__name__)


class CollapseWarning(pl.Callback):
    """Logs `skip_share` after every epoch and warns, once, when a cell consists of too many skips.

    `skip_share` is the share of skips among the operations of a cell other than `none`, in the cell where it
    is largest. Published cells stay below one half (DARTS' first: 3 of 8), which is the default. The rule of
    DARTS+ is `threshold=0.25, patience=1, stop=True`. The warning is a line of this module's log.

    Args:
        threshold: the share from which a cell counts as collapsed.
        patience: epochs in a row that it takes.
        stop: end the search, instead of going on after the warning.

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
        if not strategy.scores():  # whole architectures are compared; none of their operations takes over
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
    """The share of skips among the operations that compute something, in the cell where it is largest.

    >>> cell = Cell([("skip_connect", 0, 1), ("none", 0, 2), ("nor_conv_3x3", 1, 2)], inputs=1, output=[2])
    >>> skip_share([Genotype("nasbench201", {"cell": cell})])
    0.5
    """
    return max(_share(cell) for genotype in genotypes for _, cell in genotype)


def _share(cell: Cell) -> float:
    ops = [edge.op for edge in cell.edges if edge.op != NONE]
    return ops.count(SKIP) / len(ops) if ops else 0.0


# How long a run is going to take, as soon as its first steps tell.


class ExpectedTime(pl.Callback):
    """Says once what an epoch and the rest of the run take at the pace of the first steps.

    Runs of less than `from_seconds` get no line. Evaluation is not counted; searches whose later epochs do
    more than the first take longer.

    Args:
        steps: how many are measured.
        warmup: how many are left out before them, in which devices and compilers get ready.
        from_seconds: the length of a run that is worth a line.

    >>> callback = ExpectedTime(steps=50, from_seconds=600)  # runs of ten minutes and more
    >>> callback.warmup + callback.steps  # the step after which it says how long they take
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
