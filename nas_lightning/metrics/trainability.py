"""Whether gradients keep their length from block to block: AZ-NAS' trainability (arXiv:2403.19232)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from nas_lightning.checks import Seed, checked
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes import Needs, Passes

_EPS = 1e-6


@checked
@dataclass(frozen=True)
class Trainability(Metric):
    """mean_l (2 − σ_l − 1/(σ_l + 1e-6)) (Lee & Ham 2024).

    σ_l is the largest singular value of E[g_{l−1} g_lᵀ], an estimate of block l's Jacobian between channels
    at one position: g_l has the signs ±1 at random, g_{l−1} is what a backward pass through the block makes
    of it. Where a block lowers the resolution, the positions of its input that belong to one of its output
    count as channels. The best value is 0, at σ = 1.

    Args:
        seed: of the signs.

    >>> import torch
    >>> from torch import nn
    >>> layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()
    >>> network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> batch = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> Trainability()(network, batch).item() <= 0
    True
    """

    seed: Seed = 0
    needs: ClassVar[Needs] = Needs.FEATURES
    never_positive: ClassVar[bool] = True

    def compute(self, passes: Passes) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        sigmas = [
            _sigma(inner, outer, generator)
            for inner, outer in pairwise(passes.features)
            if outer.requires_grad
        ]
        if not sigmas:
            return torch.zeros(())
        sigma = torch.stack(sigmas)
        return (2 - sigma - 1 / (sigma + _EPS)).mean()


def _sigma(inner: Tensor, outer: Tensor, generator: torch.Generator) -> Tensor:
    signs = torch.randint(2, outer.shape, generator=generator).to(outer) * 2 - 1
    (gradient,) = torch.autograd.grad(outer, inner, signs, retain_graph=True, materialize_grads=True)
    return largest_singular_value(gradient, signs)


def largest_singular_value(inner: Tensor, outer: Tensor) -> Tensor:
    """σ of E[g_{l−1} g_lᵀ] over samples and positions, from g_{l−1} (m, c', h', w') and g_l (m, c, h, w).

    >>> signs = torch.randint(2, (50, 3, 8, 8)) * 2.0 - 1
    >>> bool((largest_singular_value(0.5 * signs, signs) - 0.5).abs() < 0.1)
    True
    """
    if inner.dim() == outer.dim() == 4:
        inner = _unshuffle(inner, outer)
    elif outer.dim() == 2:  # pooled: all positions belong to its one
        inner = inner.flatten(1)
    a, b = (g.movedim(1, -1).flatten(0, -2) for g in (inner, outer))
    return torch.linalg.matrix_norm((a.T @ b).double() / len(b), 2)


def _unshuffle(inner: Tensor, outer: Tensor) -> Tensor:
    """The inner map with the outer's positions; sides that do not divide get zeros at the border."""
    factor = max(1, round(inner.shape[2] / outer.shape[2]))
    missing = [factor * outer.shape[axis] - inner.shape[axis] for axis in (3, 2)]
    if any(missing):
        inner = F.pad(inner, (0, missing[0], 0, missing[1]))
    return F.pixel_unshuffle(inner, factor) if factor > 1 else inner
