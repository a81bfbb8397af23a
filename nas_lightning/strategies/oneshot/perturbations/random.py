"""SmoothDARTS with random smoothing (Chen & Hsieh 2020, arXiv:2002.05283, section 4.1).

    min_w L_train(w, A + Δ),   Δ ~ U[−ε, ε]                                                  (equation 5)

trains the supernet for a neighbourhood of the architecture, so that its loss changes less when the genotype
is derived. ε grows linearly over the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from nas_lightning.checks import NonNegativeFloat, PositiveFloat, checked
from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Weights
from nas_lightning.strategies.oneshot.parts import Parts, Sampler, WeightPerturbation
from nas_lightning.strategies.oneshot.values import Epoch


@checked
@dataclass(frozen=True)
class RandomNoise(WeightPerturbation):
    """Uniform noise.

    Args:
        epsilon: ε in the last epoch.
        epsilon_start: and in the first.

    >>> RandomNoise(epsilon=0.3, epsilon_start=0.0).radius(Epoch(1, of=3))
    0.15
    """

    epsilon: PositiveFloat = 0.3
    epsilon_start: NonNegativeFloat = 0.03

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if parts.sampler.varies:
            reason = "because a sampled path has no neighbourhood that steps compute"
            name = type(parts.sampler).__name__
            raise InputError(f"expected a sampler of all operations, {reason}", got=name, where="sampler")

    def apply(
        self,
        weights: Weights,
        noise: Weights,
        epoch: Epoch,
        sampler: Sampler,
        slope: Callable[[Weights], Weights],
    ) -> Weights:
        epsilon = self.radius(epoch)
        return {name: project(w + epsilon * (2 * noise[name] - 1), sampler) for name, w in weights.items()}

    def radius(self, epoch: Epoch) -> float:
        """ε in an epoch."""
        return epoch.between(self.epsilon_start, self.epsilon)


def project(weights: Tensor, sampler: Sampler) -> Tensor:
    """Weights in [0, 1], of rows that sum to one where the sampler's do: (edges, ops)."""
    inside = weights.clamp(0.0, 1.0)
    if not sampler.shares:
        return inside
    total = inside.sum(dim=-1, keepdim=True)
    return inside.where(total > 0, 1.0) / total.where(total > 0, float(weights.shape[-1]))
