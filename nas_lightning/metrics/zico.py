"""ZiCo: how large gradients are beside what they differ by from batch to batch (arXiv:2301.11300)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from nas_lightning.checks import at_least, checked
from nas_lightning.errors import InputError
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes import Passes
from nas_lightning.metrics.passes.initialise import LAYERS
from nas_lightning.metrics.passes.outputs import logits_of


@checked
@dataclass(frozen=True)
class Zico(Metric):
    """Σ_l log Σ_{θ in l} E|∇_θ L| / √Var|∇_θ L| (Li et al. 2023).

    Mean and variance are over the parts that the batch is cut into, l over the weights of convolutions and
    linear layers; weights whose gradients are all equal, such as zero, take no part.

    Args:
        parts: of the batch; as in the public code, 2.

    >>> import torch
    >>> from torch import nn
    >>> layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()
    >>> network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> batch = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> bool(torch.isfinite(Zico()(network, batch)))
    True
    """

    parts: Annotated[int, at_least(2)] = 2

    def compute(self, passes: Passes) -> Tensor:
        network, m = passes.network, len(passes.x)
        weights = [module.weight for module in network.modules() if isinstance(module, LAYERS)]
        weights = [weight for weight in weights if weight.requires_grad]
        if m < 2 * self.parts or not weights:
            raise InputError(f"expected weights, and {2 * self.parts} samples for {self.parts} parts", got=m)
        found = []
        for x, y in zip(passes.x.detach().chunk(self.parts), passes.labels.chunk(self.parts), strict=True):
            loss = passes.loss_of(logits_of(network(x)), y)
            found.append(torch.autograd.grad(loss, weights, materialize_grads=True))
        return signal_to_noise([torch.stack(layer) for layer in zip(*found, strict=True)])


def signal_to_noise(layers: list[Tensor]) -> Tensor:
    """Σ_l log Σ mean/deviation of the absolute gradients, each (parts, …); a layer without any adds nothing.

    >>> signal_to_noise([torch.tensor([[1.0, 2.0, 0.0], [-3.0, 4.0, 0.0]])]).exp().round()  # 2/1 + 3/1
    tensor(5., dtype=torch.float64)
    """
    total = torch.zeros((), dtype=torch.float64)
    for gradients in layers:
        sizes = gradients.abs().double()
        deviation = sizes.std(dim=0, correction=0)
        varies = deviation > 0
        if bool(varies.any()):
            total += (sizes.mean(dim=0)[varies] / deviation[varies]).sum().log().cpu()
    return total
