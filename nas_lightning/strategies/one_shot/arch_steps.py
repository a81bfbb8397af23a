"""Architecture steps and the optimizers of architecture parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nas_lightning.strategies.one_shot.parts import ArchOptimizer, ArchStep, Search, SearchBatch
from nas_lightning.strategies.one_shot.unrolled import unrolled_gradients
from nas_lightning.training.gradients import Gradients, accumulate, constant, gradients
from nas_lightning.training.optimizers import build_optimizer
from nas_lightning.validation import NonNegativeFloat, Share, checked

# Adam for architecture parameters, as DARTS has it (Liu et al. 2019, arXiv:1806.09055, appendix A.1.1).


@checked
@dataclass(frozen=True)
class Adam(ArchOptimizer):
    """Adam.

    Args:
        betas: coefficients of the running averages.
        weight_decay: weight decay (L2 penalty) of the architecture parameters.

    >>> import torch
    >>> optimizer = Adam(weight_decay=0.1).build([nn.Parameter(torch.zeros(2))], [], lr=0.01)
    >>> optimizer.param_groups[0]["weight_decay"]
    0.1
    """

    betas: tuple[Share, Share] = (0.5, 0.999)
    weight_decay: NonNegativeFloat = 1e-3

    default_lr: ClassVar[float] = 3e-4

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", (self.betas[0], self.betas[1]))  # a yaml has a list

    def build(self, decaying: list[nn.Parameter], others: list[nn.Parameter], lr: float) -> Optimizer:
        optimizer = build_optimizer(decaying, "adam", lr=lr, betas=self.betas, weight_decay=self.weight_decay)
        if others:
            optimizer.add_param_group({"params": others, "weight_decay": 0.0})
        return optimizer


# GAEA's exponentiated gradient (Li et al. 2021, arXiv:2004.07802).
#
#     α ← α · exp(−η ∇_α L) / Z                                                  (algorithm 1)
#
# keeps parameters on the simplex and favors sparse ones.


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


class ExponentiatedDescent(Optimizer):
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
    """Return α exp(−η ∇)/Z row by row, computed in logarithms to avoid overflow: (edges, ops)."""
    return torch.softmax(alpha.log() - lr * gradient, dim=-1)


# The first-order architecture step (Liu et al. 2019, arXiv:1806.09055, section 2.3).
#
#     min_β L_val(w*(β), β)   subject to   w*(β) = arg min_w L_train(w, β)
#
# is approximated by alternating a step of β on validation images with a step of w on training images.


class FirstOrder(ArchStep):
    """∇_β [L_val(w, β) + R(β)] at the current weights.

    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies import OneShot
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    >>> OneShot(space, supernet, arch_step=FirstOrder()).label
    'Softmax'
    """

    def gradients(self, search: Search, batch: SearchBatch) -> Gradients:
        with constant(search.weight_list):
            relaxed = search.relax()
            loss = search.loss("valid", batch["valid"], relaxed)
            return gradients(search.add_penalties(loss, relaxed), search.arch_list)


# The second-order architecture step (Liu et al. 2019, arXiv:1806.09055, equations 7 and 8).


class SecondOrder(ArchStep):
    """∇_β [L_val(w'(β), β) + R(β)] through a virtual step of the weights, at more than three times the cost.

    Accumulated batches have a virtual step each. All four passes use the same random numbers, because their
    difference is that of one function.

    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies import OneShot
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    >>> OneShot(space, supernet, arch_step=SecondOrder()).label
    'Softmax + SecondOrder'
    """

    def gradients(self, search: Search, batch: SearchBatch) -> Gradients:
        noise = search.draw()

        def train_loss() -> Tensor:
            return search.loss_and_logits(batch["train"], search.relax(noise))[0]

        def valid_loss() -> Tensor:
            relaxed = search.relax(noise)
            return search.add_penalties(search.loss("valid", batch["valid"], relaxed), relaxed)

        step = search.virtual_step()
        # autocast caches copies of the old weights, and bfloat16 would lose the difference
        with torch.autocast(batch["train"][0].device.type, enabled=False):
            return unrolled_gradients(train_loss, valid_loss, search.weight_list, search.arch_list, step)


# The single-level step: one loss for both levels (Li et al. 2021, arXiv:2004.07802, section 2.1).


class SingleLevel(ArchStep):
    """Descend L_train(w, β) + R(β) for weights and architecture in one pass.

    Use all images as training images: `search_data.train_fraction=1`.

    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies import OneShot
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    >>> OneShot(space, supernet, arch_step=SingleLevel()).label
    'Softmax + SingleLevel'
    """

    validates: ClassVar[bool] = False

    def gradients(self, search: Search, batch: SearchBatch) -> Gradients:
        relaxed = search.relax()
        loss = search.loss("train", batch["train"], relaxed)
        return gradients(search.add_penalties(loss, relaxed), [*search.arch_list, *search.weight_list])

    def step(self, search: Search, batches: Sequence[SearchBatch]) -> None:
        for batch in batches:
            grads = search.arch_gradients(batch)
            accumulate([*search.arch_list, *search.weight_list], grads, 1 / len(batches))
        search.arch_descend()
        search.descend()
