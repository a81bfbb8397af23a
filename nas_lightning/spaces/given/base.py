"""A network that somebody has made, as a space of one architecture.

So it is trained, resumed, saved, loaded, put into ensembles and compared as what a search finds; there is
nothing in it to search. A new source of networks is one file with one subclass, and one yaml in
`conf/network`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nas_lightning.errors import InputError
from nas_lightning.frozen_map import FrozenMap
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.supernet import Supernet


class GivenNetwork(SearchSpace):
    """A network by its name and what it is built with.

    Args:
        title: its name among those of its source.
        args: what it is built with besides the images' channels and the number of classes.
    """

    def __init__(self, title: str, args: Mapping[str, Any]) -> None:
        self.title, self.args = title, dict(args)

    @abstractmethod
    def build(self, in_channels: int, num_classes: int) -> nn.Module:
        """The network with weights of its own."""

    @cached_property
    def settings(self) -> FrozenMap:
        return FrozenMap({self.key: self.title, **({"args": self.args} if self.args else {})})

    key: ClassVar[str] = "name"
    """The setting that names the network."""

    @property
    def groups(self) -> Mapping[str, Group]:
        return {}

    @property
    def genotype(self) -> Genotype:
        """The one architecture that there is."""
        return Genotype(self.name, {}, self.settings, {"network": self.title})

    def supernet(self, *, in_channels: int, num_classes: int, **size: Any) -> Supernet:
        raise InputError("expected a space with something to search", got=self.name, where="space")

    def network(self, genotype: Genotype, *, in_channels: int, num_classes: int) -> Any:  # type: ignore[override]
        self.check(genotype)
        return self.build(in_channels, num_classes)

    def discretise(self, scores: Mapping[str, Tensor]) -> Genotype:
        return self.genotype

    def sample(self, generator: torch.Generator) -> Genotype:
        return self.genotype

    def neighbours(self, genotype: Genotype) -> list[Genotype]:
        return []

    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        if isinstance(text, Mapping):
            return self.genotype_from_dict(text)
        if text != self.notation(self.genotype):
            raise InputError(f"expected {self.notation(self.genotype)}", got=text)
        return self.genotype

    def notation(self, genotype: Genotype) -> str:
        return (
            f"{self.title}({', '.join(f'{name}={value}' for name, value in self.args.items())})".removesuffix(
                "()"
            )
        )


def first_line(error: Exception) -> str:
    """What a library says first of what went wrong."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
