"""The second-order gradient of DARTS (Liu et al. 2019, arXiv:1806.09055, equations 7 and 8).

With w' the weights after one virtual step of SGD on the training loss,

    w' = w − ξ d(w, β),    d = m·v + c(∇_w L_train(w, β)) + γ w,

(momentum m, its buffer v, clipping c, weight decay γ), the gradient for the architecture parameters is

    ∇_β L_val(w', β) − ξ ∇²_{βw} L_train(w, β) u,    u = c′ᵀ ∇_{w'} L_val(w', β),

where c′ is the derivative of clipping, the identity where the gradient is short enough. Nesterov momentum has
the step m·d + c(∇_w L_train) + γ w instead of d, and so 1 + m times the u. The product with the
second derivatives is a central difference,

    (∇_β L_train(w⁺, β) − ∇_β L_train(w⁻, β)) / (2ε),    w^± = w ± ε u,    ε = 0.01/‖u‖.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nas_lightning.training.gradients import Gradients, constant, gradients

Loss = Callable[[], Tensor]


class VirtualStep(NamedTuple):
    """The optimizer's settings that w' depends on.

    Args:
        lr: ξ, the learning rate of the weights.
        momentum: of their SGD.
        weight_decay: of the weights.
        clip: the largest norm of their gradient.
        buffers: of the momentum, one a weight; None before the first step.
        nesterov: whether the momentum is Nesterov's.
    """

    lr: float
    momentum: float
    weight_decay: float
    clip: float
    buffers: Sequence[Tensor | None]
    """The momentum buffers of the weights, None before their first step."""
    nesterov: bool = False


def unrolled_gradients(
    train_loss: Loss,
    valid_loss: Loss,
    weights: Sequence[nn.Parameter],
    arch: Sequence[nn.Parameter],
    step: VirtualStep,
    scale: float = 0.01,
) -> Gradients:
    """Return ∇_β of L_val(w'(β), β); the weights are left unchanged.

    Args:
        train_loss: evaluates L_train at the current values of `weights` and `arch`.
        valid_loss: the same for L_val.
        weights: w.
        arch: β.
        step: how w' follows from w.
        scale: ε·‖u‖ of the central difference.
    """
    saved = [weight.detach().clone() for weight in weights]
    try:
        slopes = gradients(train_loss(), weights)
        _take(weights, saved, slopes, step)
        both = gradients(valid_loss(), [*arch, *weights])
        direct, outer = both[: len(arch)], both[len(arch) :]
        direction = _through_clipping(outer, slopes, step.clip)
        epsilon = scale / _norm(direction).clamp_min(torch.finfo(saved[0].dtype).tiny)
        with constant(weights):
            _shift(weights, saved, direction, epsilon)
            above = gradients(train_loss(), arch)
            _shift(weights, saved, direction, -epsilon)
            below = gradients(train_loss(), arch)
    finally:
        _restore(weights, saved)
    implicit = [_difference(a, b, epsilon) for a, b in zip(above, below, strict=True)]
    lr = step.lr * (1 + step.momentum) if step.nesterov else step.lr
    return [_minus(d, i, lr) for d, i in zip(direct, implicit, strict=True)]


@torch.no_grad()
def _take(
    weights: Sequence[nn.Parameter], saved: Sequence[Tensor], slopes: Gradients, step: VirtualStep
) -> None:
    """Set w to w'. Weights that the loss does not depend on stay, as in the optimizer."""
    shrink = _clip_factor(slopes, step.clip)
    for weight, old, slope, buffer in zip(weights, saved, slopes, step.buffers, strict=True):
        if slope is not None:
            decayed = shrink * slope + step.weight_decay * old
            d = decayed if buffer is None else decayed + step.momentum * buffer
            weight.copy_(old - step.lr * (decayed + step.momentum * d if step.nesterov else d))


def _clip_factor(slopes: Gradients, clip: float) -> Tensor:
    """Return min(1, clip/‖g‖), as torch computes it."""
    return (clip / (_norm(slopes) + 1e-6)).clamp_max(1.0)


def _through_clipping(outer: Gradients, slopes: Gradients, clip: float) -> Gradients:
    """Return c′ᵀ v: v if nothing is clipped, else (clip/‖g‖)(v − g gᵀv/‖g‖²)."""
    pairs = [(v, g) for v, g in zip(outer, slopes, strict=True) if v is not None and g is not None]
    factor = _clip_factor(slopes, clip)
    along = sum(((v * g).sum() for v, g in pairs), torch.zeros(())) / _norm(slopes) ** 2
    along = torch.where(factor < 1, along, torch.zeros_like(along))
    return [
        None if v is None or g is None else factor * (v - along * g)
        for v, g in zip(outer, slopes, strict=True)
    ]


@torch.no_grad()
def _shift(
    weights: Sequence[nn.Parameter], saved: Sequence[Tensor], direction: Gradients, epsilon: Tensor
) -> None:
    for weight, old, along in zip(weights, saved, direction, strict=True):
        weight.copy_(old if along is None else old + epsilon * along)


@torch.no_grad()
def _restore(weights: Sequence[nn.Parameter], saved: Sequence[Tensor]) -> None:
    for weight, old in zip(weights, saved, strict=True):
        weight.copy_(old)


def _norm(tensors: Gradients) -> Tensor:
    return torch.stack([t.detach().square().sum() for t in tensors if t is not None]).sum().sqrt()


def _difference(above: Tensor | None, below: Tensor | None, epsilon: Tensor) -> Tensor | None:
    return None if above is None or below is None else (above - below) / (2 * epsilon)


def _minus(direct: Tensor | None, implicit: Tensor | None, lr: float) -> Tensor | None:
    if implicit is None:
        return direct
    return -lr * implicit if direct is None else direct - lr * implicit
