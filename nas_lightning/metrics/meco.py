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
    """Σ_l (c_l/k_l) · mean_i λ_min(P(z_l,i)), P the correlation of k channels of a map over its positions.

    l goes over the convolutions, each once; k is all c channels (the paper's MeCo) where the map has as many
    positions, and otherwise, where P would be singular, a few (MeCo_opt) at even distances, which are as
    random as the weights are. The paper has one image i; the mean over several agrees better with itself.

    Args:
        images: i, of the batch.
        channels: k, of maps with more channels than positions.
    """

    images: PositiveInt = 4
    channels: PositiveInt = 8
    needs: ClassVar[Needs] = Needs.OUTPUTS

    def compute(self, passes: Passes) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for layer, output in passes.outputs:
            if isinstance(layer, nn.Conv2d):
                enough = output[0, 0].numel() >= output.shape[1]
                k = output.shape[1] if enough else self.channels
                total += least_correlation(output[: self.images], k).cpu()
        return total


def least_correlation(maps: Tensor, channels: int) -> Tensor:
    """(m, c, h, w) → (c/k) · mean over m of λ_min of the correlation of k channels; a constant one adds 0.

    >>> least_correlation(torch.tensor([1.0, 1, -1, -1, 1, -1, 1, -1]).reshape(1, 2, 2, 2), channels=2)
    tensor(1., dtype=torch.float64)
    """
    c = maps.shape[1]
    k = min(channels, c)
    chosen = torch.arange(k) * c // k
    rows = maps[:, chosen].flatten(2).double()  # (m, k, positions)
    rows = rows - rows.mean(dim=2, keepdim=True)
    norms = rows.norm(dim=2, keepdim=True)
    rows = rows / norms.where(norms > 0, 1.0)
    values = torch.linalg.eigvalsh(rows @ rows.transpose(1, 2))  # (m, k)
    return values[:, 0].clamp(min=0).mean() * c / k
