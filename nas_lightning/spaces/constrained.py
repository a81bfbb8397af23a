"""Spaces restricted to the architectures within limits."""

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

# Costs as a table of operations: what a network costs is the sum over what its genotype has.
#
#     c(A) = c₀ + Σ_g ⟨C_g, X_g(A)⟩
#
# with X_g(A) the one-hot matrix of group g. C is learned from networks that were counted. An operation is
# thought to cost the same on every row at first, then on every row that reads the same node, and last on each
# by itself; the first of these is taken that foretells networks which were held out: exactly where costs add
# up. Probabilities may stand in the place of X: their expected cost has a gradient.

Array = NDArray[np.float64]
Place = tuple[str, int, int]
"""A group, a row and a column."""
COUNTED, HELD_OUT = 112, 16
FEW = 24
"""Networks beside those held out that may be enough where costs add up."""
_MISSED = 1e-6  # above what sums of ones are off by
EXACT = 1e-9
"""A share of a cost: what sums of numbers of this size are off by."""


class LinearCost(NamedTuple):
    """One cost of a space's networks.

    Args:
        constant: c₀.
        table: C, (edges, ops) per group.
        error: the largest of networks that were held out, as a share of a mean cost.
        unknown: what of (1, X) is no combination of those counted, (places + 1, columns); None: nothing.

    >>> cost = LinearCost(1.0, {"cell": torch.tensor([[0.0, 2.0]])}, error=0.0)
    >>> float(cost.of({"cell": torch.tensor([[0.5, 0.5]])}))
    2.0
    """

    constant: float
    table: Mapping[str, Tensor]
    error: float
    unknown: Array | None = None

    def foretells(self, hot: Array) -> bool:
        """Whether counted networks say what X costs, (places,): a rare operation may be in none of them."""
        if self.unknown is None:
            return True
        return bool(np.abs(self.unknown[0] + hot @ self.unknown[1:]).max() < _MISSED)

    def of(self, weights: Mapping[str, Tensor]) -> Tensor:
        """c₀ + Σ ⟨C, X⟩."""
        parts = [(self.table[name].to(matrix) * matrix).sum() for name, matrix in weights.items()]
        return self.constant + torch.stack(parts).sum()


class LinearCosts(NamedTuple):
    """All costs of a space's networks that are asked for.

    Args:
        costs: by name.
        rates: how many ones a row of each group has in the mean, (edges, ops) being 0 where none is ever.
    """

    costs: Mapping[str, LinearCost]
    rates: Mapping[str, tuple[float, Tensor]]

    @property
    def exact(self) -> bool:
        """Whether the table says what counting would."""
        return all(cost.error <= EXACT for cost in self.costs.values())

    def widen(self, off: Mapping[str, float]) -> LinearCosts:
        """The same costs, which are known to be so far off at least."""
        found = {
            name: one._replace(error=max(one.error, off.get(name, 0.0))) for name, one in self.costs.items()
        }
        return self._replace(costs=found)

    def expected(self, probabilities: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """E c(A): rows as distributions over what a genotype can have, scaled to as many as it has."""
        ones = {}
        for name, matrix in probabilities.items():
            rate, possible = self.rates[name]
            share = matrix * possible.to(matrix)
            ones[name] = rate * share / share.sum(dim=-1, keepdim=True).clamp_min(1e-12)
        return {name: cost.of(ones) for name, cost in self.costs.items()}


def fit_costs(
    space: SearchSpace, genotypes: Sequence[Genotype], counted: Sequence[Mapping[str, float]]
) -> LinearCosts:
    """The table of a space with groups.

    Args:
        space: with groups.
        genotypes: drawn uniformly.
        counted: what the networks of the first of them cost; the last of these are held out.
    """
    x = np.stack([flat_one_hot(space, genotype) for genotype in genotypes])  # (networks, places)
    costs = {}
    for name in counted[0]:
        y = np.array([row[name] for row in counted])
        constant, table, error, unknown = _fit(space.groups, x[: len(counted)], y)
        costs[name] = LinearCost(constant, _split(space.groups, table), error, unknown)
    mean = _split(space.groups, x.mean(axis=0))
    rates = {name: (float(m.sum()) / len(m), (m > 0).double()) for name, m in mean.items()}
    return LinearCosts(costs, rates)


def flat_one_hot(space: SearchSpace, genotype: Genotype) -> Array:
    """X of a genotype, its groups one behind the other: (places,)."""
    hot = space.one_hot(genotype)
    return np.concatenate([hot[name].numpy().ravel() for name in space.groups]).astype(np.float64)


def _fit(groups: Mapping[str, Group], x: Array, y: Array) -> tuple[float, Array, float, Array | None]:
    """c₀, C, the error and what is unknown, by the coarsest likeness that is exact, else the finest."""
    places = [(n, r, c) for n, g in groups.items() for r in range(g.shape[0]) for c in range(g.shape[1])]
    seen, mean = max(1, len(y) - HELD_OUT), max(float(np.abs(y).mean()), 1e-300)
    for likenesses in (_LIKENESSES[:1], _LIKENESSES[:2], _LIKENESSES):
        spread = np.hstack([_indicators([like(groups, place) for place in places]) for like in likenesses])
        rows = np.hstack([np.ones((len(x), 1)), x @ spread])
        weights, *_ = np.linalg.lstsq(rows[:seen], y[:seen], rcond=None)
        off = np.abs(rows @ weights - y) / mean
        error = float(np.max(off[seen:], initial=0.0))
        if float(off.max()) <= EXACT:
            break
    table = np.asarray(spread @ weights[1:], dtype=np.float64)
    return float(weights[0]), table, error, _outside(rows[:seen], spread)


def _outside(rows: Array, spread: Array) -> Array | None:
    """S (1 − V Vᵀ), what of (1, X) S is no combination of the rows, V their space; None where all is."""
    _, sizes, V = np.linalg.svd(rows, full_matrices=False)
    V = V[sizes > EXACT * sizes[0]]
    S = np.zeros((1 + len(spread), rows.shape[1]))
    S[0, 0], S[1:, 1:] = 1.0, spread
    outside = S - S @ V.T @ V
    return outside if float(np.abs(outside).max()) > _MISSED else None


_LIKENESSES: tuple[Callable[[Mapping[str, Group], Place], Any], ...] = (
    lambda groups, place: (place[0], place[2]),
    lambda groups, place: (place[0], groups[place[0]].rows[place[1]][0], place[2]),
    lambda groups, place: place,
)
"""What rows share the cost of an operation by: nothing, what they read, being themselves."""


def _indicators(keys: Sequence[Any]) -> Array:
    """A column for each distinct key: (keys, distinct)."""
    index = {key: column for column, key in enumerate(dict.fromkeys(keys))}
    matrix = np.zeros((len(keys), len(index)))
    matrix[np.arange(len(keys)), [index[key] for key in keys]] = 1.0
    return matrix


def _split(groups: Mapping[str, Group], flat: Array) -> dict[str, Tensor]:
    """A vector of all places as a matrix of (edges, ops) per group."""
    sizes = [group.shape[0] * group.shape[1] for group in groups.values()]
    parts = torch.from_numpy(flat).split(sizes)
    return {name: part.view(group.shape) for (name, group), part in zip(groups.items(), parts, strict=True)}


# Limits on what networks cost, and which architectures keep them.

Costs = Mapping[str, float]
DIGITS = 4
_TOO_NEAR = 1e-6  # to a limit for sums that are rounded


class Bounds:
    """Limits of a space's networks.

    What is counted once is kept. In a space with groups a table of operations is learned when it is first
    asked for; where that is exact, nothing is counted any more.

    Args:
        space: whose networks they are.
        limits: the most that each cost may be.
        measure: genotype → what its network costs, by the names of the limits.
        known: genotypes to look at where few are within the limits, such as those that a device has measured:
            predictions may leave each of them alone among neighbors that are slower.

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
        """What the network of a genotype costs."""
        if genotype not in self.counted:
            self.counted[genotype] = self.measure(genotype)
            if self.learned and self.table.exact:
                self._compare(genotype)
        return self.counted[genotype]

    def _compare(self, genotype: Genotype) -> None:
        """A table that a count contradicts is exact no more, so that everything is counted from then on."""
        guess = self.guess_costs(genotype)
        off = {name: abs(guess[name] / cost - 1) for name, cost in self.counted[genotype].items() if cost}
        if max(off.values(), default=0.0) > _TOO_NEAR:
            self.table = self.table.widen(off)

    def counted_excess(self, genotype: Genotype) -> float:
        """The same as `excess`, counted whatever a table says."""
        return self._ratio(self.costs(genotype))

    def excess(self, genotype: Genotype) -> float:
        """max_k cost_k / limit_k, at most 1 within all limits."""
        if self.learned and self.table.exact and genotype not in self.counted:
            guess = self.guess(genotype)
            if abs(guess - 1) > _TOO_NEAR:
                return guess
        return self.counted_excess(genotype)

    def guess(self, genotype: Genotype) -> float:
        """The same by the table, where the space can have one."""
        return self._ratio(self.guess_costs(genotype))

    def guess_costs(self, genotype: Genotype) -> Costs:
        """What it costs by the table; counted in a space without groups, or where the table cannot know."""
        if not self.space.groups:
            return self.costs(genotype)
        hot = flat_one_hot(self.space, genotype)
        if not all(cost.foretells(hot) for cost in self.table.costs.values()):
            return self.costs(genotype)
        weights = {name: matrix.double() for name, matrix in self.space.one_hot(genotype).items()}
        return {name: float(cost.of(weights)) for name, cost in self.table.costs.items()}

    def sure_costs(self, genotype: Genotype) -> Costs:
        """By the table; counted where a rounded sum is too near a limit to say on which side it is."""
        costs = self.guess_costs(genotype)
        near = any(abs(costs[name] / limit - 1) <= _TOO_NEAR for name, limit in self.limits.items())
        return self.costs(genotype) if near else costs

    def holds(self, genotype: Genotype) -> bool:
        """Whether it is within all limits; what the table says is far over is not counted."""
        if (
            self.learned
            and genotype not in self.counted
            and self.guess(genotype) > 1 + 2 * self.slack + _TOO_NEAR
        ):
            return False
        return self.excess(genotype) <= 1

    @property
    def slack(self) -> float:
        """How far the table may be off."""
        return max((cost.error for cost in self.table.costs.values()), default=0.0)

    @cached_property
    def table(self) -> LinearCosts:
        """What operations cost, from networks drawn by a seed of its own."""
        genotypes = sample_distinct(self.space, COUNTED + HELD_OUT, torch.Generator().manual_seed(0))
        for count in (FEW + HELD_OUT, len(genotypes)):
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
    """Costs as a line has them.

    >>> describe_costs({"params": 12345.0, "latency_ms": 1.5})
    '12,345 params, 1.5 latency_ms'
    """
    return ", ".join(f"{_number(value)} {name}" for name, value in costs.items())


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.{DIGITS}g}"


def _no_less(value: float) -> str:
    """The number, rounded up where it is rounded: as a limit, what the line names is enough.

    >>> _no_less(1.6332), _no_less(4822.0), _no_less(0.5)
    ('1.634', '4,822', '0.5')
    """
    text = _number(value)
    if float(text.replace(",", "")) >= value:
        return text
    return _number(value + 10.0 ** (math.floor(math.log10(value)) - DIGITS + 1))


def refuse_below(name: str, limit: float, least: float) -> InputError:
    """The error of a limit that no network of the space keeps."""
    words = f"expected at least {_no_less(least)}, which the smallest network of the space has"
    return InputError(words, got=_number(limit), where=f"limits.{name}")


def refuse_together(bounds: Bounds, nearest: Genotype) -> InputError:
    """The error of limits that no network keeps at once, with the nearest that was found."""
    got = f"{describe_costs(bounds.limits)}; the nearest that was found has"
    expected = "expected limits that one network keeps together"
    return InputError(f"{expected}: {got} {describe_costs(bounds.costs(nearest))}", where="limits")


# The architecture within limits that scores lose least by, and the smallest that there is.
#
#     max_A Σ_g ⟨S_g, X_g(A)⟩   subject to   c_k(A) ≤ limit_k
#
# S the scores and X the one-hot matrices. Architectures are looked at in the order of their scores, from the
# best on, each reached from a better one by changing one decision. That comes to the optimum where a space is
# as small as what is looked at; where nothing is found so, costs are lowered at the least loss of score for
# what they fall, and scores are raised again within the limits.

MOST = 4000
"""Architectures that are looked at."""
Value = Callable[[Genotype], float]


def repair(space: SearchSpace, bounds: Bounds, scores: Mapping[str, Tensor], start: Genotype) -> Genotype:
    """What scores of (edges, ops) favor within the limits; `start` is what they favor without."""
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
        for near in space.neighbors(genotype):
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
    """Better and better neighbors that hold, until there is none."""
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
    """Neighbors in random order, each step to one of a lower value, until it is enough or there is none."""
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
            starts.append(space.discretize(scores))
    generator = torch.Generator().manual_seed(0)
    return min((descend(space, one, value, generator) for one in starts), key=value)


# A space of which only the networks within limits are left.
#
# What draws, changes or derives architectures does so by four methods of its space; here they know the
# limits. So a strategy keeps them that has never heard of any, a user's own as well.

TRIES = 64
"""Draws that are refused before one is repaired."""
FEW_SPACE = 500
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
        genotype = self.unlimited.discretize(scores)
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
        return list_within(self.unlimited, self.bounds, FEW_SPACE)

    def repair_drawn(self, genotype: Genotype, generator: torch.Generator) -> Genotype:
        """A random genotype within the limits, from one that is not."""
        found = descend(self.unlimited, genotype, self.bounds.excess, generator, enough=1.0)
        return found if self.bounds.holds(found) else smallest(self.unlimited, self.bounds, [found])

    def neighbors(self, genotype: Genotype) -> list[Genotype]:
        """Those within the limits."""
        return [near for near in self.unlimited.neighbors(genotype) if self.bounds.holds(near)]

    def mutate(self, genotype: Genotype, generator: torch.Generator) -> Genotype:
        """One of the neighbors within the limits; where there is none, a genotype like any other."""
        near = self.unlimited.neighbors(genotype)
        order = torch.randperm(len(near), generator=generator).tolist()
        found = next((near[index] for index in order if self.bounds.holds(near[index])), None)
        return self.sample(generator) if found is None else found

    def discretize(self, scores: Mapping[str, Tensor]) -> Genotype:
        """The genotype that scores favor within the limits, as they are counted."""
        favorite = self.unlimited.discretize(scores)
        return self._keep(favorite, lambda: repair(self.unlimited, self.bounds, scores, favorite))

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
        new = [near for near in space.neighbors(waiting.pop()) if near not in found]
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
