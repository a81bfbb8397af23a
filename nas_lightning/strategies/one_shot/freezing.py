"""OLES: operations stop learning one by one (Jiang et al., NeurIPS 2023).

"Operation-Level Early Stopping for Robustifying Differentiable NAS".

Operations overfit the training images while the architecture is judged on others, where skips, which learn
nothing, then look better. With θ_o the weights of one operation of one cell,

    GM_o = (1/M) Σ_{m=1}^{M} cos(∇_{θ_o} L_train, ∇_{θ_o} L_val)

over M steps says whether what it learns helps on other images. Where it is below a threshold, θ_o stays what
it is to the end of the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.one_shot.parts import FreezeState, Freezing
from nas_lightning.validation import PositiveInt, at_least, at_most, checked


@checked
@dataclass(frozen=True)
class GradientMatching(Freezing):
    """An operation learns no more once its gradients on both halves of the images point elsewhere.

    Args:
        threshold: of their mean cosine.
        steps: M; an operation that a step does not compute is not counted.

    >>> zeros = torch.zeros(2)
    >>> start = FreezeState(zeros, zeros.long(), zeros.bool())
    >>> GradientMatching(steps=1).update(start, torch.tensor([0.9, 0.1])).frozen
    tensor([False,  True])
    """

    threshold: Annotated[float, at_least(-1), at_most(1)] = 0.4
    steps: PositiveInt = 20

    def check_supernet(self, supernet: Supernet) -> None:
        if not supernet.backbone.operations():
            expected = "expected a space whose operations have weights of their own, which may stop to learn"
            raise InputError(expected, got="none", where="space")

    def update(self, memory: FreezeState, cosines: Tensor) -> FreezeState:
        counts = memory.counts + ~cosines.isnan()
        sums = memory.sums + cosines.nan_to_num()
        judged = counts >= self.steps
        fails = judged & (sums / counts.clamp_min(1) < self.threshold)
        return FreezeState(sums.where(~judged, 0.0), counts.where(~judged, 0), memory.frozen | fails)


def cosine(one: Sequence[Tensor | None], two: Sequence[Tensor | None]) -> Tensor:
    """The cosine between two gradients for the same weights, NaN where one is zero or absent: a scalar."""
    pairs = [
        (a.double(), b.double()) for a, b in zip(one, two, strict=True) if a is not None and b is not None
    ]
    dot, first, second = (
        torch.stack([(a * b).sum() for a, b in of]).sum() if of else torch.zeros(())
        for of in (pairs, [(a, a) for a, _ in pairs], [(b, b) for _, b in pairs])
    )
    return (dot / (first * second).sqrt()).float()
