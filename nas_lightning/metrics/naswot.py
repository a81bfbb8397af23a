"""How differently a network's rectifiers see the samples of a batch (NASWOT, arXiv:2006.04647)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes.shared import Needs, Passes


@dataclass(frozen=True)
class Naswot(Metric):
    """ln |K|, K_ij = number of rectified units that agree on samples i and j (Mellor et al. 2021).

    K is summed over all rectifications, each counted once even where several layers read its result. The
    paper has ReLU. Units of others agree where both samples lie in the same piece (LeakyReLU, PReLU, ReLU6,
    Hardswish, …), or on the same side of 0, where a smooth gate opens (GELU, SiLU, Mish).

    >>> network = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> batch = torch.tensor([[1.0, 2.0], [-1.0, -2.0]]), torch.tensor([0, 1])
    >>> _ = torch.nn.init.zeros_(network[0].bias)
    >>> round(Naswot()(network, batch).item(), 4)  # no unit agrees on x and −x: ln |diag(4, 4)|
    2.7726
    """

    needs: ClassVar[Needs] = Needs.RELU_CODES

    def compute(self, passes: Passes) -> Tensor:
        return torch.linalg.slogdet(passes.relu_kernel).logabsdet
