"""The first-order architecture step (Liu et al. 2019, arXiv:1806.09055, section 2.3).

    min_β L_val(w*(β), β)   subject to   w*(β) = arg min_w L_train(w, β)

is followed by alternating a step of β on validation images with a step of w on training images.
"""

from __future__ import annotations

from nas_lightning.strategies.oneshot.parts import ArchStep, Search
from nas_lightning.strategies.oneshot.values import SearchBatch
from nas_lightning.training.gradients import Gradients, constant, gradients


class FirstOrder(ArchStep):
    """∇_β [L_val(w, β) + R(β)], the weights held where they are.

    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies import OneShot
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    >>> OneShot(space, supernet, arch_step=FirstOrder()).label
    'Darts'
    """

    def gradients(self, search: Search, batch: SearchBatch) -> Gradients:
        with constant(search.weight_list):
            loss = search.loss("valid", batch["valid"], search.relax())
            return gradients(search.add_penalties(loss), search.arch_list)
