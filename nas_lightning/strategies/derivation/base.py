"""What a derivation is: the end of a search with a supernet → genotypes, not by the strategy's own scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.strategies.base import Strategy
from nas_lightning.strategies.oneshot.weight_sharing import WeightSharing

Matrices = dict[str, Tensor]
"""One matrix of (edges, ops) per group."""


class Derivation(ABC):
    """A way from a trained supernet to genotypes."""

    def check(self, strategy: Strategy) -> None:
        """Raise unless the strategy trains a supernet that can be perturbed."""
        if not isinstance(strategy, WeightSharing):
            raise InputError(
                "expected a strategy that trains a supernet", got=type(strategy).__name__, where="derivation"
            )
        if not all(group.on_edges for group in strategy.space.groups.values()):
            raise InputError(
                "expected a space that chooses operations on edges",
                got=strategy.space.name,
                where="derivation",
            )

    @abstractmethod
    def __call__(self, strategy: WeightSharing, data: SearchData) -> list[Genotype]:
        """The genotypes, the best first."""


def equal_weights(space: SearchSpace) -> Matrices:
    """Every operation of a row with the same share."""
    return {name: torch.full(group.shape, 1 / group.shape[1]) for name, group in space.groups.items()}


def weights_at_the_end(strategy: WeightSharing) -> Matrices:
    """The strategy's scores, and no relaxed weights, which may be one sample; equal where it has none."""
    scores = strategy.scores()
    return {name: scores.get(name, equal).clone() for name, equal in equal_weights(strategy.space).items()}


def ranks(values: Sequence[float]) -> list[float]:
    """1 for the smallest value and more for larger ones, the same for equal ones.

    >>> ranks([0.5, -3.0, 0.5])
    [2.0, 1.0, 2.0]
    """
    return [1.0 + sum(other < value for other in values) for value in values]
