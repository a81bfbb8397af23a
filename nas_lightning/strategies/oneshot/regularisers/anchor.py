"""DrNAS' distance from the flat distribution (Chen et al. 2021, arXiv:2006.10355, section 2.3).

    λ Σ_edges KL(Dir(c) ‖ Dir(1)),
    KL = ln Γ(Σ c) − Σ ln Γ(c) − ln Γ(K) + Σ (c − 1)(ψ(c) − ψ(Σ c))

keeps the concentrations c of K operations near those of the uniform distribution over the simplex.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nas_lightning.checks import NonNegativeFloat, checked
from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.strategies.oneshot.parts import Parts, Regulariser
from nas_lightning.strategies.oneshot.samplers.dirichlet import Dirichlet, concentration
from nas_lightning.strategies.oneshot.values import Arch, Epoch, Groups


@checked
@dataclass(frozen=True)
class Anchor(Regulariser):
    """λ KL from the flat Dirichlet distribution, summed over the edges of all groups.

    Args:
        weight: λ.

    >>> from nas_lightning.spaces.group import Group
    >>> group = Group(((0, 1),), ("skip_connect", "nor_conv_3x3"))
    >>> flat = {"cell": torch.zeros(1, 2)}  # elu(0) + 1 = 1 is the flat distribution's concentration
    >>> bool(Anchor().term(flat, {}, Epoch(0, of=2), {"cell": group}).abs() < 1e-6)
    True
    """

    weight: NonNegativeFloat = 1e-3

    def check(self, parts: Parts, space: SearchSpace) -> None:
        if not isinstance(parts.sampler, Dirichlet):
            expected = "expected the sampler dirichlet, because the anchor is a Dirichlet distribution"
            raise InputError(expected, got=type(parts.sampler).__name__, where="sampler")

    def term(self, arch: Arch, probabilities: Mapping[str, Tensor], epoch: Epoch, groups: Groups) -> Tensor:
        distances = [kl_from_flat(concentration(arch[name])).sum() for name in groups]
        return self.weight * torch.stack(distances).sum()


def kl_from_flat(c: Tensor) -> Tensor:
    """KL(Dir(c) ‖ Dir(1)) of each row: (edges, ops) → (edges,)."""
    total = c.sum(dim=-1)
    spread = ((c - 1) * (torch.digamma(c) - torch.digamma(total)[..., None])).sum(dim=-1)
    return torch.lgamma(total) - torch.lgamma(c).sum(dim=-1) - math.lgamma(c.shape[-1]) + spread
