"""The second-order architecture step (Liu et al. 2019, arXiv:1806.09055, equations 7 and 8)."""

from __future__ import annotations

import torch
from torch import Tensor

from nas_lightning.strategies.oneshot.arch_steps.unrolled import unrolled_gradients
from nas_lightning.strategies.oneshot.parts import ArchStep, Search
from nas_lightning.strategies.oneshot.values import SearchBatch
from nas_lightning.training.gradients import Gradients


class SecondOrder(ArchStep):
    """∇_β [L_val(w'(β), β) + R(β)] through a virtual step of the weights, at over three times the cost.

    Where batches are accumulated, through a step on each. All four passes take the same random numbers:
    they are differences of one function.

    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies import OneShot
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    >>> OneShot(space, supernet, arch_step=SecondOrder()).label
    'Darts'
    """

    def gradients(self, search: Search, batch: SearchBatch) -> Gradients:
        noise = search.draw()

        def train_loss() -> Tensor:
            return search.cross_entropy(batch["train"], search.relax(noise))[0]

        def valid_loss() -> Tensor:
            return search.add_penalties(search.loss("valid", batch["valid"], search.relax(noise)))

        step = search.virtual_step()
        # autocast keeps copies of the weights of before, and the difference is lost in bfloat16
        with torch.autocast(batch["train"][0].device.type, enabled=False):
            return unrolled_gradients(train_loss, valid_loss, search.weight_list, search.arch_list, step)
