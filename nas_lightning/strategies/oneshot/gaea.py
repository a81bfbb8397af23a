"""GAEA: geometry-aware exponentiated gradient (Li et al. 2021, arXiv:2004.07802).

The architecture parameters are the weights themselves, a point of the simplex for every edge, and move by

    α ← α · exp(−η ∇_α L) / Z                                                  (algorithm 1)

which keeps them on the simplex and favours sparse ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.bilevel import Bilevel
from nas_lightning.strategies.oneshot.weight_sharing import Relaxed, SearchBatch
from nas_lightning.training.gradients import accumulate, gradients


class Gaea(Bilevel):
    """GAEA on the supernet of DARTS.

    Args:
        space: the search space.
        supernet: its supernet.
        single_level: descend L_train for weights and architecture in one pass, as empirical risk minimisation
            (section 2.1), instead of L_val for the architecture. Give it all training images then:
            `search_data.train_fraction=1`.
        arch_lr: η.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> gaea = Gaea(space, space.supernet(in_channels=1, num_classes=2, channels=2, cells=1))
    >>> gaea.relax().weights["cell"][0].tolist() == [gaea.arch["cell"][0, 0]] * 5
    True
    """

    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        *,
        single_level: bool = False,
        arch_lr: float = 0.1,
        **bilevel: Any,
    ) -> None:
        if "arch_betas" in bilevel:
            raise InputError("expected no arch_betas, for gradients without moments", where="strategy")
        super().__init__(space, supernet, arch_lr=arch_lr, arch_weight_decay=0.0, **bilevel)
        self.single_level = single_level

    def initial_parameters(self) -> dict[str, Tensor]:
        """The middle of the simplex."""
        groups = self.space.groups.items()
        return {name: torch.full(group.shape, 1 / group.shape[1]) for name, group in groups}

    def relax(self) -> Relaxed:
        return Relaxed(dict(self.arch.items()))

    def scores(self) -> Mapping[str, Tensor]:
        return {name: alpha.detach() for name, alpha in self.arch.items()}

    def step(self, batches: Sequence[SearchBatch]) -> None:
        if not self.single_level or self.current_epoch < self.warmup_epochs:
            return super().step(batches)
        for batch in batches:
            loss = self.loss("train", batch["train"], self.relax())
            grads = gradients(loss, [*self.arch_list, *self.weight_list])
            accumulate([*self.arch_list, *self.weight_list], grads, 1 / len(batches))
        self.arch_descend()
        self.descend()

    def arch_optimizer(self) -> Optimizer:
        return ExponentiatedGradient(self.arch_list, lr=self.arch_lr)


class ExponentiatedGradient(Optimizer):
    """α ← α · exp(−η ∇) / Z for parameters whose rows lie on the simplex."""

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
