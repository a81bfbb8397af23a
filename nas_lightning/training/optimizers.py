"""Optimizers, learning-rate schedules, and averages of weights."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytorch_lightning as pl
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from nas_lightning.data import ExternalData, ImageData
from nas_lightning.errors import InputError, near_match
from nas_lightning.validation import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Share,
    above,
    at_most,
    checked,
)

if TYPE_CHECKING:
    from timm.utils import ModelEmaV3


# Optimizers have timm's names; timm builds those that torch does not have. Schedules are stepped once per
# epoch with the number of the next one, `scheduler.step(self.current_epoch + 1)`: in `lr_scheduler_step` with
# automatic optimization, and in `on_train_epoch_end` with manual optimization.

log = logging.getLogger(__name__)
Schedule = Literal["cosine", "linear", "linear_tail", "exponential"]
TAIL = 5  # last epochs of `linear_tail`

_TORCHS: Mapping[str, Callable[..., Optimizer]] = {
    "sgd": partial(SGD, nesterov=True),
    "momentum": SGD,
    "adam": Adam,
    "adamw": AdamW,
}
_WITH_MOMENTUM = ("sgd", "momentum")


def parameter_groups(
    network: nn.Module, weight_decay: float, *, decay_norms: bool = True
) -> list[nn.Parameter] | list[dict[str, Any]]:
    """Return the parameters of a network in groups by weight decay, for `build_optimizer`.

    The papers' recipes decay all parameters. Without `decay_norms`, parameters of one dimension (norms and
    biases) form a group without weight decay (arXiv:1812.01187, section 3.1).

    >>> network = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8))
    >>> groups = parameter_groups(network, 0.05, decay_norms=False)
    >>> [(group["weight_decay"], [tuple(p.shape) for p in group["params"]]) for group in groups]
    [(0.0, [(8,), (8,), (8,)]), (0.05, [(8, 3, 1, 1)])]
    """
    if decay_norms:
        return list(network.parameters())
    from timm.optim import param_groups_weight_decay

    return param_groups_weight_decay(network, weight_decay)


def lr_of_batch(lr: float, images: int, reference: int) -> float:
    """Scale `lr`, which is meant for batches of `reference` images (arXiv:1706.02677, section 2.1).

    >>> lr_of_batch(0.1, 512, reference=256)
    0.2
    """
    # η = η_ref · B / B_ref
    return lr * images / reference


def scale_lr(trainer: pl.Trainer, lr: float, reference: int | None) -> float:
    """Scale `lr` to the batch size of this trainer; `reference=None`: do not scale."""
    if reference is None:
        return lr
    data: Any = trainer.datamodule  # type: ignore[attr-defined]  # set by `fit`
    if not isinstance(data, (ImageData, ExternalData)):
        expected = "The data must be an ImageData with lr_batch, or ExternalData"
        raise InputError(expected, got=type(data).__name__, where="fit")
    images = data.batch_size * trainer.world_size * trainer.accumulate_grad_batches
    scaled = lr_of_batch(lr, images, reference)
    if trainer.is_global_zero:
        log.info(f"learning rate {lr:g} × {images}/{reference} = {scaled:.4g} ({images} images a step)")
    return scaled


@checked
def build_optimizer(
    params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
    opt: str,
    *,
    lr: PositiveFloat,
    weight_decay: NonNegativeFloat = 0.0,
    momentum: Share = 0.9,
    **options: Any,
) -> Optimizer:
    """Return the optimizer with timm's name `opt`.

    Args:
        params: parameters or groups, in a fixed order, since checkpoints store states by position.
        opt: `momentum` (SGD with momentum), `sgd` (with Nesterov momentum), `adam`, `adamw`, `lamb`, …
        lr: learning rate.
        weight_decay: added to the gradient (SGD, Adam) or decoupled (AdamW); groups may have their own.
        momentum: momentum of optimizers that have one.
        options: further arguments of the optimizer, such as `betas` and `eps`.
    """
    if opt in _TORCHS:
        if opt in _WITH_MOMENTUM:
            options["momentum"] = momentum
        return _TORCHS[opt](params, lr=lr, weight_decay=weight_decay, **options)
    from timm.optim import create_optimizer_v2, list_optimizers

    known = [str(name) for name in list_optimizers()]
    if opt not in known:
        raise InputError(f"`opt` must be an optimizer of timm ({near_match(opt, known)})", got=opt)
    # a list, since timm would exempt a module's biases and norms from weight decay
    listed: list[Any] = list(params)
    return create_optimizer_v2(
        listed, opt=opt, lr=lr, weight_decay=weight_decay, momentum=momentum, **options
    )


@checked
def build_scheduler(
    optimizer: Optimizer,
    schedule: Schedule,
    *,
    epochs: PositiveInt,
    lr_min: NonNegativeFloat = 0.0,
    lr_decay: Annotated[float, above(0), at_most(1)] | None = None,
    warmup_epochs: NonNegativeInt = 0,
    warmup_lr: NonNegativeFloat | None = None,
) -> Scheduler:
    """Return a schedule of the learning rate η(e), e = 0, …, E − 1, from the optimizer's η₀ to η_min.

    With W epochs of warm-up from η_w and t = (e − W) / (E − W):

        η(e) = η_w + (η₀ − η_w) e / W                  e < W
        η(e) = η_min + (η₀ − η_min) (1 + cos πt) / 2   cosine (arXiv:1608.03983, equation 5)
        η(e) = η_min + (η₀ − η_min) (1 − t)            linear
        η(e) = η_min + (η₀ − η_min) γ^(e − W)          exponential

    `linear_tail` is the linear schedule of public code for ImageNet (chenxin061/pdarts, shuyao95/HNAS): the
    slope of the last five epochs is smaller, and the last epoch of the warm-up has η₀.

        η(e) = η₀ (e + 1) / W                          e < W
        η(e) = η₀ (E − 5 − e) / (E − 5)                e < E − 5
        η(e) = η₀ (E − e) / (5 (E − 5))                otherwise

    Args:
        optimizer: holds η₀ of each group.
        schedule: `cosine`, `linear`, `linear_tail`, or `exponential`.
        epochs: E, with the warm-up.
        lr_min: η_min.
        lr_decay: γ of the exponential schedule.
        warmup_epochs: W.
        warmup_lr: η_w. Default: η₀ / (W + 1) of the first group.

    >>> optimizer = build_optimizer(nn.Linear(3, 1).parameters(), "momentum", lr=0.025)
    >>> scheduler = build_scheduler(optimizer, "cosine", epochs=50, lr_min=0.001)
    >>> scheduler.step(25)  # the learning rate of epoch 25
    >>> round(optimizer.param_groups[0]["lr"], 6)
    0.013
    """
    if (lr_decay is None) == (schedule == "exponential"):
        expected = "`lr_decay`, such as 0.97, and schedule=exponential need each other"
        raise InputError(expected, got=f"schedule={schedule}, lr_decay={lr_decay}")
    if schedule == "linear_tail" and (lr_min or warmup_lr is not None):
        expected = "schedule=linear_tail needs lr_min=0 and warmup_lr=null"
        raise InputError(expected, got=f"lr_min={lr_min}, warmup_lr={warmup_lr}")
    _check_warmup(schedule, epochs, warmup_epochs)
    lr = optimizer.param_groups[0]["lr"]
    if warmup_lr is None:
        warmup_lr = lr / (warmup_epochs + 1)
    for name, rate in (("lr_min", lr_min), ("warmup_lr", warmup_lr)):
        if rate > lr:
            raise InputError(f"`{name}` must be at most the learning rate {lr}", got=rate)
    return Scheduler(optimizer, schedule, epochs, lr_min, warmup_epochs, warmup_lr, lr_decay)


def _check_warmup(schedule: Schedule, epochs: int, warmup_epochs: int) -> None:
    if warmup_epochs >= epochs:
        raise InputError(f"The warm-up epochs must be fewer than the {epochs} of the run", got=warmup_epochs)
    if schedule == "linear_tail" and warmup_epochs + TAIL >= epochs:
        expected = f"The run must have more than {warmup_epochs} epochs of warm-up and {TAIL} last ones"
        raise InputError(expected, got=epochs, where="schedule=linear_tail")


class Scheduler:
    """Sets the learning rate of an epoch; see `build_scheduler`.

    Args:
        optimizer: the optimizer.
        schedule: its name.
        epochs: E.
        lr_min: η_min.
        warmup_epochs: W.
        warmup_lr: η_w.
        lr_decay: γ.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: Schedule,
        epochs: int,
        lr_min: float,
        warmup_epochs: int,
        warmup_lr: float,
        lr_decay: float | None,
    ) -> None:
        self.optimizer, self.schedule, self.lr_decay = optimizer, schedule, lr_decay
        base = [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
        self._settings: dict[str, Any] = {  # timm's names
            "base_values": base,
            "t_initial": epochs - warmup_epochs,
            "lr_min": lr_min,
            "warmup_t": warmup_epochs,
            "warmup_lr_init": warmup_lr,
        }
        if schedule == "linear_tail":
            self.step(0)
        else:
            self._set([warmup_lr] * len(base) if warmup_epochs else base)

    def step(self, epoch: int) -> None:
        """Set the learning rates of an epoch."""
        self._set([self._rate(epoch, lr) for lr in self._settings["base_values"]])

    def follow(self, epochs: int) -> None:
        """Change the number of epochs."""
        warmup = self._settings["warmup_t"]
        _check_warmup(self.schedule, epochs, warmup)
        self._settings["t_initial"] = epochs - warmup

    def _rate(self, epoch: int, lr: float) -> float:
        _, length, lr_min, warmup, warmup_lr = self._settings.values()
        if self.schedule == "linear_tail":
            return lr * linear_tail(epoch, warmup + length, warmup)
        if epoch < warmup:
            return warmup_lr + epoch * ((lr - warmup_lr) / warmup)
        t = min(epoch - warmup, length)
        if self.lr_decay is not None:
            share = self.lr_decay**t
        else:
            share = (1 + math.cos(math.pi * t / length)) / 2 if self.schedule == "cosine" else 1 - t / length
        return lr_min + (lr - lr_min) * share

    def _set(self, rates: Iterable[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:
        """Return the settings of the schedule."""
        return dict(self._settings)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the settings of `state_dict`."""
        self._settings = {name: state[name] for name in self._settings}


def linear_tail(epoch: int, epochs: int, warmup: int) -> float:
    """Return η(e) / η₀ of the schedule `linear_tail`; see `build_scheduler`.

    >>> [round(linear_tail(epoch, epochs=10, warmup=2), 2) for epoch in range(10)]
    [0.5, 1.0, 0.6, 0.4, 0.2, 0.2, 0.16, 0.12, 0.08, 0.04]
    """
    if epoch < warmup:
        return (epoch + 1) / warmup
    line = epochs - TAIL
    return (line - epoch) / line if epoch < line else max(epochs - epoch, 0) / (TAIL * line)


def build_average(network: nn.Module, decay: float) -> ModelEmaV3:
    """Return an averaged copy, w̄ ← d w̄ + (1 − d) w after each step, also of batch norm statistics."""
    from timm.utils import ModelEmaV3

    average = ModelEmaV3(network, decay=decay).requires_grad_(False)  # otherwise DDP waits for its gradients
    return average.train()  # Lightning warns of modules in eval mode
