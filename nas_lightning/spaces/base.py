"""The contract of a search space: decisions, networks, and notations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from inspect import signature
from typing import Any, ClassVar

import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.frozen_map import FrozenMap
from nas_lightning.genotype import Cell, Genotype
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.network import Network
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.utils.randomness import choose

# What a search space is: its decisions, its networks and its notations.
#
# A space names *groups* of categorical decisions. A group is a matrix: one row per edge or node, one column
# per
# candidate: an operation, or a node to read from. Strategies turn parameters into such matrices, supernets
# take
# them as an argument, and `discretize` turns their scores into a genotype. A space without groups has no
# supernet. A new space is one file with one final subclass and a yaml.


class SearchSpace(ABC):
    """The contract of a space; `tests/spaces/test_contract.py` holds every space to it.

    `size` stands for the options that a space names itself, each with a default; so a subclass' signature is
    narrower than the one here, and says `type: ignore[override]`.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> genotype = space.sample(torch.Generator().manual_seed(0))
    >>> space.parse(space.notation(genotype)) == genotype == space.discretize(space.one_hot(genotype))
    True
    >>> len(space.neighbors(genotype))  # six edges, four other operations
    24
    """

    name: ClassVar[str]
    shown_by_cells: ClassVar[frozenset[str]] = frozenset()
    """Settings that a genotype's cells show by themselves, so that `check` need not compare them."""

    repeated: ClassVar[bool] = True
    """Whether several cells of a supernet follow the same decisions."""

    ranked_by: ClassVar[str | None] = None
    """The word for what ranks its untrained networks where nothing is named; None: as a search has it."""

    @cached_property
    def settings(self) -> FrozenMap:
        """The arguments that the space was made with, where they are not its class' own.

        Each argument of the constructor is an attribute of that name. A genotype carries them, and
        `make_space(space.name, space.settings)` is such a space again.
        """
        named = [p for p in signature(type(self)).parameters.values() if p.kind is not p.VAR_KEYWORD]
        missing = [p.name for p in named if p.name not in vars(self)]
        if missing:
            raise TypeError(f"expected {type(self).__name__} to keep its argument as self.{missing[0]}")
        own = FrozenMap({p.name: p.default for p in named if p.default is not p.empty})
        given = FrozenMap({p.name: vars(self)[p.name] for p in named})
        return FrozenMap({name: value for name, value in given.items() if (name, value) not in own.items()})

    @property
    def unlimited(self) -> SearchSpace:
        """The space with what is over the limits, where it has some."""
        return self

    @property
    def limited(self) -> tuple[str, ...]:
        """The names of the costs that have limits."""
        return ()

    def expected_excess(self, probabilities: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """How far each limited cost is expected to be over its limit, as a share: differentiable."""
        return {}

    def derived_excess(self, scores: Mapping[str, Tensor]) -> dict[str, float]:
        """The same of what scores favor without limits."""
        return {}

    def keep_limits(self, genotype: Genotype) -> Genotype:
        """The genotype, or one near it within the limits."""
        return genotype

    @property
    @abstractmethod
    def groups(self) -> Mapping[str, Group]:
        """The decisions, by the name of their group; none where there is no supernet."""

    @property
    def modules(self) -> tuple[str, ...]:
        """The dotted names of a user's own that its networks import."""
        return ()

    @property
    def cells(self) -> tuple[str, ...]:
        """The names of a genotype's cells: where decisions are operations on edges, a group for each."""
        return tuple(self.groups)

    @abstractmethod
    def supernet(self, *, in_channels: int, num_classes: int, **size: Any) -> Supernet:
        """A network with every candidate, which takes the architecture weights as an argument."""

    @abstractmethod
    def network(self, genotype: Genotype, *, in_channels: int, num_classes: int, **size: Any) -> Network:
        """The network that a genotype stands for, with what a `DerivedNetwork` has."""

    @abstractmethod
    def discretize(self, scores: Mapping[str, Tensor]) -> Genotype:
        """The genotype that scores of (edges, ops) per group favor; ties go to the earlier row or column."""

    @abstractmethod
    def sample(self, generator: torch.Generator) -> Genotype:
        """A genotype, uniformly at random."""

    @abstractmethod
    def neighbors(self, genotype: Genotype) -> list[Genotype]:
        """Every genotype that differs in one decision."""

    @abstractmethod
    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        """A genotype from the notations that people have files in, or from `Genotype.to_dict`."""

    @abstractmethod
    def notation(self, genotype: Genotype) -> str:
        """A genotype in the notation that others' code reads; `parse` is its inverse."""

    def one_hot(self, genotype: Genotype) -> dict[str, Tensor]:
        """The genotype as weights of the supernet: 1 where it has an operation, 0 elsewhere; (edges, ops)."""
        self.check(genotype)
        weights = {}
        for name, group in self.groups.items():
            weights[name] = torch.zeros(group.shape)
            for op, source, target in genotype[name].edges:
                if (source, target) not in group.edges:
                    raise InputError(f"expected an edge of the space's {name} cell", got=f"{source}→{target}")
                row = group.edges.index((source, target))
                weights[name][row, group.column(op, row)] += 1
        return weights

    def genotype_of(self, cells: Mapping[str, Cell]) -> Genotype:
        """The genotype of these cells, with the name and the settings of the space."""
        return Genotype(self.name, cells, self.settings)

    def genotype_from_dict(self, data: Mapping[str, Any]) -> Genotype:
        """The inverse of `Genotype.to_dict`, whose names of the space and its settings may be left out."""
        own = {"space": self.name, "settings": self.settings.to_dict()}
        genotype = Genotype.from_dict({**own, **data})
        self.check(genotype)
        return genotype

    def mutate(self, genotype: Genotype, generator: torch.Generator) -> Genotype:
        """One of the neighbors, uniformly at random."""
        return choose(self.neighbors(genotype), generator)

    def check(self, genotype: Genotype) -> None:
        """Raise unless the genotype is one of this space's, by name, settings and cells."""
        if genotype.space != self.name:
            raise InputError(f"expected a genotype of the space {self.name!r}", got=genotype.space)
        for name in sorted({*self.settings, *genotype.settings} - self.shown_by_cells):
            here, there = (settings.get(name, "its own") for settings in (self.settings, genotype.settings))
            if here != there:
                raise InputError(f"expected a genotype of {self.name} with {name}={here}", got=there)
        cells = {name for name, _ in genotype}
        if cells != set(self.cells):
            raise InputError(f"expected the cells {', '.join(self.cells)}", got=", ".join(sorted(cells)))

    def check_scores(self, scores: Mapping[str, Tensor]) -> None:
        """Raise unless there is one finite score for every decision and candidate."""
        for name, group in self.groups.items():
            shape = tuple(scores[name].shape)
            if shape != group.shape:
                raise ValueError(f"expected scores of shape {group.shape} for {name!r}, got {shape}")
            if not bool(torch.isfinite(scores[name]).all()):
                raise ValueError(f"expected finite scores for {name!r}, got {scores[name].tolist()}")


def best(scores: Mapping[str, float]) -> tuple[str, float]:
    """The first entry with the largest score."""
    name = max(scores, key=lambda key: scores[key])
    return name, scores[name]


# Architectures drawn at random.

_MOST_REPEATS = 100_000  # in a row: that many, and nothing new is left to be found


def draw_distinct(space: SearchSpace, count: int, generator: torch.Generator) -> list[Genotype]:
    """`count` architectures, each another, uniformly drawn."""
    if count < 1:
        raise InputError("expected at least one architecture", got=count, where="strategy.count")
    distinct: dict[Genotype, None] = {}
    repeats = 0  # in a row
    while len(distinct) < count:
        genotype = space.sample(generator)
        repeats = repeats + 1 if genotype in distinct else 0
        if repeats > _MOST_REPEATS:
            raise InputError(
                f"expected a count that the space has: found {len(distinct)}",
                got=count,
                where="strategy.count",
            )
        distinct[genotype] = None
    return list(distinct)


def sample_distinct(space: SearchSpace, count: int, generator: torch.Generator) -> list[Genotype]:
    """Distinct architectures of four draws for each, at most `count`: all or nearly all of a small space.

    >>> from nas_lightning.spaces import TwoLayer
    >>> len(sample_distinct(TwoLayer(["relu", "tanh"]), 100, torch.Generator().manual_seed(0)))
    2
    """
    distinct: dict[Genotype, None] = {}
    for _ in range(4 * count):
        distinct[space.sample(generator)] = None
        if len(distinct) == count:
            break
    return list(distinct)
