"""Limits on what networks cost, and which architectures keep them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import torch

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.progress import follow
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.limited.linear import COUNTED, FEW, HELD_OUT, LinearCosts, fit_costs, flat_one_hot
from nas_lightning.spaces.sampling import draw_some

Costs = Mapping[str, float]
DIGITS = 4
_TOO_NEAR = 1e-6  # to a limit for sums that are rounded


class Bounds:
    """Limits of a space's networks.

    What is counted once is kept. In a space with groups a table of operations is learnt when it is first
    asked for; where that is exact, nothing is counted any more.

    Args:
        space: whose networks they are.
        limits: the most that each cost may be.
        measure: genotype → what its network costs, by the names of the limits.
        known: genotypes to look at where few are within the limits, such as those that a device has measured:
            predictions may leave each of them alone among neighbours that are slower.

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
        self.learnt = False

    def costs(self, genotype: Genotype) -> Costs:
        """What the network of a genotype costs."""
        if genotype not in self.counted:
            self.counted[genotype] = self.measure(genotype)
            if self.learnt and self.table.exact:
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
        if self.learnt and self.table.exact and genotype not in self.counted:
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
            self.learnt
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
        genotypes = draw_some(self.space, COUNTED + HELD_OUT, torch.Generator().manual_seed(0))
        for count in (FEW + HELD_OUT, len(genotypes)):
            found = fit_costs(
                self.space, genotypes, [self.costs(one) for one in follow(genotypes[:count], "networks")]
            )
            if found.exact:
                break
        self.learnt = True
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
