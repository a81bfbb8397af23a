"""Costs as a table of operations: what a network costs is the sum over what its genotype has.

    c(A) = c₀ + Σ_g ⟨C_g, X_g(A)⟩

with X_g(A) the one-hot matrix of group g. C is learnt from networks that were counted. An operation is
thought to cost the same on every row at first, then on every row that reads the same node, and last on each
by itself; the first of these is taken that foretells networks which were held out: exactly where costs add
up. Probabilities may stand in the place of X: their expected cost has a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import Group, SearchSpace

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
