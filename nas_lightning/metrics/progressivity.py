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

    >>> import torch
    >>> from torch import nn
    >>> layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()
    >>> network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> batch = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> bool(torch.isfinite(Progressivity()(network, batch)))
    True
    """

    needs: ClassVar[Needs] = Needs.FEATURES

    def compute(self, passes: Passes) -> Tensor:
        s = passes.entropies
        return s.diff().min() if len(s) > 1 else s[0]
