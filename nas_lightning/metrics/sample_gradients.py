"""The mean of the samples' squared gradient norms (NASI, arXiv:2109.00817; Y. Shu's thesis, equation 6.6)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes.diagonal import row_norms
from nas_lightning.metrics.passes.kernel import rowwise_kernel
from nas_lightning.metrics.passes.shared import Passes


@dataclass(frozen=True)
class SampleGradNorm(Metric):
    """√(m⁻¹ Σ_x ‖∇_θ L_x‖²), whose square NASI puts in place of the kernel's trace; all at once, at O(m).

    >>> from torch import nn
    >>> network, batch = nn.Linear(2, 2, bias=False), (torch.eye(2), torch.tensor([0, 1]))
    >>> _ = nn.init.eye_(network.weight)
    >>> round(SampleGradNorm()(network, batch).item() ** 2, 6)  # 2 (1 + e)⁻², of (−1, 1)/(1 + e) at one input
    0.144659
    """

    def compute(self, passes: Passes) -> float:
        m = len(passes.x)
        # L is the mean of the L_x, so ∂L_x/∂z = m ∂L/∂z
        (slope,) = torch.autograd.grad(passes.loss, passes.logits, retain_graph=True)
        norms = row_norms(passes, [m * slope])
        if norms is None:
            norms = rowwise_kernel(passes.parameters, passes.logits, [m * slope]).diagonal()
        return math.sqrt(float(norms.mean()))
