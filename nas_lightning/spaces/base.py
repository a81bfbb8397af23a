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


class SearchSpace(ABC):
    """The contract of a search space: its decisions, networks, and notations.

    A space has *groups* of categorical decisions. A group is a matrix with one row per edge or node and one
    column per candidate: an operation, or a node to read from. Strategies map parameters to such matrices,
    supernets take them as an argument, and `discretize` maps scores to a genotype. A space without groups has
    no supernet. `tests/spaces/test_contract.py` tests the contract for every space.

    A subclass replaces `**size` in the methods below by keyword arguments with defaults, hence the comments
    `type: ignore[override]`. It stores each argument of its constructor as an attribute of the same name.

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
    """Settings that are visible in a genotype's cells, so that `check` need not compare them."""

    repeated: ClassVar[bool] = True
    """Whether several cells of a supernet share the same decisions."""

    ranked_by: ClassVar[str | None] = None
    """The default metric for ranking untrained networks; None: the default of the strategy."""

    @cached_property
    def settings(self) -> FrozenMap:
        """The constructor's arguments that differ from the defaults.

        Genotypes store them, and `make_space(space.name, space.settings)` builds an equal space.
        """
        named = [p for p in signature(type(self)).parameters.values() if p.kind is not p.VAR_KEYWORD]
        missing = [p.name for p in named if p.name not in vars(self)]
        if missing:
            raise TypeError(f"{type(self).__name__} must keep its argument as self.{missing[0]}")
        defaults = FrozenMap({p.name: p.default for p in named if p.default is not p.empty})
        values = FrozenMap({p.name: vars(self)[p.name] for p in named})
        changed = {name: value for name, value in values.items() if (name, value) not in defaults.items()}
        return FrozenMap(changed)

    # Decisions

    @property
    @abstractmethod
    def groups(self) -> Mapping[str, Group]:
        """The groups of decisions by name; empty if the space has no supernet."""

    @property
    def modules(self) -> tuple[str, ...]:
        """The dotted names of the user's code that the networks import."""
        return ()

    @property
    def cells(self) -> tuple[str, ...]:
        """The names of a genotype's cells: by default one per group."""
        return tuple(self.groups)

    # Networks

    @abstractmethod
    def supernet(self, *, in_channels: int, num_classes: int, **size: Any) -> Supernet:
        """Build a network with all candidates, which takes the architecture weights as an argument."""

    @abstractmethod
    def network(self, genotype: Genotype, *, in_channels: int, num_classes: int, **size: Any) -> Network:
        """Build the network of a genotype, a `DerivedNetwork`."""

    # Genotypes

    @abstractmethod
    def discretize(self, scores: Mapping[str, Tensor]) -> Genotype:
        """Return the genotype with the highest scores, (edges, ops) per group.

        Ties go to the earlier row or column.
        """

    @abstractmethod
    def sample(self, generator: torch.Generator) -> Genotype:
        """Draw a genotype uniformly at random."""

    @abstractmethod
    def neighbors(self, genotype: Genotype) -> list[Genotype]:
        """Return all genotypes that differ in one decision."""

    @abstractmethod
    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        """Read a genotype from a published notation, or from the output of `Genotype.to_dict`."""

    @abstractmethod
    def notation(self, genotype: Genotype) -> str:
        """Write a genotype in the published notation; the inverse of `parse`."""

    def one_hot(self, genotype: Genotype) -> dict[str, Tensor]:
        """Return the genotype as weights of the supernet, (edges, ops): 1 for its operations, 0 elsewhere."""
        self.check(genotype)
        weights = {}
        for name, group in self.groups.items():
            weights[name] = torch.zeros(group.shape)
            for op, source, target in genotype[name].edges:
                if (source, target) not in group.edges:
                    raise InputError(f"The edge must be one of the {name} cell", got=f"{source}→{target}")
                row = group.edges.index((source, target))
                weights[name][row, group.column(op, row)] += 1
        return weights

    def genotype_of(self, cells: Mapping[str, Cell]) -> Genotype:
        """Return the genotype of these cells, with the name and the settings of the space."""
        return Genotype(self.name, cells, self.settings)

    def genotype_from_dict(self, data: Mapping[str, Any]) -> Genotype:
        """Invert `Genotype.to_dict`; the name and the settings of the space are optional."""
        defaults = {"space": self.name, "settings": self.settings.to_dict()}
        genotype = Genotype.from_dict({**defaults, **data})
        self.check(genotype)
        return genotype

    def mutate(self, genotype: Genotype, generator: torch.Generator) -> Genotype:
        """Draw one of the neighbors uniformly at random."""
        return choose(self.neighbors(genotype), generator)

    def check(self, genotype: Genotype) -> None:
        """Raise unless the genotype belongs to this space: by name, settings, and cells."""
        if genotype.space != self.name:
            raise InputError(f"The genotype must be one of the space {self.name!r}", got=genotype.space)
        for name in sorted({*self.settings, *genotype.settings} - self.shown_by_cells):
            here, there = (settings.get(name, "default") for settings in (self.settings, genotype.settings))
            if here != there:
                raise InputError(f"The genotype of {self.name} must have {name}={here}", got=there)
        cells = {name for name, _ in genotype}
        if cells != set(self.cells):
            raise InputError(f"The cells must be {', '.join(self.cells)}", got=", ".join(sorted(cells)))

    def check_scores(self, scores: Mapping[str, Tensor]) -> None:
        """Raise unless every decision has one finite score per candidate."""
        for name, group in self.groups.items():
            shape = tuple(scores[name].shape)
            if shape != group.shape:
                raise ValueError(f"scores of {name!r} must have shape {group.shape}, got {shape}")
            if not bool(torch.isfinite(scores[name]).all()):
                raise ValueError(f"scores of {name!r} must be finite, got {scores[name].tolist()}")

    # Limits on costs; see `spaces/constrained.py`

    @property
    def unlimited(self) -> SearchSpace:
        """The space without limits on costs."""
        return self

    @property
    def limited(self) -> tuple[str, ...]:
        """The names of the costs that have limits."""
        return ()

    def expected_excess(self, probabilities: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return by which fraction each expected cost exceeds its limit; differentiable."""
        return {}

    def derived_excess(self, scores: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the same for the genotype that `discretize` returns without limits."""
        return {}

    def keep_limits(self, genotype: Genotype) -> Genotype:
        """Return the genotype if it is within the limits, else a similar one that is."""
        return genotype


def best(scores: Mapping[str, float]) -> tuple[str, float]:
    """Return the first entry with the largest score."""
    name = max(scores, key=lambda key: scores[key])
    return name, scores[name]


# Random sets of architectures

_MAX_REPEATS = 100_000  # consecutive draws without a new architecture, after which the space is exhausted


def draw_distinct(space: SearchSpace, count: int, generator: torch.Generator) -> list[Genotype]:
    """Draw `count` distinct architectures uniformly."""
    if count < 1:
        raise InputError("There must be at least one architecture", got=count, where="strategy.count")
    distinct: dict[Genotype, None] = {}
    repeats = 0  # consecutive
    while len(distinct) < count:
        genotype = space.sample(generator)
        repeats = repeats + 1 if genotype in distinct else 0
        if repeats > _MAX_REPEATS:
            raise InputError(
                f"The space has too few architectures: found {len(distinct)}",
                got=count,
                where="strategy.count",
            )
        distinct[genotype] = None
    return list(distinct)


def sample_distinct(space: SearchSpace, count: int, generator: torch.Generator) -> list[Genotype]:
    """Return the distinct ones of 4 · `count` draws, at most `count`: nearly all of a small space.

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
