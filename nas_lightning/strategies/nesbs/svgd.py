"""SVGD-RD: Stein variational gradient descent with regularized diversity (Shu 2022, thesis, section 5.2.3).

    q* = arg min_q KL(q ‖ p) + n δ E_{x,x'~q}[k(x, x')]                                        (5.5)
    x_i ← x_i + ε/n Σ_j [k(x_j, x_i) ∇_{x_j} log p(x_j) + ∇_{x_j} k(x_j, x_i) − δ ∇_{x_i} k(x_j, x_i)]

k is the RBF kernel exp(−‖x − x'‖²/h), for which ∇_{x_j} k = −∇_{x_i} k: the particles repel each other with
the force 1 + δ. δ = 0 is SVGD (Liu & Wang 2016, arXiv:1608.04471); below −1 they attract each other. A single
particle climbs to the maximum of the density for any δ (proposition 5.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nas_lightning.strategies.nesbs.posterior import Decision, Matrices

Score = Callable[[Tensor], Tensor]
"""∇ log p at each of the particles: (n, d) → (n, d)."""


def svgd_rd(
    particles: Tensor,
    score: Score,
    *,
    delta: float,
    steps: int = 1000,
    lr: float = 0.1,
    momentum: float = 0.9,
    bandwidth: float | None = None,
) -> Tensor:
    """Return the particles after algorithm 5.3: (n, d).

    Args:
        particles: the initial particles.
        score: the gradient of the log density, which need not be normalized.
        delta: δ, the repulsion in addition to that of SVGD.
        steps: L.
        lr: ε.
        momentum: momentum of the steps.
        bandwidth: h of the kernel; None: from the median distance of the particles in every step.

    >>> start = torch.tensor([[2.0], [-1.0]])
    >>> near, far = (svgd_rd(start, lambda x: -x, delta=delta).flatten().abs() for delta in (0.0, 1.0))
    >>> bool((far > near).all())
    True
    """
    velocity = torch.zeros_like(particles)
    for _ in range(steps):
        velocity = momentum * velocity + direction(particles, score(particles), delta, bandwidth)
        particles = particles + lr * velocity
    return particles


def direction(particles: Tensor, scores: Tensor, delta: float, bandwidth: float | None = None) -> Tensor:
    """φ(x_i) = 1/n Σ_j [k(x_j, x_i) s_j + (1 + δ) (2/h) (x_i − x_j) k(x_j, x_i)]: (n, d)."""
    distances = torch.cdist(particles, particles, compute_mode="donot_use_mm_for_euclid_dist").square()
    h = median_bandwidth(distances) if bandwidth is None else torch.tensor(bandwidth)
    k = torch.exp(-distances / h)  # (n, n)
    apart = k.sum(dim=1, keepdim=True) * particles - k @ particles
    return (k @ scores + (1 + delta) * (2 / h) * apart) / len(particles)


def median_bandwidth(squared: Tensor) -> Tensor:
    """h = median ‖x_i − x_j‖² / log(n + 1) over the pairs, which makes Σ_j k(x_i, x_j) about 1: (n, n) → ().

    It is positive also for one particle, or for several at one point.
    """
    n = len(squared)
    first, second = torch.triu_indices(n, n, offset=1)
    pairs = squared[first, second]
    median = pairs.median() if len(pairs) else squared.new_ones(())
    return (median / math.log(n + 1)).clamp_min(torch.finfo(squared.dtype).eps)


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """p(x) = Σ_c w_c N(x | u_c, diag σ_c²), the target of figure 5.2."""

    weights: Tensor  # (c,)
    means: Tensor  # (c, d)
    variances: Tensor  # (c, d)

    def log_density(self, x: Tensor) -> Tensor:
        """(n, d) → (n,)."""
        return self._terms(x).logsumexp(dim=1)

    def score(self, x: Tensor) -> Tensor:
        """∇ log p = Σ_c r_c(x) (u_c − x) / σ_c², with r_c the share of a component: (n, d) → (n, d)."""
        shares = self._terms(x).softmax(dim=1)[..., None]
        return (shares * (self.means - x[:, None]) / self.variances).sum(dim=1)

    def _terms(self, x: Tensor) -> Tensor:
        exponents = -((x[:, None] - self.means).square() / self.variances).sum(dim=2) / 2  # (n, c)
        scale = self.weights.log() - (2 * math.pi * self.variances).log().sum(dim=1) / 2
        return exponents + scale


Variance = Literal["operations", "candidates"]


class RelaxedArchitectures:
    """The posterior made continuous: one Gaussian around the one-hot vector of every candidate.

        p̂(x) = Π_i Σ_o p_i(o) N(o_i | h_o, σ_i² I), not normalized                               (5.8)

    with σ_i² = |O|, the number of operations of decision i, or of its candidates, one for each edge and
    operation. As ‖o_i − h_o‖² = ‖o_i‖² − 2 o_{i,o} + 1, its gradient is

        ∇_{o_i} log p̂ = (softmax_o(log p_i(o) + o_{i,o}/σ_i²) − o_i) / σ_i².

    A particle is a row of (decisions × widest) numbers; the padding of narrower decisions stays 0.

    Args:
        decisions: the decisions of the space.
        probabilities: p: (edges, ops) per group.
        variance: whether σ² is the number of operations or of candidates.
    """

    def __init__(
        self, decisions: list[Decision], probabilities: Matrices, variance: Variance = "operations"
    ) -> None:
        self.decisions = decisions
        self.shapes = {name: matrix.shape for name, matrix in probabilities.items()}
        sizes = [len(decision.rows) for decision in decisions]
        counts = sizes if variance == "candidates" else [len(d.columns.unique()) for d in decisions]
        self.variance = torch.tensor(counts, dtype=torch.float64)[:, None]  # (decisions, 1)
        self.exists = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]  # (decisions, widest)
        table = torch.zeros(self.exists.shape, dtype=torch.float64)
        for row, decision in zip(table, decisions, strict=True):
            row[: len(decision.rows)] = decision.of(probabilities).detach().cpu().double()
        self.log_p = table.log()

    def start(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw particles from N(0, I): (n, d)."""
        drawn = torch.randn(n, *self.exists.shape, dtype=torch.float64, generator=generator)
        return (drawn * self.exists).flatten(1)

    def log_density(self, x: Tensor) -> Tensor:
        """(n, d) → (n,)."""
        o = self._by_decision(x)
        norms = (o.square().sum(dim=2) + 1) / (2 * self.variance[:, 0])
        return ((self.log_p + o / self.variance).logsumexp(dim=2) - norms).sum(dim=1)

    def score(self, x: Tensor) -> Tensor:
        """∇ log p̂: (n, d) → (n, d)."""
        o = self._by_decision(x)
        shares = (self.log_p + o / self.variance).softmax(dim=2)
        return ((shares - o) / self.variance).flatten(1)

    def scores(self, particle: Tensor) -> dict[str, Tensor]:
        """Return scores that favor the particle's nearest one-hot vectors (5.9): (edges, ops) per group."""
        found = {name: torch.zeros(shape, dtype=particle.dtype) for name, shape in self.shapes.items()}
        for decision, values in zip(self.decisions, self._by_decision(particle[None])[0], strict=True):
            found[decision.group][decision.rows, decision.columns] = values[: len(decision.rows)]
        return found

    def _by_decision(self, x: Tensor) -> Tensor:
        return x.unflatten(1, self.exists.shape)
