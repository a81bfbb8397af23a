"""DARTS: differentiable architecture search (Liu et al. 2019, arXiv:1806.09055).

The weights of an edge are the softmax of its parameters (equation 2); the architecture step is first or
second order (section 2.3); the genotype keeps the strongest operations (section 2.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.bilevel import Bilevel
from nas_lightning.strategies.oneshot.unrolled import VirtualStep, unrolled_gradients
from nas_lightning.strategies.oneshot.weight_sharing import Relaxed, SearchBatch
from nas_lightning.training.gradients import Gradients


class Darts(Bilevel):
    """DARTS on any space of edges and operations.

    Args:
        space: the search space.
        supernet: its supernet.
        order: 1 differentiates L_val(w, β), 2 differentiates L_val(w'(β), β) through a step of w; where
            batches are accumulated, through a step on each.
        **bilevel: see `Bilevel`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> darts = Darts(space, space.supernet(in_channels=1, num_classes=2, channels=2, cells=1), order=2)
    >>> len(darts.derive())
    1
    """

    def __init__(self, space: SearchSpace, supernet: Supernet, *, order: int = 1, **bilevel: Any) -> None:
        super().__init__(space, supernet, **bilevel)
        if order not in (1, 2):
            raise InputError("expected order 1 or 2", got=order, where="strategy.order")
        self.order = order

    def relax(self) -> Relaxed:
        return Relaxed({name: torch.softmax(beta, dim=-1) for name, beta in self.arch.items()})

    def scores(self) -> Mapping[str, Tensor]:
        return {name: torch.softmax(beta.detach(), dim=-1) for name, beta in self.arch.items()}

    def arch_gradients(self, batch: SearchBatch) -> Gradients:
        if self.order == 1:
            return super().arch_gradients(batch)
        optimizer = self.stepper(0).optimizer
        buffers = [optimizer.state[w].get("momentum_buffer") for w in self.weight_list]
        step = VirtualStep(
            optimizer.param_groups[0]["lr"], self.momentum, self.weight_decay, self.clip, buffers
        )
        # autocast keeps copies of the weights of before, and the difference is lost in bfloat16
        with torch.autocast(self.device.type, enabled=False):
            return unrolled_gradients(
                train_loss=lambda: self.cross_entropy(batch["train"], self.relax())[0],
                valid_loss=lambda: self.loss("valid", batch["valid"], self.relax()),
                weights=self.weight_list,
                arch=self.arch_list,
                step=step,
            )
