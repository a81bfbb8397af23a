"""Metrics of every sample's own gradient, where others have the batch's (Y. Shu's thesis, 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes.curvature import check_twice
from nas_lightning.metrics.passes.diagonal import row_norms
from nas_lightning.metrics.passes.kernel import rowwise_kernel
from nas_lightning.metrics.passes.shared import Needs, Passes


@dataclass(frozen=True)
class SampleGradNorm(Metric):
    """√(m⁻¹ Σ_x ‖∇_θ L_x‖²), whose square NASI puts in place of the kernel's trace (6.6); all at once.

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


@dataclass(frozen=True)
class SampleGrasp(Metric):
    """|m⁻¹ Σ_x θᵀ H_x g_x| over all parameters θ, as equation 7.3 has it: H_x and g_x of a sample's own loss.

    `Grasp` has the batch's in their place, as the public code has. Two backward passes a sample.

    >>> from nas_lightning.metrics import Grasp
    >>> from torch import nn
    >>> network = nn.Linear(2, 2, bias=False)
    >>> _ = nn.init.eye_(network.weight)
    >>> both = [(torch.eye(2), torch.tensor([0, 1])), (torch.eye(2), torch.tensor([0, 0]))]
    >>> [round(metric(network, batch).item(), 4) for metric in (Grasp(), SampleGrasp()) for batch in both]
    [0.0529, 0.0454, 0.1058, 0.0909]
    """

    needs: ClassVar[Needs] = Needs.HESSIAN

    def compute(self, passes: Passes) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for place in range(len(passes.x)):
            some = slice(place, place + 1)
            loss = passes.loss_of(passes.logits[some], passes.labels[some])
            g = torch.autograd.grad(loss, passes.parameters, create_graph=True, materialize_grads=True)
            square = torch.stack([(one**2).sum() for one in g]).sum()
            check_twice(square)
            # H g = ½ ∇‖g‖²
            products = torch.autograd.grad(
                square / 2, passes.parameters, retain_graph=True, materialize_grads=True
            )
            pairs = zip(passes.parameters, products, strict=True)
            total += sum((p.detach().double() * hg.double()).sum().cpu() for p, hg in pairs)
        return (total / len(passes.x)).abs()
