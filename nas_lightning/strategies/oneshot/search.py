"""What parts may ask of the search that they are parts of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from nas_lightning.objectives.inherited import Batch
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.values import Noise, RelaxedWeights, SearchBatch
from nas_lightning.training.gradients import Gradients


class TrainedSupernet(Protocol):
    """A supernet and its weights."""

    supernet: Supernet
    weight_list: list[nn.Parameter]


class Search(TrainedSupernet, Protocol):
    """A one-shot search, as its architecture steps see it."""

    arch_list: list[nn.Parameter]

    def draw(self) -> Noise: ...
    def relax(self, noise: Noise | None = None) -> RelaxedWeights: ...
    def loss(self, side: str, batch: Batch, relaxed: RelaxedWeights) -> Tensor: ...
    def cross_entropy(self, batch: Batch, relaxed: RelaxedWeights) -> tuple[Tensor, Tensor]: ...
    def add_penalties(self, loss: Tensor) -> Tensor: ...
    def arch_gradients(self, batch: SearchBatch) -> Gradients: ...
    def arch_descend(self) -> None: ...
    def weight_step(self, batches: Sequence[SearchBatch]) -> None: ...
    def descend(self) -> None: ...
    def virtual_step(self) -> Any: ...
