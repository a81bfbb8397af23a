"""Loss and gradient variance on a plane through trained weights (Y. Shu's thesis, 2022, section 4.3.2).

    s(α, β) = E_i[f_i(w* + α w₁ + β w₂)],   g(α, β) = √Var[∇f_i(w* + α w₁ + β w₂)]

w₁, w₂ are Gaussian, each filter as long as that of w* (Li et al. 2018, arXiv:1712.09913); biases and norms,
which have no filters, stay. f_i is the loss of an image, with the running statistics of batch norms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nas_lightning.data.batches import Batch
from nas_lightning.metrics import GradNorm
from nas_lightning.metrics.passes.shared import Passes
from nas_lightning.metrics.sample_gradients import SampleGradNorm
from nas_lightning.randomness import generator


class PlanePoint(NamedTuple):
    """What there is at a point of the plane.

    Args:
        loss: s(α, β).
        deviation: g(α, β).
    """

    loss: float
    deviation: float


def filter_direction(weights: Sequence[Tensor], random: torch.Generator) -> list[Tensor]:
    """A Gaussian direction, each filter θ_j of which is as long as the weight's: d_j ‖θ_j‖/‖d_j‖.

    >>> weights = [torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.ones(2)]
    >>> [d.norm(dim=-1) for d in filter_direction(weights, torch.Generator().manual_seed(0))]
    [tensor([5.0000, 2.0000]), tensor(0.)]
    """
    found = []
    for weight in weights:
        d = torch.randn(weight.shape, generator=random, dtype=weight.dtype)
        if weight.dim() < 2:
            found.append(torch.zeros_like(d))
            continue
        lengths = [
            part.detach().flatten(1).norm(dim=1).view(-1, *[1] * (d.dim() - 1)) for part in (weight, d)
        ]
        found.append(d * lengths[0] / lengths[1])
    return found


def judge_point(
    network: nn.Module, directions: Sequence[Sequence[Tensor]], place: Sequence[float], batch: Batch
) -> PlanePoint:
    """s and g at w* + Σ_k place_k w_k; the network is left as it was.

    g² = m⁻¹ Σ_i ‖∇f_i‖² − ‖∇f‖².
    """
    with _moved(network, directions, place), Passes(network, batch, batch_statistics=False) as passes:
        loss = float(passes.loss.detach())
        square = SampleGradNorm().compute(passes) ** 2 - float(GradNorm(per_layer=False).compute(passes)) ** 2
        return PlanePoint(loss, max(square, 0.0) ** 0.5)


@contextmanager
def _moved(
    network: nn.Module, directions: Sequence[Sequence[Tensor]], place: Sequence[float]
) -> Iterator[None]:
    weights = list(network.parameters())
    before = [weight.detach().clone() for weight in weights]
    try:
        with torch.no_grad():
            for distance, direction in zip(place, directions, strict=True):
                for weight, d in zip(weights, direction, strict=True):
                    weight.add_(d, alpha=distance)
        yield
    finally:
        with torch.no_grad():
            for weight, value in zip(weights, before, strict=True):
                weight.copy_(value)


@dataclass(frozen=True)
class PlaneWork:
    """What is done to each point, in whatever process.

    Args:
        network: with its trained weights.
        batch: images and labels.
        seed: of the directions.
    """

    network: nn.Module
    batch: Batch
    seed: int

    def __call__(self, name: str, place: tuple[int, float, float]) -> tuple[str, PlanePoint]:
        """The point by its name; planes of other numbers have other directions."""
        plane, *distances = place
        weights = [weight.detach() for weight in self.network.parameters()]
        directions = [filter_direction(weights, generator(self.seed, plane, axis)) for axis in range(2)]
        return name, judge_point(self.network, directions, distances, self.batch)
