"""The single-level step: one risk for both levels (Li et al. 2021, arXiv:2004.07802, section 2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from nas_lightning.strategies.oneshot.parts import ArchStep, Search
from nas_lightning.strategies.oneshot.values import SearchBatch
from nas_lightning.training.gradients import Gradients, accumulate, gradients


class SingleLevel(ArchStep):
    """Descend L_train(w, β) + R(β) for weights and architecture in one pass.

    Give it all training images: `search_data.train_fraction=1`.

    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies import OneShot
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    >>> OneShot(space, supernet, arch_step=SingleLevel()).label
    'Softmax + SingleLevel'
    """

    validates: ClassVar[bool] = False

    def gradients(self, search: Search, batch: SearchBatch) -> Gradients:
        loss = search.loss("train", batch["train"], search.relax())
        return gradients(search.add_penalties(loss), [*search.arch_list, *search.weight_list])

    def step(self, search: Search, batches: Sequence[SearchBatch]) -> None:
        for batch in batches:
            grads = search.arch_gradients(batch)
            accumulate([*search.arch_list, *search.weight_list], grads, 1 / len(batches))
        search.arch_descend()
        search.descend()
