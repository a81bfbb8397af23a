"""How much of their channels' room features use: AZ-NAS' expressivity (arXiv:2403.19232)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes import Needs, Passes


@dataclass(frozen=True)
class Expressivity(Metric):
    """Σ_l s_l, s_l = −Σ_k λ̃_k log λ̃_k (Lee & Ham 2024).

    λ̃ are the eigenvalues of the covariance of the channels of block l's output over samples and positions,
    divided by their sum: s_l is log c where all directions carry the same, 0 where one carries everything.
    """

    needs: ClassVar[Needs] = Needs.FEATURES

    def compute(self, passes: Passes) -> Tensor:
        return passes.entropies.sum()
