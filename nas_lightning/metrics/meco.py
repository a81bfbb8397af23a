"""MeCo: how independent the channels of the feature maps are (Jiang et al. 2023, NeurIPS)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes import Needs, Passes


@checked
@dataclass(frozen=True)
class Meco(Metric):
    """Σ_l mean_i λ_min(P(z_l,i)), P the correlation of a map's channels over its positions.

    l goes over the convolutions, each once; the paper has one image i, and the mean over several agrees
    better with itself. With fewer positions than channels P is singular, and the map adds nothing.

    Args:
        images: i, of the batch.

    >>> import torch
    >>> from torch import nn
    >>> layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()
    >>> network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> batch = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> 0 < Meco(images=2)(network, batch).item() < 2  # of two convolutions, each below 1
    True
    """

    images: PositiveInt = 4
    needs: ClassVar[Needs] = Needs.OUTPUTS

    def compute(self, passes: Passes) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for layer, output in passes.outputs:
            if isinstance(layer, nn.Conv2d):
                total += least_correlation(output[: self.images]).cpu()
        return total


def least_correlation(maps: Tensor) -> Tensor:
    """(m, c, h, w) → the mean over m of λ_min of the correlation of the channels; 0 where one is constant.

    >>> least_correlation(torch.tensor([1.0, 1, -1, -1, 1, -1, 1, -1]).reshape(1, 2, 2, 2))
    tensor(1., dtype=torch.float64)
    """
    rows = maps.flatten(2).double()  # (m, c, positions)
    if rows.shape[2] <= rows.shape[1]:  # the mean takes one dimension
        return rows.new_zeros(())
    rows = rows - rows.mean(dim=2, keepdim=True)
    norms = rows.norm(dim=2, keepdim=True)
    rows = rows / norms.where(norms > 0, 1.0)
    values = torch.linalg.eigvalsh(rows @ rows.transpose(1, 2))  # (m, c)
    return values[:, 0].clamp(min=0).mean()
