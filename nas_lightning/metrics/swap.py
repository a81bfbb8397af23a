"""SWAP-Score: how many different ways rectified units see the samples of a batch (arXiv:2403.04161)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.checks import PositiveInt, checked
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.passes import Needs, Passes

_BITS = 62  # of an integer


@checked
@dataclass(frozen=True)
class Swap(Metric):
    """|{(1[z_u(x_1) > 0], …, 1[z_u(x_n) > 0]) : u}|, u every rectified unit (Peng et al. 2024).

    A unit of several pieces (ReLU6) has a pattern for each point where one begins, see `passes.rectifiers`.

    The paper multiplies by a Gaussian of the parameters whose centre and width follow from the accuracies of
    trained networks; without those, rank by `params` as well.

    Args:
        samples: n, of the batch; with many, all patterns differ and their number is that of the units.

    >>> network = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> _ = network[0].weight.data.copy_(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
    >>> _ = torch.nn.init.zeros_(network[0].bias)
    >>> batch = torch.tensor([[1.0, 2.0], [-1.0, -2.0]]), torch.tensor([0, 1])
    >>> Swap()(network, batch).item()  # active for x alone, and for −x alone
    2.0
    """

    samples: PositiveInt = 16
    needs: ClassVar[Needs] = Needs.RELU_PATTERNS

    def compute(self, passes: Passes) -> float:
        patterns = [active[: self.samples] for active in passes.relu_patterns]
        return distinct_columns(torch.cat(patterns, dim=1)) if patterns else 0


def distinct_columns(patterns: Tensor) -> int:
    """The number of different columns of a Boolean matrix, (samples, units).

    >>> distinct_columns(torch.tensor([[True, False, True], [False, True, False]]))
    2
    """
    words = [_pack(word) for word in patterns.split(_BITS)]
    if len(words) == 1:
        return len(words[0].unique())
    return len(torch.stack(words, dim=1).unique(dim=0))


def _pack(bits: Tensor) -> Tensor:
    """(≤ 62, units) → (units,): the integer that the bits spell."""
    total = torch.zeros(bits.shape[1], dtype=torch.int64, device=bits.device)
    for row in bits:
        total = total.mul_(2).add_(row)
    return total
