"""The logits that training differentiates, and the parameters that they depend on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nas_lightning.tasks.multi_class import MULTI_CLASS

if TYPE_CHECKING:
    from nas_lightning.spaces.network import Network

Logits = Callable[["Network", Tensor], tuple[Tensor, Tensor | None]]


def training_logits(network: Network, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """The logits of the network and of its auxiliary head, where it has one."""
    return (network(x), None) if network.auxiliary is None else network.forward_auxiliary(x)


def training_loss(
    logits: Tensor,
    auxiliary: Tensor | None,
    target: Tensor,
    weight: float,
    smoothing: float = 0.0,
    loss_of: Callable[[Tensor, Tensor, float], Tensor] = MULTI_CLASS.loss,
) -> Tensor:
    """The loss of the network and, with a weight, that of its auxiliary head.

    >>> logits, target = torch.zeros(2, 4), torch.tensor([0, 3])
    >>> round(training_loss(logits, logits, target, weight=0.5).item(), 4)  # 1.5 ln 4
    2.0794
    """
    # L = L(f(x), y) + w · L(f_aux(x), y)
    loss = loss_of(logits, target, smoothing)
    if auxiliary is None:
        return loss
    return loss + weight * loss_of(auxiliary, target, smoothing)


def freeze_unused(network: Network, image: tuple[int, int, int]) -> None:
    """Ask for no gradient of parameters that no logit depends on, for which several processes would wait.

    A cell of NAS-Bench-201 may have operations whose result is not used. What is learnt stays the same.
    """
    shadow = copy.deepcopy(network).to("meta").train()
    logits, auxiliary = training_logits(shadow, torch.empty(2, *image, device="meta"))
    (logits.sum() if auxiliary is None else logits.sum() + auxiliary.sum()).backward()
    for parameter, seen in zip(network.parameters(), shadow.parameters(), strict=True):
        if seen.grad is None:
            parameter.requires_grad_(False)
