"""FairNAS' paths: every operation is trained equally often (Chu et al. 2021, arXiv:1907.01845)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.strategies.oneshot.parts import Parts
from nas_lightning.strategies.oneshot.relaxations import uniform_noise
from nas_lightning.strategies.oneshot.samplers.uniform import Paths
from nas_lightning.strategies.oneshot.values import Arch, Noise


class Fair(Paths):
    """A step trains m paths that together take each of an edge's m operations once.

    Their gradients add up and the weights move once (strict fairness, definition 2 and algorithm 1). The
    operations of a row are in a random order; path k takes the k-th of every row.

    >>> from nas_lightning.spaces import NasBench201
    >>> space, sampler = NasBench201(), Fair()
    >>> paths = sampler.paths(sampler.draw({}, space, torch.Generator().manual_seed(0)))
    >>> sum(path["cell"][0] for path in paths)[0]  # each operation of an edge once
    tensor([1., 1., 1., 1., 1.])
    """

    varies: ClassVar[bool] = True

    def check(self, parts: Parts, space: SearchSpace) -> None:
        sizes = {group.shape[1] for group in space.groups.values()}
        if len(sizes) != 1 or any(group.draw != 1 for group in space.groups.values()):
            expected = (
                "expected a space whose rows all choose one of equally many operations, so that m paths "
            )
            raise InputError(f"{expected} are fair to each", got=space.name, where="space")

    def draw(self, arch: Arch, space: SearchSpace, generator: torch.Generator) -> Noise:
        shapes = {name: group.shape for name, group in space.groups.items()}
        noise = {name: uniform_noise(torch.empty(shape), generator) for name, shape in shapes.items()}
        return {name: fair_paths(matrix) for name, matrix in noise.items()}

    def paths(self, noise: Noise) -> list[Noise]:
        count = len(next(iter(noise.values())))
        return [{name: [drawn[path]] for name, drawn in noise.items()} for path in range(count)]


def fair_paths(noise: Tensor) -> list[Tensor]:
    """m one-hot matrices that add up to ones, in random order: (edges, ops) each."""
    order = noise.argsort(dim=-1)  # a permutation of the operations of each row
    return [torch.zeros_like(noise).scatter(-1, order[:, k : k + 1], 1.0) for k in range(noise.shape[-1])]
