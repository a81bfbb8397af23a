"""Optimisers, learning-rate schedules, running averages, built by timm; a schedule is stepped once an epoch.

>>> import torch
>>> optimizer = build_optimizer([torch.nn.Parameter(torch.zeros(3))], "momentum", lr=0.025, weight_decay=3e-4)
>>> scheduler = build_scheduler(optimizer, "cosine", epochs=50, lr_min=0.001)
>>> scheduler.step(25)  # the learning rate of epoch 25, the 26th
>>> round(optimizer.param_groups[0]["lr"], 6)
0.013

timm's schedulers are not torch's: they are told the epoch. With automatic optimisation a module passes it in
`lr_scheduler_step`, with manual optimisation in `on_train_epoch_end`, both times as
`scheduler.step(self.current_epoch + 1)`: the rate that is set is the next epoch's. Lightning puts their state
into its checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from timm.optim import create_optimizer_v2, list_optimizers, param_groups_weight_decay
from timm.scheduler import create_scheduler_v2
from timm.scheduler.scheduler import Scheduler
from timm.utils import ModelEmaV3
from torch import nn
from torch.optim import Optimizer

from nas_lightning.checks import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Share, checked
from nas_lightning.errors import InputError, near_match

Schedule = Literal["cosine", "linear"]

# timm's names; its polynomial of degree one is a straight line
_TIMM_SCHEDULES = {"cosine": "cosine", "linear": "poly"}


def parameter_groups(
    network: nn.Module, weight_decay: float, *, decay_norms: bool = True
) -> list[nn.Parameter] | list[dict[str, Any]]:
    """The parameters of a network for `build_optimizer`, in groups by what decays.

    The papers' recipes decay all parameters alike: one group. Without `decay_norms`, norms, biases and what
    else has a single dimension are a group of their own that does not (arXiv:1812.01187, section 3.1).

    >>> network = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8))
    >>> groups = parameter_groups(network, 0.05, decay_norms=False)
    >>> [(group["weight_decay"], [tuple(p.shape) for p in group["params"]]) for group in groups]
    [(0.0, [(8,), (8,), (8,)]), (0.05, [(8, 3, 1, 1)])]
    """
    return list(network.parameters()) if decay_norms else param_groups_weight_decay(network, weight_decay)


def lr_of_batch(lr: float, images: int, reference: int) -> float:
    """The rate of steps of so many images; `lr` is meant for `reference` (arXiv:1706.02677, section 2.1).

    >>> lr_of_batch(0.1, 512, reference=256)
    0.2
    """
    # η = η_ref · B / B_ref
    return lr * images / reference


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
    """The optimiser that timm calls `opt`, over one group of parameters that all decay alike or over several.

    Args:
        params: the parameters, in the order in which checkpoints keep the optimiser's state, or groups.
        opt: `momentum` (SGD with momentum), `sgd` (with Nesterov's), `adam`, `adamw`, `lamb`, …
        lr: the learning rate.
        weight_decay: as the optimiser understands it: added to the gradient (SGD, Adam) or decoupled (AdamW);
            groups with one of their own keep it.
        momentum: for optimisers that have one; the others do not look at it.
        options: what else the optimiser takes, such as `betas` and `eps`.

    """
    known = [str(name) for name in list_optimizers()]
    if opt not in known:
        raise InputError(f"expected an optimiser of timm ({near_match(opt, known)})", got=opt)
    # a list, because timm would exempt a module's biases and norms from weight decay, which the papers do not
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
    warmup_epochs: NonNegativeInt = 0,
    warmup_lr: NonNegativeFloat | None = None,
) -> Scheduler:
    """The learning rate η(e) of epoch e = 0, …, E − 1, from the optimiser's η₀ to η_min without restarts.

    With W epochs of warm-up from η_w and t = (e − W) / (E − W), the share of the way behind epoch e:

        η(e) = η_w + (η₀ − η_w) e / W                  e < W
        η(e) = η_min + (η₀ − η_min) (1 + cos πt) / 2   cosine (arXiv:1608.03983, equation 5)
        η(e) = η_min + (η₀ − η_min) (1 − t)            linear

    Args:
        optimizer: holds η₀; each of its groups keeps its own.
        schedule: `cosine` or `linear`.
        epochs: E, the warm-up's included.
        lr_min: η_min, which would be the rate of epoch E.
        warmup_epochs: W.
        warmup_lr: η_w; None: η₀ / (W + 1) of the first group, which makes the W + 1 first rates equal steps.

    """
    if warmup_epochs >= epochs:
        raise InputError(f"expected fewer warm-up epochs than the {epochs} of the run", got=warmup_epochs)
    lr = optimizer.param_groups[0]["lr"]
    if warmup_lr is None:
        warmup_lr = lr / (warmup_epochs + 1)
    for name, rate in (("lr_min", lr_min), ("warmup_lr", warmup_lr)):
        if rate > lr:
            raise InputError(f"expected {name} of at most the learning rate {lr}", got=rate)
    scheduler, _ = create_scheduler_v2(
        optimizer,
        _TIMM_SCHEDULES[schedule],
        num_epochs=epochs - warmup_epochs,
        decay_rate=1.0,  # the degree of the polynomial
        min_lr=lr_min,
        warmup_lr=warmup_lr,
        warmup_epochs=warmup_epochs,
        warmup_prefix=True,
    )
    return scheduler


def build_average(network: nn.Module, decay: float) -> ModelEmaV3:
    """A copy that follows: w̄ ← d w̄ + (1 − d) w after each step, batch-norm statistics too."""
    average = ModelEmaV3(network, decay=decay).requires_grad_(False)  # or DDP would wait for its gradients
    return average.train()  # Lightning warns of modules in eval mode; it switches all before an evaluation
