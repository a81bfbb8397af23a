"""A device's latencies, predicted from a few that were measured.

    log t(a) = m + s z(a),   z(a) = φ(a)ᵀw + ε

with m and s the mean and deviation of the measured logarithms, so that errors are shares of a latency, and
the regression of `gaussian`. HELP (Lee et al. 2021, arXiv:2106.08630) asks the same question, with a network
that meta-learning trains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nas_lightning.cost.latency.features import Features
from nas_lightning.cost.latency.gaussian import Array, Belief, best_rows, left_out
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype

LEAST = 3  # measurements that a mean, a deviation and anything else can be told from
DEGREES = (
    4.0  # measurements' worth of trust in the prior's errors, beside those of the measurements themselves
)


class Latency(NamedTuple):
    """A predicted latency.

    Args:
        ms: milliseconds.
        error: its standard deviation.

    >>> Latency(2.0, error=0.1)
    Latency(ms=2.0, error=0.1)
    """

    ms: float
    error: float


class LatencyModel:
    """The latencies of a space's networks on one device.

    Args:
        features: what they are predicted from.
        measured: milliseconds, of at least three networks.

    >>> import torch
    >>> from nas_lightning.spaces import NasBench201
    >>> space, generator = NasBench201(), torch.Generator().manual_seed(0)
    >>> cells = [space.sample(generator) for _ in range(40)]
    >>> def truth(cell):  # every convolution takes a millisecond, and all the rest two
    ...     return 2.0 + sum("conv" in edge.op for edge in cell["cell"].edges)
    >>> model = LatencyModel(Features(space), {cell: truth(cell) for cell in cells[:30]})
    >>> all(abs(model.predict([cell])[0].ms / truth(cell) - 1) < 0.25 for cell in cells[30:])
    True
    """

    def __init__(self, features: Features, measured: Mapping[Genotype, float]) -> None:
        self.features = features
        ms = np.array([*measured.values()], dtype=np.float64)
        self.regression = Regression(features.rows([*measured]), ms, features.prior.noise)

    def predict(self, genotypes: Sequence[Genotype]) -> list[Latency]:
        """Each network's latency."""
        ms, errors = self.regression.predict(self.features.rows(genotypes))
        return [Latency(float(t), float(e)) for t, e in zip(ms, errors, strict=True)]


class Regression:
    """The regression of logarithms, between rows of features and milliseconds.

    Args:
        rows: features of what was measured, (measured, features).
        ms: what was measured.
        noise: σ.

    >>> regression = Regression(np.array([[-1.0], [0.0], [1.0]]), np.exp([1.0, 2.0, 3.0]), noise=0.1)
    >>> bool(regression.predict(np.array([[2.0]]))[0] > np.exp(3.0))
    True
    """

    def __init__(self, rows: Array, ms: Array, noise: float) -> None:
        if len(rows) < LEAST:
            raise InputError(f"expected at least {LEAST} measured latencies", got=len(rows))
        logs = np.log(ms)
        self.mean, self.scale = float(logs.mean()), max(float(logs.std()), 1e-6)
        z, before = (logs - self.mean) / self.scale, Belief.before(rows.shape[1], noise)
        self.belief = before.condition(rows, z)
        squares = np.square(left_out(before, rows, z)).sum()
        self.widening = float(np.sqrt((DEGREES + squares) / (DEGREES + len(z))))

    def predict(self, rows: Array) -> tuple[Array, Array]:
        """Milliseconds and their standard deviations: (n,), (n,)."""
        mean, deviation = self.belief.predict(rows)
        ms = np.exp(self.mean + self.scale * mean)
        return ms, ms * self.scale * self.widening * deviation


def indices_to_measure(features: Features, rows: Array, count: int) -> list[int]:
    """Of distinct networks in random order, those whose latencies say most of all the others'.

    Where devices are known, these are the ones that leave the least variance, which does not depend on what
    is measured. Where none is, they are the first: such a design would take the ends of what it believes in,
    cells of one operation only, and counts explain ordinary cells better than those.
    """
    if not LEAST <= count <= len(rows):
        raise InputError(f"expected {LEAST} to {len(rows)} networks", got=count)
    return list(range(count)) if features.known is None else best_rows(rows, count, features.prior.noise)
