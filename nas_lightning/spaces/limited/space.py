"""A space of which only the networks within limits are left.

What draws, changes or derives architectures does so by four methods of its space; here they know the limits.
So a strategy keeps them that has never heard of any, a user's own as well.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from nas_lightning.genotype import Genotype
from nas_lightning.randomness import choose
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.limited.bounds import Bounds, refuse_below, refuse_together
from nas_lightning.spaces.limited.repair import descend, repair, smallest

TRIES = 64
"""Draws that are refused before one is repaired."""
FEW = 500
"""Architectures within limits that are listed, where draws are refused so often."""


class Limited(SearchSpace):
    """What limits change of a space; `limit_space` puts it in front of the space's own class."""

    bounds: Bounds
    _unlimited: SearchSpace

    @property
    def unlimited(self) -> SearchSpace:
        return self._unlimited

    @property
    def limited(self) -> tuple[str, ...]:
        return tuple(self.bounds.limits)

    def expected_excess(self, probabilities: Mapping[str, Tensor]) -> dict[str, Tensor]:
        costs = self.bounds.table.expected(probabilities)
        return {name: costs[name] / limit - 1 for name, limit in self.bounds.limits.items()}

    def derived_excess(self, scores: Mapping[str, Tensor]) -> dict[str, float]:
        genotype = self.unlimited.discretise(scores)
        costs = self.bounds.sure_costs(genotype)
        return {name: costs[name] / limit - 1 for name, limit in self.bounds.limits.items()}

    def sample(self, generator: torch.Generator) -> Genotype:
        """A genotype within the limits: uniformly drawn, where one of many draws is; else one repaired."""
        if self._few:
            return choose(self._few, generator)
        for _ in range(TRIES):
            genotype = self.unlimited.sample(generator)
            if self.bounds.holds(genotype):
                return genotype
        return self.repair_drawn(genotype, generator)

    @cached_property
    def _few(self) -> list[Genotype]:
        """What there is within the limits, where draws are refused and it is little; else nothing.

        Found by draws of its own: what a search draws follows from its generator, after a restart as well.
        """
        generator = torch.Generator().manual_seed(0)
        if any(self.bounds.holds(self.unlimited.sample(generator)) for _ in range(TRIES)):
            return []
        return list_within(self.unlimited, self.bounds, FEW)

    def repair_drawn(self, genotype: Genotype, generator: torch.Generator) -> Genotype:
        """A random genotype within the limits, from one that is not."""
        found = descend(self.unlimited, genotype, self.bounds.excess, generator, enough=1.0)
        return found if self.bounds.holds(found) else smallest(self.unlimited, self.bounds, [found])

    def neighbours(self, genotype: Genotype) -> list[Genotype]:
        """Those within the limits."""
        return [near for near in self.unlimited.neighbours(genotype) if self.bounds.holds(near)]

    def mutate(self, genotype: Genotype, generator: torch.Generator) -> Genotype:
        """One of the neighbours within the limits; where there is none, a genotype like any other."""
        near = self.unlimited.neighbours(genotype)
        order = torch.randperm(len(near), generator=generator).tolist()
        found = next((near[index] for index in order if self.bounds.holds(near[index])), None)
        return self.sample(generator) if found is None else found

    def discretise(self, scores: Mapping[str, Tensor]) -> Genotype:
        """The genotype that scores favour within the limits, as they are counted."""
        favourite = self.unlimited.discretise(scores)
        return self._keep(favourite, lambda: repair(self.unlimited, self.bounds, scores, favourite))

    def keep_limits(self, genotype: Genotype) -> Genotype:
        """The genotype, or one near it within the limits, as they are counted."""
        generator = torch.Generator().manual_seed(0)
        return self._keep(genotype, lambda: self.repair_drawn(genotype, generator))

    def _keep(self, genotype: Genotype, mend: Callable[[], Genotype]) -> Genotype:
        """The genotype or a mended one; the second time nothing is taken from a table that was wrong."""
        for _ in range(2):
            if self.is_within(genotype):
                return genotype
            genotype = mend()
        if not self.is_within(genotype):
            raise refuse_together(self.bounds, genotype)
        return genotype

    def is_within(self, genotype: Genotype) -> bool:
        """Whether it holds when it is counted: a table that is contradicted so is exact no more."""
        return self.bounds.holds(genotype) and self.bounds.counted_excess(genotype) <= 1

    def __reduce__(self) -> tuple[Any, ...]:
        return limit_space, (self.unlimited, self.bounds)


def limit_space(space: SearchSpace, bounds: Bounds) -> SearchSpace:
    """The space with nothing over the limits left; its class is the space's, with `Limited` before it.

    Args:
        space: any.
        bounds: of its networks.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> bounds = Bounds(space, {"convs": 1.0}, lambda g: {"convs": sum("conv" in op for op in g.ops)})
    >>> small, generator = limit_space(space, bounds), torch.Generator().manual_seed(0)
    >>> max(sum("conv" in op for op in small.sample(generator).ops) for _ in range(20))
    1
    """
    limited = copy.copy(space)
    kind = type(space)
    limited.__class__ = type(kind.__name__, (Limited, kind), {"__doc__": kind.__doc__})
    vars(limited).update(bounds=bounds, _unlimited=space)
    return limited


def list_within(space: SearchSpace, bounds: Bounds, most: int) -> list[Genotype]:
    """All genotypes within the limits that the smallest and the known lead to; none where there are more."""
    start = smallest(space, bounds, [space.sample(torch.Generator().manual_seed(0))])
    waiting = list(dict.fromkeys([start, *filter(bounds.holds, bounds.known)]))
    found = dict.fromkeys(waiting)
    while waiting and len(found) <= most:
        new = [near for near in space.neighbours(waiting.pop()) if near not in found]
        within = [near for near in new if bounds.holds(near)]
        found.update(dict.fromkeys(within))
        waiting += within
    return list(found) if len(found) <= most else []


def check_bounds(space: SearchSpace, bounds: Bounds) -> None:
    """Raise, with the smallest network that there is, where none is within the limits; else one is known."""
    generator = torch.Generator().manual_seed(0)
    drawn = [space.sample(generator) for _ in range(TRIES // 4)]
    if (within := next((genotype for genotype in drawn if bounds.excess(genotype) <= 1), None)) is None:
        within = _nearest(space, bounds, sorted(drawn, key=bounds.excess)[:4])
    bounds.known.append(within)


def _nearest(space: SearchSpace, bounds: Bounds, starts: Sequence[Genotype]) -> Genotype:
    """What is within the limits though no draw was; raises where nothing is."""
    for name, limit in bounds.limits.items():
        least = bounds.costs(smallest(space, bounds, starts, name))[name]
        if least > limit:
            raise refuse_below(name, limit, least)
    nearest = smallest(space, bounds, starts)
    if bounds.excess(nearest) > 1:
        raise refuse_together(bounds, nearest)
    return nearest
