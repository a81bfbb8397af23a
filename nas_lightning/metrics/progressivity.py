"""Whether features grow richer from block to block: AZ-NAS' progressivity (arXiv:2403.19232)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes import Needs, Passes


@dataclass(frozen=True)
class Progressivity(Metric):
    """min_l (s_l − s_{l−1}), s_l the expressivity of block l (Lee & Ham 2024).

    With one block it is the block's own expressivity.
    """

    needs: ClassVar[Needs] = Needs.FEATURES

    def compute(self, passes: Passes) -> Tensor:
        s = passes.entropies
        return s.diff().min() if len(s) > 1 else s[0]
