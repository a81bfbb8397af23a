"""The contracts of rules: those that end a search, and those that end the learning of single operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from nas_lightning.genotype import Genotype
from nas_lightning.strategies.oneshot.parts import Part
from nas_lightning.strategies.oneshot.values import Groups, Learning


class Stopping(Part, ABC):
    """A rule that ends a search before its last epoch."""

    @abstractmethod
    def remember(
        self, memory: Mapping[str, Any], genotype: Genotype, scores: Mapping[str, Tensor], groups: Groups
    ) -> dict[str, Any]:
        """What is kept of the epochs so far, plain values, with the one that ends now."""

    @abstractmethod
    def stops(self, memory: Mapping[str, Any]) -> bool:
        """Whether the search ends with this epoch."""


class Freezing(Part, ABC):
    """A rule by which the weights of single operations stop to learn."""

    @abstractmethod
    def update(self, memory: Learning, cosines: Tensor) -> Learning:
        """What is known of each operation after a step (ops,), where one was not computed NaN."""
