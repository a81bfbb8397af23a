"""Jacobian covariance: how alike the network's slopes at the samples of a batch are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes.shared import Passes

_K = 1e-5


@dataclass(frozen=True)
class Jacov(Metric):
    """−Σ_i (ln(σ_i + k) + 1/(σ_i + k)), k = 1e-5 (Mellor et al. 2020, first version of arXiv:2006.04647).

    σ are the eigenvalues of the correlation matrix of the rows ∂(Σ_c f_c)/∂x_i of a batch's samples.

    >>> network = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> batch = torch.randn(4, 6), torch.tensor([0, 1, 0, 1])
    >>> Jacov()(network, batch).item() < -4  # what four slopes come to that have nothing in common
    True
    """

    never_positive: ClassVar[bool] = True  # ln z + 1/z is 1 or more

    def compute(self, passes: Passes) -> Tensor:
        return jacobian_score(passes.input_gradient.flatten(1).double())


def jacobian_score(rows: Tensor) -> Tensor:
    """(m, inputs) → the score; NaN where a row is constant and so correlates with nothing."""
    correlation = torch.corrcoef(rows)
    if not bool(torch.isfinite(correlation).all()):
        return rows.new_tensor(torch.nan)
    values = torch.linalg.eigvalsh(correlation).clamp(min=0) + _K
    return -(values.log() + 1 / values).sum()
