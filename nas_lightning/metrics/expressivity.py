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

    >>> import torch
    >>> from torch import nn
    >>> layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()
    >>> network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> batch = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> 0 < Expressivity()(network, batch).item() < 4 * 2.08  # of each block at most log 8
    True
    """

    needs: ClassVar[Needs] = Needs.FEATURES

    def compute(self, passes: Passes) -> Tensor:
        return passes.entropies.sum()
