"""Fisher saliency of the layers' output channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes.layers import CONVOLUTIONS
from nas_lightning.metrics.passes.shared import Needs, Passes


@dataclass(frozen=True)
class Fisher(Metric):
    """Σ_c Δ_c, Δ_c = (1/2m) Σ_i (Σ_hw a_ichw ∂L/∂a_ichw)² (Turner et al. 2020, arXiv:1906.04113, equation 4).

    a are the outputs of convolutions and linear layers, c their channels, L the batch's mean loss, as in
    Abdelfattah et al. (2021, arXiv:2101.08134).

    >>> network, batch = torch.nn.Linear(2, 2, bias=False), (torch.eye(2), torch.tensor([0, 1]))
    >>> _ = torch.nn.init.eye_(network.weight)
    >>> round(Fisher()(network, batch).item(), 4)  # two channels: (1/4) (1/(2 + 2e))²
    0.009
    """

    needs: ClassVar[Needs] = Needs.SALIENCY

    def compute(self, passes: Passes) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for call, gradient in passes.saliency:
            if type(call.layer) not in (*CONVOLUTIONS, nn.Linear):
                continue
            # channels first: (m, c, …); a linear layer's are last
            axes = tuple(range(2, gradient.dim())) if type(call.layer) in CONVOLUTIONS else ()
            products = call.saved_output() * gradient
            products = products.sum(dim=axes) if axes else products
            total += (products.double() ** 2).mean(dim=0).sum().cpu() / 2
        return total
