"""Perturbations of the architecture weights while the supernet is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Weights
from nas_lightning.strategies.one_shot.parts import Epoch, Parts, Sampler, WeightPerturbation
from nas_lightning.validation import NonNegativeFloat, PositiveFloat, PositiveInt, checked

# SmoothDARTS with random smoothing (Chen & Hsieh 2020, arXiv:2002.05283, section 4.1).
#
#     min_w L_train(w, A + Δ),   Δ ~ U[−ε, ε]                                                  (equation 5)
#
# trains the supernet in a neighborhood of the architecture weights, so that the derivation of the genotype
# changes its loss less. ε grows linearly over the run.


@checked
@dataclass(frozen=True)
class RandomNoise(WeightPerturbation):
    """Uniform noise on the architecture weights.

    Args:
        epsilon: ε in the last epoch.
        epsilon_start: ε in the first epoch.

    >>> RandomNoise(epsilon=0.3, epsilon_start=0.0).radius(Epoch(1, of=3))
    0.15
    """

    epsilon: PositiveFloat = 0.3
    epsilon_start: NonNegativeFloat = 0.03

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if parts.sampler.varies:
            reason = "because a step computes only the sampled path, not its neighborhood"
            name = type(parts.sampler).__name__
            raise InputError(
                f"The sampler must be one of all operations, {reason}", got=name, where="sampler"
            )

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
        """Return ε in an epoch."""
        return epoch.between(self.epsilon_start, self.epsilon)


def project(weights: Tensor, sampler: Sampler) -> Tensor:
    """Project weights to [0, 1], and rows to sum one if the sampler's do: (edges, ops)."""
    inside = weights.clamp(0.0, 1.0)
    if not sampler.shares:
        return inside
    total = inside.sum(dim=-1, keepdim=True)
    return inside.where(total > 0, 1.0) / total.where(total > 0, float(weights.shape[-1]))


# SmoothDARTS with adversarial training (Chen & Hsieh 2020, arXiv:2002.05283, section 4.2).
#
#     min_w max_{‖Δ‖_∞ ≤ ε} L_train(w, A + Δ)                                                  (equation 6)
#
# where the maximum is approximated by projected gradient ascent from a random start:
#
#     Δ ← clip(Δ + η sign ∇_A L_train(w, A + Δ), −ε, ε),   η = 2ε/steps.


@checked
@dataclass(frozen=True)
class Adversarial(RandomNoise):
    """The worst weights of the neighborhood, at `steps` more passes per step.

    Args:
        epsilon: ε in the last epoch.
        epsilon_start: ε in the first epoch.
        steps: number of ascent steps.

    >>> import torch
    >>> from nas_lightning.strategies.one_shot.samplers import Sigmoid
    >>> weights, middle = {"cell": torch.tensor([[0.5, 0.5]])}, {"cell": torch.tensor([[0.5, 0.5]])}
    >>> slope = lambda moved: {"cell": torch.tensor([[1.0, -1.0]])}
    >>> Adversarial(epsilon=0.25).apply(weights, middle, Epoch(1, of=2), Sigmoid(), slope)["cell"]
    tensor([[0.7500, 0.2500]])
    """

    steps: PositiveInt = 7

    def apply(
        self,
        weights: Weights,
        noise: Weights,
        epoch: Epoch,
        sampler: Sampler,
        slope: Callable[[Weights], Weights],
    ) -> Weights:
        epsilon, moved = self.radius(epoch), super().apply(weights, noise, epoch, sampler, slope)
        for _ in range(self.steps):
            slopes = slope(moved)
            away = {name: m + 2 * epsilon / self.steps * slopes[name].sign() for name, m in moved.items()}
            near = {n: w + (away[n] - w).clamp(-epsilon, epsilon) for n, w in weights.items()}
            moved = {name: project(matrix, sampler) for name, matrix in near.items()}
        return moved
