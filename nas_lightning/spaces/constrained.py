"""Spaces restricted to architectures whose costs are within limits."""

from __future__ import annotations

import copy
import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace, sample_distinct
from nas_lightning.spaces.group import Group
from nas_lightning.utils.progress import follow
from nas_lightning.utils.randomness import choose

# Linear models of costs
#
#     c(A) = c₀ + Σ_g ⟨C_g, X_g(A)⟩
#
# with X_g(A) the one-hot matrix of group g. C is fitted to networks whose costs were measured. The first of
# three models is used that predicts held-out networks exactly, else the last: an operation costs the same on
# all rows, on all rows that read the same node, or differently on every row. With probabilities instead of X
# the expected cost is differentiable.

Array = NDArray[np.float64]
Entry = tuple[str, int, int]
"""A group, a row, and a column."""
COUNTED, HELD_OUT = 112, 16
"""Measured networks for the fit and for its error."""
FEW_FITTED = 24
"""Networks of the first attempt, which suffice for exactly linear costs."""
_ROUNDING = 1e-6  # of sums of ones
EXACT = 1e-9
"""Relative error below which a model is exact."""


class LinearCost(NamedTuple):
    """The model of one cost.

    Args:
        constant: c₀.
        table: C, (edges, ops) per group.
        error: the largest error on held-out networks, relative to the mean cost.
        unknown: the part of (1, X) outside the span of the measured networks, (entries + 1, columns); None:
            they span all.

    >>> cost = LinearCost(1.0, {"cell": torch.tensor([[0.0, 2.0]])}, error=0.0)
    >>> float(cost.of({"cell": torch.tensor([[0.5, 0.5]])}))
    2.0
    """

    constant: float
    table: Mapping[str, Tensor]
    error: float
    unknown: Array | None = None

    def can_predict(self, hot: Array) -> bool:
        """Return whether X (entries,) is in the span of the measured networks; rare operations may not be."""
        if self.unknown is None:
            return True
        return bool(np.abs(self.unknown[0] + hot @ self.unknown[1:]).max() < _ROUNDING)

    def of(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Return c₀ + Σ ⟨C, X⟩."""
        parts = [(self.table[name].to(matrix) * matrix).sum() for name, matrix in weights.items()]
        return self.constant + torch.stack(parts).sum()


class LinearCosts(NamedTuple):
    """The models of all costs.

    Args:
        costs: by name.
        rates: by group, the mean number of ones in a row and which entries are ever 1, (edges, ops).
    """

    costs: Mapping[str, LinearCost]
    rates: Mapping[str, tuple[float, Tensor]]

    @property
    def exact(self) -> bool:
        """Whether predictions equal measurements."""
        return all(cost.error <= EXACT for cost in self.costs.values())

    def widen(self, off: Mapping[str, float]) -> LinearCosts:
        """Return the same models with at least these errors."""
        found = {
            name: one._replace(error=max(one.error, off.get(name, 0.0))) for name, one in self.costs.items()
        }
        return self._replace(costs=found)

    def expected(self, probabilities: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return E c(A), where rows of probabilities are rescaled to the entries that genotypes can have."""
        ones = {}
        for name, matrix in probabilities.items():
            rate, possible = self.rates[name]
            share = matrix * possible.to(matrix)
            ones[name] = rate * share / share.sum(dim=-1, keepdim=True).clamp_min(1e-12)
        return {name: cost.of(ones) for name, cost in self.costs.items()}


def fit_costs(
    space: SearchSpace, genotypes: Sequence[Genotype], counted: Sequence[Mapping[str, float]]
) -> LinearCosts:
    """Fit the models of a space with groups.

    Args:
        space: with groups.
        genotypes: drawn uniformly.
        counted: the costs of the first genotypes, the last `HELD_OUT` of which are for the error.
    """
    x = np.stack([flat_one_hot(space, genotype) for genotype in genotypes])  # (networks, entries)
    costs = {}
    for name in counted[0]:
        y = np.array([row[name] for row in counted])
        constant, table, error, unknown = _fit(space.groups, x[: len(counted)], y)
        costs[name] = LinearCost(constant, _split(space.groups, table), error, unknown)
    mean = _split(space.groups, x.mean(axis=0))
    rates = {name: (float(m.sum()) / len(m), (m > 0).double()) for name, m in mean.items()}
    return LinearCosts(costs, rates)


def flat_one_hot(space: SearchSpace, genotype: Genotype) -> Array:
    """Return X of a genotype, its groups concatenated: (entries,)."""
    hot = space.one_hot(genotype)
    return np.concatenate([hot[name].numpy().ravel() for name in space.groups]).astype(np.float64)


def _fit(groups: Mapping[str, Group], x: Array, y: Array) -> tuple[float, Array, float, Array | None]:
    """Return c₀, C, the error, and the unknown part, by the first exact model, else the last."""
    entries = [(n, r, c) for n, g in groups.items() for r in range(g.shape[0]) for c in range(g.shape[1])]
    seen, mean = max(1, len(y) - HELD_OUT), max(float(np.abs(y).mean()), 1e-300)
    for keys in (_KEYS[:1], _KEYS[:2], _KEYS):
        spread = np.hstack([_indicators([key(groups, entry) for entry in entries]) for key in keys])
        rows = np.hstack([np.ones((len(x), 1)), x @ spread])
        weights, *_ = np.linalg.lstsq(rows[:seen], y[:seen], rcond=None)
        off = np.abs(rows @ weights - y) / mean
        error = float(np.max(off[seen:], initial=0.0))
        if float(off.max()) <= EXACT:
            break
    table = np.asarray(spread @ weights[1:], dtype=np.float64)
    return float(weights[0]), table, error, _outside(rows[:seen], spread)


def _outside(rows: Array, spread: Array) -> Array | None:
    """Return S (1 − V Vᵀ), the part of (1, X) S outside the span V of the rows; None if it is zero."""
    _, sizes, V = np.linalg.svd(rows, full_matrices=False)
    V = V[sizes > EXACT * sizes[0]]
    S = np.zeros((1 + len(spread), rows.shape[1]))
    S[0, 0], S[1:, 1:] = 1.0, spread
    outside = S - S @ V.T @ V
    return outside if float(np.abs(outside).max()) > _ROUNDING else None


_KEYS: tuple[Callable[[Mapping[str, Group], Entry], Any], ...] = (
    lambda groups, entry: (entry[0], entry[2]),
    lambda groups, entry: (entry[0], groups[entry[0]].rows[entry[1]][0], entry[2]),
    lambda groups, entry: entry,
)
"""Entries with equal keys have equal costs; by model."""


def _indicators(keys: Sequence[Any]) -> Array:
    """Return a column of 0 and 1 for each distinct key: (keys, distinct)."""
    index = {key: column for column, key in enumerate(dict.fromkeys(keys))}
    matrix = np.zeros((len(keys), len(index)))
    matrix[np.arange(len(keys)), [index[key] for key in keys]] = 1.0
    return matrix


def _split(groups: Mapping[str, Group], flat: Array) -> dict[str, Tensor]:
    """Return a vector of all entries as a matrix of (edges, ops) per group."""
    sizes = [group.shape[0] * group.shape[1] for group in groups.values()]
    parts = torch.from_numpy(flat).split(sizes)
    return {name: part.view(group.shape) for (name, group), part in zip(groups.items(), parts, strict=True)}


# Limits on costs

Costs = Mapping[str, float]
DIGITS = 4
_TOO_NEAR = 1e-6  # relative distance to a limit below which predictions may be wrong because of rounding


class Bounds:
    """Limits on the costs of a space's networks.

    Measured costs are cached. In a space with groups a linear model is fitted when it is first needed; if it
    is exact, it replaces further measurements.

    Args:
        space: of the networks.
        limits: the maximum of each cost.
        measure: genotype → costs of its network, by the names of the limits.
        known: genotypes to try if few are within the limits, such as those whose latency was measured: it may
            be far below the predictions for their neighbors.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> bounds = Bounds(space, {"convs": 2.0}, lambda g: {"convs": sum("conv" in op for op in g.ops)})
    >>> cell = space.parse("|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_1x1~1|+|none~0|none~1|none~2|")
    >>> bounds.excess(cell), bounds.holds(cell), bounds.table.exact
    (1.5, False, True)
    """

    def __init__(
        self,
        space: SearchSpace,
        limits: Costs,
        measure: Callable[[Genotype], Costs],
        known: Sequence[Genotype] = (),
    ) -> None:
        self.space, self.limits, self.measure, self.known = space, dict(limits), measure, list(known)
        self.counted: dict[Genotype, Costs] = {}
        self.learned = False

    def costs(self, genotype: Genotype) -> Costs:
        """Return the measured costs of a genotype's network."""
        if genotype not in self.counted:
            self.counted[genotype] = self.measure(genotype)
            if self.learned and self.table.exact:
                self._compare(genotype)
        return self.counted[genotype]

    def _compare(self, genotype: Genotype) -> None:
        """Mark the table as inexact if it contradicts a measurement, so that further costs are measured."""
        guess = self.guess_costs(genotype)
        off = {name: abs(guess[name] / cost - 1) for name, cost in self.counted[genotype].items() if cost}
        if max(off.values(), default=0.0) > _TOO_NEAR:
            self.table = self.table.widen(off)

    def counted_excess(self, genotype: Genotype) -> float:
        """Return `excess` by measured costs."""
        return self._ratio(self.costs(genotype))

    def excess(self, genotype: Genotype) -> float:
        """Return max_k cost_k / limit_k, which is at most 1 within all limits."""
        if self.learned and self.table.exact and genotype not in self.counted:
            guess = self.guess(genotype)
            if abs(guess - 1) > _TOO_NEAR:
                return guess
        return self.counted_excess(genotype)

    def guess(self, genotype: Genotype) -> float:
        """Return `excess` by the table if the space has groups."""
        return self._ratio(self.guess_costs(genotype))

    def guess_costs(self, genotype: Genotype) -> Costs:
        """Return the costs by the table; measured in a space without groups, or if it cannot predict them."""
        if not self.space.groups:
            return self.costs(genotype)
        hot = flat_one_hot(self.space, genotype)
        if not all(cost.can_predict(hot) for cost in self.table.costs.values()):
            return self.costs(genotype)
        weights = {name: matrix.double() for name, matrix in self.space.one_hot(genotype).items()}
        return {name: float(cost.of(weights)) for name, cost in self.table.costs.items()}

    def sure_costs(self, genotype: Genotype) -> Costs:
        """Return the costs by the table; measured if rounding could move them across a limit."""
        costs = self.guess_costs(genotype)
        near = any(abs(costs[name] / limit - 1) <= _TOO_NEAR for name, limit in self.limits.items())
        return self.costs(genotype) if near else costs

    def holds(self, genotype: Genotype) -> bool:
        """Return whether a genotype is within all limits; measures unless the table is sure."""
        if (
            self.learned
            and genotype not in self.counted
            and self.guess(genotype) > 1 + 2 * self.slack + _TOO_NEAR
        ):
            return False
        return self.excess(genotype) <= 1

    @property
    def slack(self) -> float:
        """The largest relative error of the table."""
        return max((cost.error for cost in self.table.costs.values()), default=0.0)

    @cached_property
    def table(self) -> LinearCosts:
        """The linear models of the costs, fitted to networks drawn with a fixed seed."""
        genotypes = sample_distinct(self.space, COUNTED + HELD_OUT, torch.Generator().manual_seed(0))
        for count in (FEW_FITTED + HELD_OUT, len(genotypes)):
            found = fit_costs(
                self.space, genotypes, [self.costs(one) for one in follow(genotypes[:count], "networks")]
            )
            if found.exact:
                break
        self.learned = True
        return found

    def _ratio(self, costs: Costs) -> float:
        return max(costs[name] / limit for name, limit in self.limits.items())


def describe_costs(costs: Costs) -> str:
    """Format costs for a message.

    >>> describe_costs({"params": 12345.0, "latency_ms": 1.5})
    '12,345 params, 1.5 latency_ms'
    """
    return ", ".join(f"{_number(value)} {name}" for name, value in costs.items())


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.{DIGITS}g}"


def _rounded_up(value: float) -> str:
    """Format a number, rounded up, so that it is sufficient as a limit.

    >>> _rounded_up(1.6332), _rounded_up(4822.0), _rounded_up(0.5)
    ('1.634', '4,822', '0.5')
    """
    text = _number(value)
    if float(text.replace(",", "")) >= value:
        return text
    return _number(value + 10.0 ** (math.floor(math.log10(value)) - DIGITS + 1))


def too_low_error(name: str, limit: float, least: float) -> InputError:
    """Return the error for a limit below the cost of the smallest network."""
    expected = f"`{name}` must be at least {_rounded_up(least)}, as the smallest network of the space has"
    return InputError(expected, got=_number(limit), where=f"limits.{name}")


def incompatible_error(bounds: Bounds, nearest: Genotype) -> InputError:
    """Return the error for limits that no network satisfies together, with the nearest one found."""
    expected = "At least one network must satisfy all limits together"
    found = describe_costs(bounds.costs(nearest))
    got = f"{describe_costs(bounds.limits)}; the nearest network found has {found}"
    return InputError(f"{expected}, got {got}", where="limits")


# The best architecture within the limits, and the smallest one
#
#     max_A Σ_g ⟨S_g, X_g(A)⟩   subject to   c_k(A) ≤ limit_k
#
# with the scores S and the one-hot matrices X. Best-first search over neighbors from the unconstrained
# optimum, which finds the optimum if the space is smaller than the budget. If no evaluated architecture is
# within the limits, costs are lowered by the steps with the least loss of score per cost, and then the score
# is raised again by hill climbing within the limits.

MAX_EVALUATED = 4000
"""Budget of the best-first search."""
Value = Callable[[Genotype], float]


def repair(space: SearchSpace, bounds: Bounds, scores: Mapping[str, Tensor], start: Genotype) -> Genotype:
    """Return the best genotype within the limits for scores (edges, ops); `start` is the best without."""
    scores = {name: matrix.detach().cpu().double() for name, matrix in scores.items()}

    def worth(genotype: Genotype) -> float:
        hot = space.one_hot(genotype)
        return sum(float((matrix * hot[name]).sum()) for name, matrix in scores.items())

    found = best_first(space, bounds, worth, start)
    return found or climb(space, bounds, worth, lower(space, bounds, worth, start))


def best_first(space: SearchSpace, bounds: Bounds, worth: Value, start: Genotype) -> Genotype | None:
    """Return the best evaluated architecture within the limits; None if there is none."""
    seen, heap, number = {start}, [(-worth(start), 0, start)], 1
    best, most = None, -math.inf
    while heap and len(seen) < MAX_EVALUATED:
        loss, _, genotype = heapq.heappop(heap)
        if -loss > most and bounds.holds(genotype):
            best, most = genotype, -loss
        for near in space.neighbors(genotype):
            if near not in seen:
                seen.add(near)
                heapq.heappush(heap, (-worth(near), number, near))
                number += 1
    for loss, _, genotype in sorted(heap):  # seen, but not popped
        if -loss <= most:
            break
        if bounds.holds(genotype):
            return genotype
    return best


def lower(space: SearchSpace, bounds: Bounds, worth: Value, start: Genotype) -> Genotype:
    """Descend to an architecture within the limits by steps with the least loss of worth per excess."""
    here, excess, value = start, bounds.guess(start), worth(start)
    while not bounds.holds(here):
        steps = []
        for number, near in enumerate(space.neighbors(here)):
            fall = excess - (guess := bounds.guess(near))
            if fall > 0:
                gain = worth(near)
                steps.append(((value - gain) / fall, number, guess, gain, near))
        if not steps:
            return smallest(space, bounds, [here])
        _, _, excess, value, here = min(steps, key=lambda step: step[:2])
    return here


def climb(space: SearchSpace, bounds: Bounds, worth: Value, start: Genotype) -> Genotype:
    """Move to better neighbors within the limits until there is none."""
    here, value = start, worth(start)
    while True:
        better = sorted(
            ((worth(near), -i, near) for i, near in enumerate(space.neighbors(here))), reverse=True
        )
        step = next((item for item in better if item[0] > value and bounds.holds(item[2])), None)
        if step is None:
            return here
        value, here = step[0], step[2]


def descend(
    space: SearchSpace, start: Genotype, value: Value, generator: torch.Generator, enough: float = -math.inf
) -> Genotype:
    """Move to neighbors of lower value, in random order, until it is `enough` or there is none."""
    here, lowest = start, value(start)
    while lowest > enough:
        near = space.neighbors(here)
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
    """Return the architecture with the lowest cost `name`, or the lowest excess; exact for linear costs."""

    def value(genotype: Genotype) -> float:
        if name is None:
            return bounds.excess(genotype)
        exact = bool(space.groups) and bounds.table.costs[name].error <= EXACT
        return (bounds.guess_costs(genotype) if exact else bounds.costs(genotype))[name]

    starts = [*starts, *sorted(bounds.known, key=value)[:1]]
    if space.groups:
        names = list(bounds.limits) if name is None else [name]
        for cost in (bounds.table.costs[name] for name in names):
            scores = {n: float(matrix.max()) - matrix for n, matrix in cost.table.items()}
            starts.append(space.discretize(scores))
    generator = torch.Generator().manual_seed(0)
    return min((descend(space, one, value, generator) for one in starts), key=value)


# Constrained spaces
#
# Strategies draw, change, and derive architectures by methods of the space. A constrained space overrides
# these, so every strategy satisfies the limits without knowing of them.

MAX_REJECTED = 64
"""Rejected draws after which one is repaired."""
MAX_LISTED = 500
"""Architectures within the limits that are listed if draws are rejected."""


class Constrained(SearchSpace):
    """The methods that limits change; `limit_space` adds it as a base of the space's class."""

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
        genotype = self.unlimited.discretize(scores)
        costs = self.bounds.sure_costs(genotype)
        return {name: costs[name] / limit - 1 for name, limit in self.bounds.limits.items()}

    def sample(self, generator: torch.Generator) -> Genotype:
        """Draw a genotype within the limits: uniformly by rejection or from a list, else by repair."""
        if self._listed:
            return choose(self._listed, generator)
        for _ in range(MAX_REJECTED):
            genotype = self.unlimited.sample(generator)
            if self.bounds.holds(genotype):
                return genotype
        return self.repair_drawn(genotype, generator)

    @cached_property
    def _listed(self) -> list[Genotype]:
        """All genotypes within the limits if they are few; else empty.

        Uses a generator of its own, so that a resumed search draws the same architectures.
        """
        generator = torch.Generator().manual_seed(0)
        if any(self.bounds.holds(self.unlimited.sample(generator)) for _ in range(MAX_REJECTED)):
            return []
        return list_within(self.unlimited, self.bounds, MAX_LISTED)

    def repair_drawn(self, genotype: Genotype, generator: torch.Generator) -> Genotype:
        """Return a random genotype within the limits, starting from one that is not."""
        found = descend(self.unlimited, genotype, self.bounds.excess, generator, enough=1.0)
        return found if self.bounds.holds(found) else smallest(self.unlimited, self.bounds, [found])

    def neighbors(self, genotype: Genotype) -> list[Genotype]:
        """Return the neighbors within the limits."""
        return [near for near in self.unlimited.neighbors(genotype) if self.bounds.holds(near)]

    def mutate(self, genotype: Genotype, generator: torch.Generator) -> Genotype:
        """Draw a neighbor within the limits; if there is none, any genotype within the limits."""
        near = self.unlimited.neighbors(genotype)
        order = torch.randperm(len(near), generator=generator).tolist()
        found = next((near[index] for index in order if self.bounds.holds(near[index])), None)
        return self.sample(generator) if found is None else found

    def discretize(self, scores: Mapping[str, Tensor]) -> Genotype:
        """Return the genotype with the highest scores within the limits, by measured costs."""
        favorite = self.unlimited.discretize(scores)
        return self._keep(favorite, lambda: repair(self.unlimited, self.bounds, scores, favorite))

    def keep_limits(self, genotype: Genotype) -> Genotype:
        """Return the genotype, or a similar one within the limits, by measured costs."""
        generator = torch.Generator().manual_seed(0)
        return self._keep(genotype, lambda: self.repair_drawn(genotype, generator))

    def _keep(self, genotype: Genotype, change: Callable[[], Genotype]) -> Genotype:
        """Return the genotype or a changed one; the second attempt does not use a table that was wrong."""
        for _ in range(2):
            if self.is_within(genotype):
                return genotype
            genotype = change()
        if not self.is_within(genotype):
            raise incompatible_error(self.bounds, genotype)
        return genotype

    def is_within(self, genotype: Genotype) -> bool:
        """Return whether a genotype is within the limits, by measured costs."""
        return self.bounds.holds(genotype) and self.bounds.counted_excess(genotype) <= 1

    def __reduce__(self) -> tuple[Any, ...]:
        return limit_space, (self.unlimited, self.bounds)


def limit_space(space: SearchSpace, bounds: Bounds) -> SearchSpace:
    """Return the space restricted to the limits; an instance of its class and of `Constrained`.

    Args:
        space: any space.
        bounds: the limits of its networks.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> bounds = Bounds(space, {"convs": 1.0}, lambda g: {"convs": sum("conv" in op for op in g.ops)})
    >>> small, generator = limit_space(space, bounds), torch.Generator().manual_seed(0)
    >>> max(sum("conv" in op for op in small.sample(generator).ops) for _ in range(20))
    1
    """
    limited = copy.copy(space)
    kind = type(space)
    limited.__class__ = type(kind.__name__, (Constrained, kind), {"__doc__": kind.__doc__})
    vars(limited).update(bounds=bounds, _unlimited=space)
    return limited


def list_within(space: SearchSpace, bounds: Bounds, most: int) -> list[Genotype]:
    """Return all genotypes within the limits, found by neighbors of the smallest and the known; empty if more
    than `most`.
    """
    start = smallest(space, bounds, [space.sample(torch.Generator().manual_seed(0))])
    waiting = list(dict.fromkeys([start, *filter(bounds.holds, bounds.known)]))
    found = dict.fromkeys(waiting)
    while waiting and len(found) <= most:
        new = [near for near in space.neighbors(waiting.pop()) if near not in found]
        within = [near for near in new if bounds.holds(near)]
        found.update(dict.fromkeys(within))
        waiting += within
    return list(found) if len(found) <= most else []


def check_bounds(space: SearchSpace, bounds: Bounds) -> None:
    """Raise if no network is within the limits, naming the smallest one; else add one to `bounds.known`."""
    generator = torch.Generator().manual_seed(0)
    drawn = [space.sample(generator) for _ in range(MAX_REJECTED // 4)]
    if (within := next((genotype for genotype in drawn if bounds.excess(genotype) <= 1), None)) is None:
        within = _nearest(space, bounds, sorted(drawn, key=bounds.excess)[:4])
    bounds.known.append(within)


def _nearest(space: SearchSpace, bounds: Bounds, starts: Sequence[Genotype]) -> Genotype:
    """Search a genotype within the limits; raise if there is none."""
    for name, limit in bounds.limits.items():
        least = bounds.costs(smallest(space, bounds, starts, name))[name]
        if least > limit:
            raise too_low_error(name, limit, least)
    nearest = smallest(space, bounds, starts)
    if bounds.excess(nearest) > 1:
        raise incompatible_error(bounds, nearest)
    return nearest
