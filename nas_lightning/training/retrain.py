"""Training a derived network from scratch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

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
    checked,
)

# The logits that training differentiates, and the parameters that they depend on.

Logits = Callable[[Any, Tensor], tuple[Tensor, Tensor | None]]


def choose_logits(network: nn.Module) -> Logits:
    """What of this network is differentiated: (network, x) → logits, and those of auxiliary heads."""
    return derived_logits if isinstance(network, DerivedNetwork) else given_logits


def training_logits(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """The logits of the network and of its auxiliary heads, where it has such."""
    return choose_logits(network)(network, x)


def derived_logits(network: DerivedNetwork, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Those of a network that a search found."""
    return (network(x), None) if network.auxiliary is None else network.forward_auxiliary(x)


def given_logits(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Those of somebody's own; where its output names auxiliary heads (`aux…`), theirs below each other.

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
    """Raise unless these are the outputs that so many classes, or numbers, of so many images ask for.

    Where their numbers are read, too, those that a softmax has made are refused: the loss takes another.

    >>> check_logits(torch.zeros(2, 3), 2, 4, MULTI_CLASS)
    Traceback (most recent call last):
        ...
    nas_lightning.errors.InputError: expected logits (2, 4), got (2, 3) (in network)
    """
    if tuple(logits.shape[:2]) != (images, num_classes) or logits.dim() != (4 if task.dense else 2):
        expected = f"expected logits ({images}, {num_classes}{', h, w' * task.dense})"
        raise InputError(expected, got=tuple(logits.shape), where="network")
    if read and task.of_classes and num_classes > 1 and _are_probabilities(logits.detach().float()):
        expected = "expected logits: leave the last softmax out"
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
    """The loss of the network and, with a weight, the mean of that of its auxiliary heads.

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
    """Raise unless the network makes logits of these classes of images of (c, h, w)."""
    if isinstance(network, DerivedNetwork):
        return
    training = network.training
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            logits = logits_of(network.eval()(torch.zeros(2, *image)))
    except InputError:
        raise
    except Exception as error:  # each network has its own for images that it is not made for
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        expected = f"expected a network for images of {image}: {type(error).__name__}: {line}"
        raise InputError(expected, where="network") from error
    finally:
        network.train(training)
    if tuple(logits.shape[:2]) != (2, num_classes):
        expected = f"expected logits of shape {(2, num_classes)} for two images and {num_classes} classes"
        raise InputError(expected, got=tuple(logits.shape), where="network")


def freeze_unused(network: nn.Module, image: tuple[int, int, int]) -> None:
    """Ask for no gradient of parameters that no logit depends on, for which several processes would wait.

    A cell of NAS-Bench-201 may have operations whose result is not used. What is learned stays the same.
    """
    try:
        used = _used(copy.deepcopy(network).to("meta"), image)
    except Exception:  # a network of somebody's own decides by values, which shapes alone do not have
        with torch.random.fork_rng(devices=[]):
            used = _used(copy.deepcopy(network), image)
    for parameter, is_used in zip(network.parameters(), used, strict=True):
        if not is_used:
            parameter.requires_grad_(False)


def _used(shadow: nn.Module, image: tuple[int, int, int]) -> list[bool]:
    """Whether a logit depends on each parameter."""
    device = next(iter(shadow.parameters())).device
    logits, auxiliary = training_logits(shadow.train(), torch.zeros(2, *image, device=device))
    (logits.sum() if auxiliary is None else logits.sum() + auxiliary.sum()).backward()
    return [parameter.grad is not None for parameter in shadow.parameters()]


# Mixed images: Mixup (arXiv:1710.09412) and CutMix (arXiv:1905.04899), as timm does them.
#
# >>> import torch
# >>> mix = build_mixing(0.2, 1.0, num_classes=5)
# >>> x, target = mix(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 3]))
# >>> x.shape, target.shape
# (torch.Size([4, 3, 8, 8]), torch.Size([4, 5]))

Mix = Callable[[Tensor, Tensor], list[Tensor]]


@checked
def build_mixing(mixup: NonNegativeFloat, cutmix: NonNegativeFloat, num_classes: int) -> Mix:
    """(b, c, h, w) images and (b,) labels → mixed images and (b, classes) targets; b must be even."""
    from timm.data import Mixup  # a second to import, which only recipes that mix need

    mix = Mixup(mixup, cutmix, label_smoothing=0.0, num_classes=num_classes)  # the loss smooths labels

    def mix_batch(x: Tensor, y: Tensor) -> list[Tensor]:
        if len(x) % 2:
            raise InputError("expected an even dataset.batch_size to mix images", got=len(x))
        return list(mix(x.clone(), y))  # timm mixes in place, and the loader may hand the batch out again

    return mix_batch


# What a trainer and its callbacks ask of a training.


def choose_norm(own: float | None, trainers: float | None) -> float | None:
    """The largest norm of gradients, which the module or its trainer says.

    >>> choose_norm(5.0, None), choose_norm(None, 1.0), choose_norm(None, None)
    (5.0, 1.0, None)
    """
    if own is not None and trainers not in (None, own):
        expected = f"expected clip={trainers} or clip=None of Retrain"
        raise InputError(expected, got=f"Trainer(gradient_clip_val={trainers})", where="Retrain.clip")
    return trainers if own is None else own


def prepare_pruning(trainer: pl.Trainer, network: nn.Module, *, is_averaged: bool) -> None:
    """Lay the weights out as Lightning's `ModelPruning` reads them, where it is there: channels first.

    A running average knows parameters by their order, which pruning changes.
    """
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    if any(isinstance(callback, ModelPruning) for callback in callbacks):
        if is_averaged:
            raise InputError("expected ema_decay=None beside ModelPruning", where="Retrain.ema_decay")
        network.to(memory_format=torch.contiguous_format)


# Numbers of eight bytes that come back from a checkpoint as they were.


def widen(module: pl.LightningModule) -> None:
    """Make a module as wide as its trainer's precision, before a checkpoint is loaded into it.

    Lightning loads first and widens afterwards, which rounds what is restored to four bytes.

    >>> module = pl.LightningModule()
    >>> widen(module)  # nothing to do without a trainer
    """
    with suppress(RuntimeError):  # of a module without a trainer
        if module.trainer.precision == "64-true":
            module.double()


# Training a derived network from scratch, as DARTS (arXiv:1806.09055, appendix A.2.1) does.
#
# SGD with a cosine schedule, a path dropped ever more often (arXiv:1605.07648, as in NASNet,
# arXiv:1707.07012,
# appendix A.7), and an auxiliary head whose loss is added with a weight. Label smoothing (arXiv:1512.00567,
# section 7), warm-up and a linear schedule are for ImageNet. Mixup (arXiv:1710.09412), CutMix
# (arXiv:1905.04899), a running average of the weights and other optimizers are there for recipes of today.
#
# Nothing here looks at test data before the end: `trainer.fit`, then `trainer.test` once, on the last epoch's
# weights or, where a part of the training data was set aside, on those of the best validation accuracy.


class Retrain(pl.LightningModule):
    """Trains `network` on batches of (images, labels) and measures it.

    Logged once an epoch: `train_loss` (what is minimized, auxiliary loss included), `train_accuracy`, `lr`,
    `valid_loss`, `valid_accuracy`; at the end `test_loss`, `test_accuracy`, `test_error`. Evaluation adds
    `…_accuracy_top5` where there are more than five classes.

    Args:
        network: any from images to logits, alone, the first of several or named so; the loss of auxiliary
            heads joins in: a derived network's, or what an output names `aux…`.
        num_classes: what the network tells apart, or its outputs: its `task` says what they are for.
        opt: timm's name of the optimizer; `momentum` is SGD with momentum.
        lr: learning rate of the first epoch, or of the one after the warm-up.
        lr_batch: the number of images a step that `lr` is meant for; where all devices and accumulated steps
            together have another, the rate is in proportion (arXiv:1706.02677, section 2.1). None: as it is.
        lr_min: what it decays toward.
        schedule: how: `cosine` or `linear`, stepped once an epoch.
        warmup_epochs: epochs of rising learning rate before it decays.
        warmup_lr: where they start; None: at lr / (warmup_epochs + 1).
        momentum: of the optimizers that have one.
        weight_decay: of all parameters.
        decay_norms: whether norms, biases and other parameters of a single dimension decay, too.
        clip: largest norm of the gradient of all parameters together; None: what the trainer says.
        label_smoothing: share of the target that is spread evenly over the classes, in training.
        mixup: α of the Beta distribution that the shares of mixed images follow; 0: no images are mixed.
        cutmix: the same for images with a rectangle of another; with both, each batch has one of the two.
        auxiliary_weight: weight of the auxiliary head's loss, where the network has that head.
        drop_path: the rate that the epochs approach in equal steps from 0; networks that no search found drop
            what they were built to drop.
        ema_decay: evaluate a running average of the weights that forgets at this rate; None: the weights.
        compile: `torch.compile` the training pass; slow at the start, and where paths begin to be dropped.

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
        """(b, c, h, w) → (b, classes), with the averaged weights where they are kept."""
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
        """The logits, for callbacks."""
        return self._evaluate(batch, self.test_scores)

    def predict_step(self, batch: Tensor | tuple[Tensor, Tensor], batch_idx: int = 0) -> Tensor:
        """The logits of images, with or without labels beside them."""
        return self(batch if isinstance(batch, Tensor) else batch[0])

    # Logged at the ends of epochs only: each call to `log` costs Lightning a third of a millisecond.

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

    # A restart after some batches of an epoch, or after all, does not call `on_train_epoch_start`.

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

    def configure_callbacks(self) -> list[pl.Callback]:  # which Lightning asks for before it sets others up
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
        options = {name: chosen[name] for name in ("schedule", "lr_min", "warmup_epochs", "warmup_lr")}
        scheduler = build_scheduler(optimizer, epochs=epochs_of(self.trainer), **options)
        return [optimizer], [{"scheduler": scheduler, "interval": "epoch"}]

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        if not isinstance(scheduler, Scheduler):  # of a callback of Lightning's
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
        """Done after each step: Lightning would keep the old gradients in memory through the forward pass."""
