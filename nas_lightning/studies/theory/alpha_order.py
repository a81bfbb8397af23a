"""When the largest architecture parameter is the best architecture (Roberts et al. 2022, sections 4.1–4.3).

A supernet mixes the outputs of its candidates, f_α(x) = Σ_i α_i f_i(x) with α on the simplex, as activation
search in a two-layer network does. With L(f, g) = ½ E (f − g)² and labels that the supernet fits exactly,

    L(f_i, y) = (1 − α_i)² L(f_i, m_i),    m_i = Σ_{k≠i} α_k/(1 − α_i) f_k,

so for two candidates the smaller loss with shared weights has the larger α (theorem 1). For more it has where

    L(f_i, m_i) ≥ L(f_j, m_j)                                                      (condition 6)

holds for the better candidate i and the worse one j (theorem 7).
"""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import torch
from torch import Tensor


class Verdict(NamedTuple):
    """What holds for two candidates, of which `better` has the smaller loss with the shared weights."""

    better: int  # the number of that candidate
    worse: int  # and of the other
    condition: bool
    """Condition 6, which is always met by two candidates."""
    ordered: bool
    """α_better > α_worse."""


def verdicts(outputs: Tensor, alpha: Tensor, labels: Tensor) -> list[Verdict]:
    """Condition 6 and the order of α for every pair of candidates with different losses.

    Args:
        outputs: f_i(x) of every candidate with the shared weights, (candidates, samples).
        alpha: the architecture parameters, inside the simplex, (candidates,).
        labels: y, (samples,).

    >>> f = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    >>> alpha = torch.tensor([0.7, 0.3], dtype=torch.float64)
    >>> verdicts(f, alpha, alpha @ f)
    [Verdict(better=0, worse=1, condition=True, ordered=True)]
    """
    if not bool((alpha > 0).all()) or not torch.isclose(alpha.sum(), alpha.new_ones(())):
        raise ValueError(f"expected α inside the simplex, got {alpha.tolist()}")
    losses = risk(outputs, labels)
    distances = risk(outputs, mixtures_of_others(outputs, alpha))
    pairs = permutations(range(len(alpha)), 2)
    slack = 1e-12 * distances.max()  # two candidates have equal distances, up to rounding
    return [
        Verdict(i, j, bool(distances[i] >= distances[j] - slack), bool(alpha[i] > alpha[j]))
        for i, j in pairs
        if losses[i] < losses[j]
    ]


def risk(outputs: Tensor, targets: Tensor) -> Tensor:
    """L(f, g) = ½ E (f − g)² for each candidate: (candidates, samples) → (candidates,)."""
    return 0.5 * (outputs - targets).square().mean(dim=1)


def mixtures_of_others(outputs: Tensor, alpha: Tensor) -> Tensor:
    """m_i = Σ_{k≠i} α_k/(1 − α_i) f_k (lemma 5): (candidates, samples)."""
    everything = alpha @ outputs  # (samples,)
    return (everything - alpha[:, None] * outputs) / (1 - alpha[:, None])
