"""Limits in searches by gradients: an expected cost whose multiplier rises until the limit is kept.

    max_{λ ≥ 0} min_β  L(β) + Σ_k λ_k (E_β c_k / limit_k − 1)
    λ_k ← max(0, λ_k + ρ (c_k(A_β) / limit_k − 1))

as LightNAS ascends on the multiplier of a latency (Luo et al. 2022, arXiv:2208.14446). A_β is the
architecture that β stands for: what is to be within the limit is that, and not an expectation.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from nas_lightning.spaces.base import SearchSpace

RATE = 0.02
"""ρ: a limit that is exceeded by half weighs as much as the loss after a hundred steps."""


class LimitPressure(nn.Module):
    """The multipliers λ of a space's limits, which are part of a checkpoint.

    Args:
        space: whose limits they are; without any there is nothing to weigh.

    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.spaces.limited.bounds import Bounds
    >>> from nas_lightning.spaces.limited.space import limit_space
    >>> space = NasBench201()
    >>> bounds = Bounds(space, {"convs": 2.0}, lambda g: {"convs": sum("conv" in op for op in g.ops)})
    >>> pressure = LimitPressure(limit_space(space, bounds))
    >>> pressure.ascend({"cell": torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0]]).repeat(6, 1)})  # 6 of 2
    >>> pressure.multipliers
    tensor([0.0400])
    """

    multipliers: Tensor

    def __init__(self, space: SearchSpace) -> None:
        super().__init__()
        self.space = space
        self.register_buffer("multipliers", torch.zeros(len(space.limited)), persistent=bool(space.limited))

    def term(self, probabilities: Mapping[str, Tensor]) -> Tensor:
        """Σ λ_k (E c_k / limit_k − 1)."""
        if not self.space.limited:
            return torch.zeros((), device=self.multipliers.device)
        excess = torch.stack([*self.space.expected_excess(probabilities).values()])
        return (self.multipliers * excess).sum()

    @torch.no_grad()
    def ascend(self, scores: Mapping[str, Tensor]) -> None:
        """A step of λ, by what the scores stand for."""
        if self.space.limited:
            excess = [*self.space.derived_excess(scores).values()]
            self.multipliers += RATE * torch.tensor(excess).to(self.multipliers)
            self.multipliers.clamp_min_(0.0)

    def metrics(self, scores: Mapping[str, Tensor]) -> dict[str, float | Tensor]:
        """What there is to log: how far what the scores stand for is over each limit, and λ."""
        if not self.space.limited:
            return {}
        excess = self.space.derived_excess(scores)
        weights = zip(excess, self.multipliers, strict=True)
        return {f"limits/{name}_excess": value for name, value in excess.items()} | {
            f"limits/{name}_multiplier": weight for name, weight in weights
        }
