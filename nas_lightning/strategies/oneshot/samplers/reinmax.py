"""ReinMax' weights: one sampled operation, with a second-order gradient (Liu et al. 2023, arXiv:2304.08612).

With D one-hot from π₀ = softmax(β), the estimator of ∂E[f(D)]/∂β is (algorithm 2)

    π₁ = (D + softmax(β/τ))/2,   ∇ = 2 J(π₁)ᵀ ∂f/∂D − ½ J(π₀)ᵀ ∂f/∂D,   J(π) = diag(π) − π πᵀ,

which is Heun's method where the straight-through estimator is Euler's: exact for quadratic f at τ = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from nas_lightning.checks import at_least, checked
from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group
from nas_lightning.strategies.oneshot.parts import Parts, Sampler
from nas_lightning.strategies.oneshot.relaxations import gumbel, one_hot
from nas_lightning.strategies.oneshot.values import Epoch


@checked
@dataclass(frozen=True)
class ReinMax(Sampler):
    """A one-hot sample.

    The weights' step computes its path; the architecture's computes everything, which ∂f/∂D takes.

    Args:
        tau: τ, at which the paper recommends 1 or more.

    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> half = torch.full((1, 2), 0.5)
    >>> ReinMax().weights(torch.tensor([[-1.0, 1.0]]), [half], Epoch(0, of=2), group)
    tensor([[0., 1.]])
    """

    tau: Annotated[float, at_least(1)] = 1.0

    noises: ClassVar[int] = 1
    varies: ClassVar[bool] = True
    sparse: ClassVar[bool] = False
    softmax: ClassVar[bool] = True

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if any(group.draw != 1 for group in space.groups.values()):
            expected = "expected a space that draws one candidate a row, for which ReinMax is defined"
            raise InputError(expected, got=space.name, where="space")

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return reinmax(beta, noise[0], self.tau)

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        return torch.softmax(beta, dim=-1)


def reinmax(beta: Tensor, noise: Tensor, tau: float) -> Tensor:
    """D forward, 2 π₁ − ½ π₀ backward: (edges, ops)."""
    sample = one_hot(beta.detach() + gumbel(noise))
    between = (sample + torch.softmax(beta.detach() / tau, dim=-1)) / 2
    logits = between.clamp_min(torch.finfo(between.dtype).tiny).log() - beta.detach()  # π₁ as a softmax of β
    soft = 2 * torch.softmax(logits + beta, dim=-1) - torch.softmax(beta, dim=-1) / 2
    return sample + (soft - soft.detach())
