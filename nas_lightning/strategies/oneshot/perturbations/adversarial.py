"""SmoothDARTS with adversarial training (Chen & Hsieh 2020, arXiv:2002.05283, section 4.2).

    min_w max_{‖Δ‖_∞ ≤ ε} L_train(w, A + Δ)                                                  (equation 6)

where the maximum is approached by projected gradient ascent from a random start:

    Δ ← clip(Δ + η sign ∇_A L_train(w, A + Δ), −ε, ε),   η = 2ε/steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.spaces.supernet import Weights
from nas_lightning.strategies.oneshot.parts import Sampler
from nas_lightning.strategies.oneshot.perturbations.random import RandomNoise, project
from nas_lightning.strategies.oneshot.values import Epoch


@checked
@dataclass(frozen=True)
class Adversarial(RandomNoise):
    """The worst of the neighbourhood, at `steps` more passes a step.

    Args:
        epsilon: ε in the last epoch.
        epsilon_start: and in the first.
        steps: of the ascent.

    >>> import torch
    >>> from nas_lightning.strategies.oneshot.samplers.sigmoid import Sigmoid
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
