"""How much of their channels' room features use: AZ-NAS' expressivity (arXiv:2403.19232)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
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
        return torch.stack(entropies(passes)).sum()


def entropies(passes: Passes) -> list[Tensor]:
    """s_l of every block; 0 where there is none."""
    return [spectral_entropy(output) for output in passes.features] or [torch.zeros(())]


def spectral_entropy(features: Tensor) -> Tensor:
    """(m, c, …) → the entropy of the normalised spectrum of the channels' covariance.

    >>> spectral_entropy(torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])).exp()
    tensor(2., dtype=torch.float64)
    """
    rows = features.detach().movedim(1, -1).flatten(0, -2)  # (m · positions, c)
    rows = rows - rows.mean(dim=0)
    values = torch.linalg.eigvalsh((rows.T @ rows).double()).clamp(min=0)
    shares = values / values.sum()
    return torch.special.entr(shares).sum()
