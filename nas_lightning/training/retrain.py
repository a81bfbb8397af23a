"""Training a derived network from scratch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelPruning
from torch import Tensor, nn
from torch.optim import Optimizer

from nas_lightning.data.batches import entries_of
from nas_lightning.errors import InputError
from nas_lightning.metrics.recording import logits_of
from nas_lightning.spaces.fixed import check_callable
from nas_lightning.spaces.network import DerivedNetwork
from nas_lightning.tasks import MULTI_CLASS, MultiClass, Task, check_classes, task_of
from nas_lightning.training.epoch_means import EpochMeans, evaluation_total
from nas_lightning.training.optimizers import (
    Schedule,
    Scheduler,
    build_average,
    build_optimizer,
    build_scheduler,
    parameter_groups,
    scale_lr,
)
from nas_lightning.training.run_length import epochs_of
from nas_lightning.validation import (
    Between0And1,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Share,
    above,
    at_most,
    checked,
)

# The forward pass of training.

Logits = Callable[[Any, Tensor], tuple[Tensor, Tensor | None]]


def choose_logits(network: nn.Module) -> Logits:
    """Return the function (network, x) → logits, logits of auxiliary heads or None."""
    return derived_logits if isinstance(network, DerivedNetwork) else given_logits


def training_logits(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the logits of the network and of its auxiliary heads, None if it has none."""
    return choose_logits(network)(network, x)


def derived_logits(network: DerivedNetwork, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the logits of a derived network and of its auxiliary head."""
    return (network(x), None) if network.auxiliary is None else network.forward_auxiliary(x)


def given_logits(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the logits of any network, and those of auxiliary heads (outputs named `aux…`) concatenated.

    >>> class Heads(nn.Module):
    ...     def forward(self, x: Tensor) -> dict[str, Tensor]:
    ...         return {"out": x, "aux_1": x + 1, "aux_2": x + 2}
    >>> [output.shape for output in given_logits(Heads(), torch.zeros(4, 3))]
    [torch.Size([4, 3]), torch.Size([8, 3])]
    """
    output = network(x)
    logits = logits_of(output)
    auxiliary = [head for head in _auxiliary_heads(output) if head.shape == logits.shape]
    return logits, torch.cat(auxiliary) if auxiliary else None


def _auxiliary_heads(output: Any) -> Iterator[Tensor]:
    for name, value in (entries_of(output) or {}).items():
        if name.startswith("aux") and isinstance(value, Tensor):
            yield value


def check_logits(logits: Tensor, images: int, num_classes: int, task: Task, *, read: bool = False) -> None:
    """Raise unless the logits have the right shape.

    With `read`, also raise for probabilities, since the loss applies a softmax.

    >>> check_logits(torch.zeros(2, 3), 2, 4, MULTI_CLASS)
    Traceback (most recent call last):
        ...
    nas_lightning.errors.InputError: Logits must have shape (2, 4), got (2, 3) (in network)
    """
    if tuple(logits.shape[:2]) != (images, num_classes) or logits.dim() != (4 if task.dense else 2):
        expected = f"Logits must have shape ({images}, {num_classes}{', h, w' * task.dense})"
        raise InputError(expected, got=tuple(logits.shape), where="network")
    if read and task.of_classes and num_classes > 1 and _are_probabilities(logits.detach().float()):
        expected = "The network must return logits: remove its last softmax"
        raise InputError(expected, got="probabilities", where="network")


def _are_probabilities(outputs: Tensor) -> bool:
    return bool((outputs >= 0).all() & ((outputs.sum(dim=1) - 1).abs() < 1e-3).all())


def training_loss(
    logits: Tensor,
    auxiliary: Tensor | None,
    target: Tensor,
    weight: float,
    smoothing: float = 0.0,
    loss_of: Callable[[Tensor, Tensor, float], Tensor] = MULTI_CLASS.loss,
) -> Tensor:
    """Return the loss of the network plus the weighted mean loss of its auxiliary heads.

    >>> logits, target = torch.zeros(2, 4), torch.tensor([0, 3])
    >>> round(training_loss(logits, logits, target, weight=0.5).item(), 4)  # 1.5 ln 4
    2.0794
    """
    # L = L(f(x), y) + w · L(f_aux(x), y)
    loss = loss_of(logits, target, smoothing)
    if auxiliary is None:
        return loss
    heads = torch.cat([target] * (len(auxiliary) // len(target)))
    return loss + weight * loss_of(auxiliary, heads, smoothing)


def check_forward(network: nn.Module, image: tuple[int, int, int], num_classes: int) -> None:
    """Raise unless the network maps images (c, h, w) to logits of these classes."""
    if isinstance(network, DerivedNetwork):
        return
    training = network.training
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            logits = logits_of(network.eval()(torch.zeros(2, *image)))
    except InputError:
        raise
    except Exception as error:  # networks raise all kinds for images of the wrong size
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        expected = f"The network fails on images of {image}: {type(error).__name__}: {line}"
        raise InputError(expected, where="network") from error
    finally:
        network.train(training)
    if tuple(logits.shape[:2]) != (2, num_classes):
        expected = f"Logits must have shape {(2, num_classes)} for two images and {num_classes} classes"
        raise InputError(expected, got=tuple(logits.shape), where="network")


def freeze_unused(network: nn.Module, image: tuple[int, int, int]) -> None:
    """Disable gradients of parameters that no logit depends on, for which several processes would wait.

    A cell of NAS-Bench-201 may have operations whose result is not used.
    """
    try:
        used = _used(copy.deepcopy(network).to("meta"), image)
    except Exception:  # a custom network that needs values
        with torch.random.fork_rng(devices=[]):
            used = _used(copy.deepcopy(network), image)
    for parameter, is_used in zip(network.parameters(), used, strict=True):
        if not is_used:
            parameter.requires_grad_(False)


def _used(shadow: nn.Module, image: tuple[int, int, int]) -> list[bool]:
    """Return whether a logit depends on each parameter."""
    device = next(iter(shadow.parameters())).device
    logits, auxiliary = training_logits(shadow.train(), torch.zeros(2, *image, device=device))
    (logits.sum() if auxiliary is None else logits.sum() + auxiliary.sum()).backward()
    return [parameter.grad is not None for parameter in shadow.parameters()]


# Mixed images: Mixup (arXiv:1710.09412) and CutMix (arXiv:1905.04899) of timm.

Mix = Callable[[Tensor, Tensor], list[Tensor]]


@checked
def build_mixing(mixup: NonNegativeFloat, cutmix: NonNegativeFloat, num_classes: int) -> Mix:
    """Return a function from images and labels to mixed images and targets (b, classes); b must be even.

    >>> mix = build_mixing(0.2, 1.0, num_classes=5)
    >>> x, target = mix(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 3]))
    >>> x.shape, target.shape
    (torch.Size([4, 3, 8, 8]), torch.Size([4, 5]))
    """
    from timm.data import Mixup

    mix = Mixup(mixup, cutmix, label_smoothing=0.0, num_classes=num_classes)  # the loss smooths labels

    def mix_batch(x: Tensor, y: Tensor) -> list[Tensor]:
        if len(x) % 2:
            raise InputError("`dataset.batch_size` must be even to mix images", got=len(x))
        return list(mix(x.clone(), y))  # timm mixes in place, and a loader may reuse the batch

    return mix_batch


# Compatibility with options and callbacks of Lightning's trainer.


def choose_norm(own: float | None, trainers: float | None) -> float | None:
    """Return the maximum norm of gradients, from the module or its trainer.

    >>> choose_norm(5.0, None), choose_norm(None, 1.0), choose_norm(None, None)
    (5.0, 1.0, None)
    """
    if own is not None and trainers not in (None, own):
        expected = f"`clip` of Retrain must be {trainers} or None"
        raise InputError(expected, got=f"Trainer(gradient_clip_val={trainers})", where="Retrain.clip")
    return trainers if own is None else own


def prepare_pruning(trainer: pl.Trainer, network: nn.Module, *, is_averaged: bool) -> None:
    """Use contiguous weights, which Lightning's `ModelPruning` needs.

    It is incompatible with a moving average, since pruning changes the order of parameters.
    """
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    if any(isinstance(callback, ModelPruning) for callback in callbacks):
        if is_averaged:
            raise InputError("`ema_decay` must be None with ModelPruning", where="Retrain.ema_decay")
        network.to(memory_format=torch.contiguous_format)


def widen(module: pl.LightningModule) -> None:
    """Convert a module to float64 before a checkpoint is loaded, if that is its trainer's precision.

    Lightning converts after loading, which rounds the restored values to float32.

    >>> module = pl.LightningModule()
    >>> widen(module)  # nothing to do without a trainer
    """
    with suppress(RuntimeError):  # of a module without a trainer
        if module.trainer.precision == "64-true":
            module.double()


# Training a derived network from scratch, as in DARTS (arXiv:1806.09055, appendix A.2.1): SGD with a cosine
# schedule, drop path (arXiv:1605.07648) with a growing rate as in NASNet (arXiv:1707.07012, appendix A.7),
# and an auxiliary head. Label smoothing (arXiv:1512.00567, section 7), warm-up, and a linear schedule are
# for ImageNet.
#
# Test data is used once, by `trainer.test` after `trainer.fit`: on the last epoch's weights, or on those of
# the best validation accuracy if a part of the training data was held out.


class Retrain(pl.LightningModule):
    """Trains and evaluates a network on batches of (images, labels).

    Logs once per epoch `train_loss` (with the auxiliary loss), `train_accuracy`, `lr`, `valid_loss`, and
    `valid_accuracy`; at the end `test_loss`, `test_accuracy`, and `test_error`. Evaluation adds
    `…_accuracy_top5` for more than five classes.

    Args:
        network: any module from images to logits, alone or among other outputs. Losses of auxiliary heads are
            added: those of derived networks, and of outputs named `aux…`.
        num_classes: number of outputs; the network's `task` states their meaning.
        opt: timm's name of the optimizer; `momentum` is SGD with momentum.
        lr: learning rate of the first epoch after the warm-up.
        lr_batch: batch size that `lr` is meant for; for other total batch sizes over devices and accumulated
            batches the rate is scaled in proportion (arXiv:1706.02677, section 2.1). Default: no scaling.
        lr_min: final learning rate.
        schedule: `cosine`, `linear`, `linear_tail`, or `exponential`, stepped once per epoch; see
            `nas_lightning.training.build_scheduler`.
        lr_decay: factor per epoch of the exponential schedule.
        warmup_epochs: epochs of rising learning rate.
        warmup_lr: initial learning rate of the warm-up. Default: lr / (warmup_epochs + 1).
        momentum: momentum of optimizers that have one.
        weight_decay: weight decay.
        decay_norms: whether norms, biases, and other parameters of one dimension decay.
        clip: maximum norm of the gradient. None: the trainer's `gradient_clip_val`.
        label_smoothing: label smoothing in training.
        mixup: α of Mixup; 0: off.
        cutmix: α of CutMix; 0: off. With both, each batch uses one of them.
        auxiliary_weight: weight of the auxiliary heads' loss.
        drop_path: final rate of drop path in derived networks, which grows linearly from 0.
        ema_decay: decay of a moving average of the weights, which is evaluated instead. Default: no average.
        compile: `torch.compile` the training pass; slow at the start, and when drop path starts.

    >>> import torch
    >>> network = torch.nn.Linear(4, 3)  # or what `SearchSpace.network` returns
    >>> module = Retrain(network, 3, opt="adamw", label_smoothing=0.1)  # for `trainer.fit(module, data)`
    >>> module(torch.zeros(2, 4)).shape, module.hparams.opt
    (torch.Size([2, 3]), 'adamw')
    """

    @checked
    def __init__(
        self,
        network: nn.Module,
        num_classes: PositiveInt,
        *,
        opt: str = "momentum",
        lr: PositiveFloat = 0.025,
        lr_batch: PositiveInt | None = None,
        lr_min: NonNegativeFloat = 0.0,
        schedule: Schedule = "cosine",
        lr_decay: Annotated[float, above(0), at_most(1)] | None = None,
        warmup_epochs: NonNegativeInt = 0,
        warmup_lr: NonNegativeFloat | None = None,
        momentum: Share = 0.9,
        weight_decay: NonNegativeFloat = 3e-4,
        decay_norms: bool = True,
        clip: PositiveFloat | None = 5.0,
        label_smoothing: Share = 0.0,
        mixup: NonNegativeFloat = 0.0,
        cutmix: NonNegativeFloat = 0.0,
        auxiliary_weight: NonNegativeFloat = 0.4,
        drop_path: Share = 0.2,
        ema_decay: Between0And1 | None = None,
        compile: bool = False,
    ) -> None:
        super().__init__()
        check_callable(network)
        self.save_hyperparameters(ignore=["network"])
        self.network = network
        self.average = None if ema_decay is None else build_average(network, ema_decay)
        self.clip, self.drop_path, self.num_classes = clip, drop_path, num_classes
        self._mix = build_mixing(mixup, cutmix, num_classes) if mixup or cutmix else None
        if self._mix is not None:
            check_classes(network, "mixed images are of")
        logits = choose_logits(network)
        self._logits: Logits = torch.compile(logits) if compile else logits
        self.task, top5 = task_of(network), num_classes > 5
        self._loss = partial(training_loss, weight=auxiliary_weight, smoothing=label_smoothing)
        self.train_scores = EpochMeans(num_classes, task=self.task)
        self.val_scores, self.test_scores = (EpochMeans(num_classes, top5, self.task) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, c, h, w) to (b, classes), with averaged weights if there are any."""
        return logits_of(self.network(x) if self.average is None else self.average(x))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        x, target = (x, y) if self._mix is None else self._mix(x, y)
        logits, auxiliary = self._logits(self.network, x)
        check_logits(logits, len(x), self.num_classes, self.task, read=batch_idx == 0)
        loss = self._loss(logits, auxiliary, target, loss_of=self.task.loss)
        self.train_scores.update(loss.detach() * len(y), logits.detach(), y, len(y))
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self._evaluate(batch, self.val_scores)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Return the logits, for callbacks."""
        return self._evaluate(batch, self.test_scores)

    def predict_step(self, batch: Tensor | tuple[Tensor, Tensor], batch_idx: int = 0) -> Tensor:
        """Return the logits of images, with or without labels."""
        return self(batch if isinstance(batch, Tensor) else batch[0])

    # metrics are logged only at the end of epochs, since each call of `log` takes Lightning .3 ms

    def on_train_epoch_end(self) -> None:
        self.train_scores.log(self, "train")

    def on_validation_epoch_start(self) -> None:
        self.val_scores.reset()

    def on_validation_epoch_end(self) -> None:
        self.val_scores.log(self, "valid")

    def on_test_epoch_start(self) -> None:
        self.test_scores.reset()

    def on_test_epoch_end(self) -> None:
        self.test_scores.log(self, "test")
        if isinstance(self.task, MultiClass):
            self.log("test_error", 1 - self.test_scores.accuracy.compute(), sync_dist=True)

    def _evaluate(self, batch: tuple[Tensor, Tensor], scores: EpochMeans) -> Tensor:
        x, y = batch
        logits = self(x)
        check_logits(logits, len(x), self.num_classes, self.task)
        total, images = evaluation_total(self.task, logits, y)
        scores.update(total, logits, y, images)
        return logits

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        widen(self)

    # a restart within an epoch does not call `on_train_epoch_start`

    def on_train_start(self) -> None:
        self.network.zero_grad()
        self._set_drop_path()

    def on_train_epoch_start(self) -> None:
        self._set_drop_path()

    def on_train_batch_start(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        if batch_idx == 0:
            self.train_scores.reset()
            rate = self.trainer.optimizers[0].param_groups[0]["lr"]
            self.log("lr", rate, on_step=False, on_epoch=True, sync_dist=True)

    def _set_drop_path(self) -> None:
        # p(e) = p · e / E
        if isinstance(self.network, DerivedNetwork):
            self.network.set_drop_path(self.drop_path * self.current_epoch / epochs_of(self.trainer))

    def configure_callbacks(self) -> list[pl.Callback]:  # called before other callbacks' setup
        prepare_pruning(self.trainer, self.network, is_averaged=self.average is not None)
        return []

    def configure_optimizers(self) -> Any:
        chosen = self.hparams
        decay = chosen["weight_decay"]
        optimizer = build_optimizer(
            parameter_groups(self.network, decay, decay_norms=chosen["decay_norms"]),
            chosen["opt"],
            lr=scale_lr(self.trainer, chosen["lr"], chosen["lr_batch"]),
            weight_decay=decay,
            momentum=chosen["momentum"],
        )
        names = ("schedule", "lr_min", "lr_decay", "warmup_epochs", "warmup_lr")
        options = {name: chosen[name] for name in names}
        scheduler = build_scheduler(optimizer, epochs=epochs_of(self.trainer), **options)
        return [optimizer], [{"scheduler": scheduler, "interval": "epoch"}]

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        if not isinstance(scheduler, Scheduler):  # of one of Lightning's callbacks
            super().lr_scheduler_step(scheduler, metric)
            return
        epochs = epochs_of(self.trainer, self.trainer.accumulate_grad_batches, self.current_epoch + 1)
        scheduler.follow(epochs)
        scheduler.step(self.current_epoch + 1)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        self.clip_gradients(optimizer, choose_norm(self.clip, gradient_clip_val), gradient_clip_algorithm)

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Callable[[], Any] | None = None
    ) -> None:
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        self.network.zero_grad()
        if self.average is not None:
            self.average.update(self.network)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Do nothing: gradients are freed after each step, not kept through the next forward pass."""
