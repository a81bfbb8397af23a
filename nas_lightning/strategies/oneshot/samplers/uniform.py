"""Uniform paths: each step trains one architecture of the space (Li & Talwalkar 2019, arXiv:1902.07638).

Single Path One-Shot trains its supernet so, too (Guo et al. 2020, arXiv:1904.00420, section 3.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group
from nas_lightning.strategies.oneshot.parts import Sampler
from nas_lightning.strategies.oneshot.values import Arch, Epoch, Groups, Noise, RelaxedWeights


class Paths(Sampler):
    """Base of the samplers without parameters, whose noise is the weights of whole architectures."""

    varies: ClassVar[bool] = True
    learns: ClassVar[bool] = False

    def relax(self, arch: Arch, noise: Noise, epoch: Epoch, groups: Groups) -> RelaxedWeights:
        return RelaxedWeights({name: drawn[0] for name, drawn in noise.items()})

    def weights(self, beta: Tensor, noise: Sequence[Tensor], epoch: Epoch, group: Group) -> Tensor:
        return noise[0]

    def probabilities(self, beta: Tensor, epoch: Epoch, group: Group) -> Tensor:
        expected = "expected a sampler with parameters, which probabilities are of"
        raise InputError(expected, got=type(self).__name__, where="sampler")


class Uniform(Paths):
    """w = one-hot of an architecture that is drawn uniformly from the space.

    >>> from nas_lightning.spaces import NasBench201
    >>> noise = Uniform().draw({}, NasBench201(), torch.Generator().manual_seed(0))
    >>> noise["cell"][0].sum(dim=1)  # one operation an edge
    tensor([1., 1., 1., 1., 1., 1.])
    """

    def draw(self, arch: Arch, space: SearchSpace, generator: torch.Generator) -> Noise:
        return {name: [matrix] for name, matrix in space.one_hot(space.sample(generator)).items()}
