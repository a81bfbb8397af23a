"""GAEA's exponentiated gradient (Li et al. 2021, arXiv:2004.07802).

    α ← α · exp(−η ∇_α L) / Z                                                  (algorithm 1)

keeps parameters on the simplex and favours sparse ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nas_lightning.strategies.oneshot.parts import ArchOptimizer
from nas_lightning.training.eager import EagerOptimizer


class ExponentiatedGradient(ArchOptimizer):
    """Mirror descent, for parameters whose rows lie on the simplex.

    >>> alpha = nn.Parameter(torch.tensor([[0.5, 0.5]]))
    >>> optimizer = ExponentiatedGradient().build([alpha], [], lr=1.0)
    >>> alpha.grad = -torch.tensor([[1.0, 3.0]]).log()
    >>> _ = optimizer.step()
    >>> alpha.data  # (1, 3) / 4
    tensor([[0.2500, 0.7500]])
    """

    default_lr: ClassVar[float] = 0.1
    on_simplex: ClassVar[bool] = True

    def build(self, decaying: list[nn.Parameter], others: list[nn.Parameter], lr: float) -> Optimizer:
        return ExponentiatedDescent([*decaying, *others], lr=lr)


class ExponentiatedDescent(EagerOptimizer):
    """α ← α · exp(−η ∇) / Z for parameters whose rows lie on the simplex.

    Args:
        params: whose rows lie on the simplex.
        lr: η.
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for alpha in group["params"]:
                if alpha.grad is not None:
                    alpha.copy_(exponentiated_gradient(alpha, alpha.grad, group["lr"]))
        return loss


def exponentiated_gradient(alpha: Tensor, gradient: Tensor, lr: float) -> Tensor:
    """α exp(−η ∇)/Z row by row, in logarithms, so that no step is too long to be computed: (edges, ops)."""
    return torch.softmax(alpha.log() - lr * gradient, dim=-1)
