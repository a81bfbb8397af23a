"""Freezing of single operations (OLES, Jiang et al., NeurIPS 2023).

"Operation-Level Early Stopping for Robustifying Differentiable NAS".

Operations overfit the training images while the architecture is judged on other images, on which skips, which
have no weights, then look better. With θ_o the weights of one operation of one cell,

    GM_o = (1/M) Σ_{m=1}^{M} cos(∇_{θ_o} L_train, ∇_{θ_o} L_val)

over M steps tells whether training the operation helps on other images. Once it is below a threshold, θ_o is
frozen until the end of the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from nas_lightning.errors import InputError
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.one_shot.parts import FreezeState, Freezing
from nas_lightning.training.gradients import Gradients
from nas_lightning.utils.devices import double
from nas_lightning.validation import PositiveInt, at_least, at_most, checked


@checked
@dataclass(frozen=True)
class GradientMatching(Freezing):
    """Freeze an operation once its gradients on training and validation images disagree.

    Args:
        threshold: mean cosine below which an operation is frozen.
        steps: M, the number of cosines in the mean; steps that do not compute the operation do not count.

    >>> start = FreezeState(torch.zeros(2), torch.zeros(2).long(), torch.zeros(2).bool())
    >>> GradientMatching(steps=1).update(start, torch.tensor([0.9, 0.1])).frozen
    tensor([False,  True])
    """

    threshold: Annotated[float, at_least(-1), at_most(1)] = 0.4
    steps: PositiveInt = 20

    def check_supernet(self, supernet: Supernet) -> None:
        if not supernet.backbone.operations():
            expected = "Freezing needs a space whose operations have weights"
            raise InputError(expected, got="none", where="space")

    def update(self, state: FreezeState, cosines: Tensor) -> FreezeState:
        counts = state.counts + ~cosines.isnan()
        sums = state.sums + cosines.nan_to_num()
        judged = counts >= self.steps
        fails = judged & (sums / counts.clamp_min(1) < self.threshold)
        return FreezeState(sums.where(~judged, 0.0), counts.where(~judged, 0), state.frozen | fails)


def cosine(one: Sequence[Tensor | None], two: Sequence[Tensor | None]) -> Tensor:
    """Return the cosine between two gradients for the same weights; NaN if one is zero or absent."""
    pairs = [(double(a), double(b)) for a, b in zip(one, two, strict=True) if a is not None and b is not None]
    dot, first, second = (
        torch.stack([(a * b).sum() for a, b in of]).sum() if of else torch.zeros(())
        for of in (pairs, [(a, a) for a, _ in pairs], [(b, b) for _, b in pairs])
    )
    return (dot / (first * second).sqrt()).float()


class OperationWeights(nn.Module):
    """The weights of a supernet's operations and their `FreezeState`, which is part of a checkpoint.

    Args:
        supernet: the supernet.
    """

    sums: Tensor
    counts: Tensor
    frozen: Tensor

    def __init__(self, supernet: Supernet) -> None:
        super().__init__()
        self.of_each = [list(op.parameters()) for op in supernet.backbone.operations()]
        for name, dtype in {"sums": torch.float32, "counts": torch.long, "frozen": torch.bool}.items():
            self.register_buffer(name, torch.zeros(len(self.of_each), dtype=dtype))

    @property
    def state(self) -> FreezeState:
        """The state of each operation: (ops,) each."""
        return FreezeState(self.sums, self.counts, self.frozen)

    @state.setter
    def state(self, state: FreezeState) -> None:
        self.sums, self.counts, self.frozen = state

    def cosines(self, weights: Sequence[nn.Parameter], trained: Gradients, validated: Gradients) -> Tensor:
        """Return the cosine between two gradients for the weights of each operation: (ops,)."""
        place = {id(weight): index for index, weight in enumerate(weights)}
        places = [[place[id(weight)] for weight in op] for op in self.of_each]
        found = [cosine([trained[i] for i in op], [validated[i] for i in op]) for op in places]
        return torch.stack([value.to(self.sums) for value in found])

    def frozen_weights(self) -> list[nn.Parameter]:
        """Return the weights of all frozen operations."""
        pairs = zip(self.of_each, self.frozen.tolist(), strict=True)
        return [weight for op, frozen in pairs if frozen for weight in op]
