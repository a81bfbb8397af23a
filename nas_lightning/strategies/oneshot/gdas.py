"""GDAS: search by a differentiable sampler (Dong & Yang 2019, arXiv:1910.04465).

Every step samples one operation an edge from the Gumbel-softmax of its parameters (equations 3 and 4) and
computes no other; the parameters learn through the straight-through estimator.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from nas_lightning.strategies.oneshot.annealed import Annealed
from nas_lightning.strategies.oneshot.relaxations import straight_through_gumbel, uniform_noise
from nas_lightning.strategies.oneshot.weight_sharing import Relaxed


class Gdas(Annealed):
    """GDAS: a step costs what one path costs. Its settings are those of `Annealed`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> gdas = Gdas(space, space.supernet(in_channels=1, num_classes=2, channels=2, cells=1))
    >>> gdas.relax().active["cell"].sum(dim=1).tolist()
    [1, 1, 1, 1, 1, 1]
    """

    def relax(self) -> Relaxed:
        weights = {
            name: straight_through_gumbel(
                beta, uniform_noise(beta, self.generator), self.tau, self.space.groups[name].draw
            )
            for name, beta in self.arch.items()
        }
        return Relaxed(weights, {name: matrix.detach() > 0.5 for name, matrix in weights.items()})

    def scores(self) -> Mapping[str, Tensor]:
        return {name: torch.softmax(beta.detach(), dim=-1) for name, beta in self.arch.items()}
