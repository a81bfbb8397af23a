"""The architecture within limits that scores lose least by, and the smallest that there is.

    max_A Σ_g ⟨S_g, X_g(A)⟩   subject to   c_k(A) ≤ limit_k

S the scores and X the one-hot matrices. Architectures are looked at in the order of their scores, from the
best on, each reached from a better one by changing one decision. That comes to the optimum where a space is
as small as what is looked at; where nothing is found so, costs are lowered at the least loss of score for
what they fall, and scores are raised again within the limits.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.limited.bounds import Bounds
from nas_lightning.spaces.limited.linear import EXACT

MOST = 4000
"""Architectures that are looked at."""
Value = Callable[[Genotype], float]


def repair(space: SearchSpace, bounds: Bounds, scores: Mapping[str, Tensor], start: Genotype) -> Genotype:
    """What scores of (edges, ops) favour within the limits; `start` is what they favour without."""
    scores = {name: matrix.detach().cpu().double() for name, matrix in scores.items()}

    def worth(genotype: Genotype) -> float:
        hot = space.one_hot(genotype)
        return sum(float((matrix * hot[name]).sum()) for name, matrix in scores.items())

    found = look_around(space, bounds, worth, start)
    return found or climb(space, bounds, worth, lower(space, bounds, worth, start))


def look_around(space: SearchSpace, bounds: Bounds, worth: Value, start: Genotype) -> Genotype | None:
    """The best of what is looked at from the most worth on that holds; None where nothing does."""
    seen, heap, number = {start}, [(-worth(start), 0, start)], 1
    best, most = None, -math.inf
    while heap and len(seen) < MOST:
        loss, _, genotype = heapq.heappop(heap)
        if -loss > most and bounds.holds(genotype):
            best, most = genotype, -loss
        for near in space.neighbours(genotype):
            if near not in seen:
                seen.add(near)
                heapq.heappush(heap, (-worth(near), number, near))
                number += 1
    for loss, _, genotype in sorted(heap):  # what was seen and had not its turn
        if -loss <= most:
            break
        if bounds.holds(genotype):
            return genotype
    return best


def lower(space: SearchSpace, bounds: Bounds, worth: Value, start: Genotype) -> Genotype:
    """An architecture that holds, by steps of the least loss of worth for what the excess falls."""
    here, excess, value = start, bounds.guess(start), worth(start)
    while not bounds.holds(here):
        steps = []
        for number, near in enumerate(space.neighbours(here)):
            fall = excess - (guess := bounds.guess(near))
            if fall > 0:
                gain = worth(near)
                steps.append(((value - gain) / fall, number, guess, gain, near))
        if not steps:
            return smallest(space, bounds, [here])
        _, _, excess, value, here = min(steps, key=lambda step: step[:2])
    return here


def climb(space: SearchSpace, bounds: Bounds, worth: Value, start: Genotype) -> Genotype:
    """Better and better neighbours that hold, until there is none."""
    here, value = start, worth(start)
    while True:
        better = sorted(
            ((worth(near), -i, near) for i, near in enumerate(space.neighbours(here))), reverse=True
        )
        step = next((item for item in better if item[0] > value and bounds.holds(item[2])), None)
        if step is None:
            return here
        value, here = step[0], step[2]


def descend(
    space: SearchSpace, start: Genotype, value: Value, generator: torch.Generator, enough: float = -math.inf
) -> Genotype:
    """Neighbours in random order, each step to one of a lower value, until it is enough or there is none."""
    here, lowest = start, value(start)
    while lowest > enough:
        near = space.neighbours(here)
        for index in torch.randperm(len(near), generator=generator).tolist():
            if (other := value(near[index])) < lowest:
                here, lowest = near[index], other
                break
        else:
            return here
    return here


def smallest(
    space: SearchSpace, bounds: Bounds, starts: Sequence[Genotype], name: str | None = None
) -> Genotype:
    """The architecture with the least of one cost, or of the excess over all; exact where costs add up.

    The best of those that are known beforehand is a start of its own.
    """

    def value(genotype: Genotype) -> float:
        if name is None:
            return bounds.excess(genotype)
        exact = bool(space.groups) and bounds.table.costs[name].error <= EXACT  # nothing has to be counted
        return (bounds.guess_costs(genotype) if exact else bounds.costs(genotype))[name]

    starts = [*starts, *sorted(bounds.known, key=value)[:1]]
    if space.groups:
        names = list(bounds.limits) if name is None else [name]
        for cost in (bounds.table.costs[name] for name in names):
            scores = {n: float(matrix.max()) - matrix for n, matrix in cost.table.items()}
            starts.append(space.discretise(scores))
    generator = torch.Generator().manual_seed(0)
    return min((descend(space, one, value, generator) for one in starts), key=value)
