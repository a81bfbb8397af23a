"""What a latency is predicted from: how often a network has each operation, and known devices' latencies.

Known devices are columns X of standardised logarithms of latencies. A new device is thought of as a draw from
them: with X = U Σ Vᵀ its column is U Σ w/√devices with w ~ N(0, I), since the entries of √devices·V have mean
square 1. Counts of operations, with weights ~ N(0, β²), say what is the new device's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nas_lightning.checks import PositiveFloat
from nas_lightning.cost.latency.gaussian import Array
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.sampling import draw_some

SAMPLE = 256  # architectures of a space that say how counts vary
LEVEL = 10.0  # the prior's deviation of the mean, in deviations of the measurements: next to nothing is known


@dataclass(frozen=True)
class Prior:
    """What is thought of a device before it is measured, in deviations of its measurements.

    Args:
        noise: σ, what neither counts nor other devices explain.
        own_variance: of the counts' part, beside the known devices' part of 1; alone it has 1 itself.

    >>> Prior().noise
    0.3
    """

    noise: PositiveFloat = 0.3  # both chosen on HELP's four validation devices: `study=devices`
    own_variance: PositiveFloat = 0.4


class KnownDevices:
    """Devices whose latencies of all architectures are there.

    Args:
        latency: device → architecture, in its space's notation → milliseconds.

    >>> KnownDevices({"phone": {"a": 1.0, "b": 2.0, "c": 4.0}}).rows(["a", "c"]).round(2)
    array([[-1.22],
           [ 1.22]])
    """

    def __init__(self, latency: Mapping[str, Mapping[str, float]]) -> None:
        columns = list(latency.values())
        self.index = {name: row for row, name in enumerate(columns[0])}
        logs = np.log(np.array([[column[name] for name in self.index] for column in columns])).T
        standard = (logs - logs.mean(axis=0)) / logs.std(axis=0)
        u, sigma, _ = np.linalg.svd(standard, full_matrices=False)
        self.factors: Array = u * sigma / np.sqrt(len(columns))  # (architectures, devices)

    def rows(self, names: Sequence[str]) -> Array:
        """U Σ/√devices of some architectures: (architectures, devices)."""
        for name in names:
            if name not in self.index:
                raise InputError("expected an architecture that the known devices' table has", got=name)
        return self.factors[[self.index[name] for name in names]]


@dataclass(frozen=True)
class Features:
    """Architectures of a space as rows φ, whose weights are standard normal beforehand.

    Args:
        space: that they are of.
        known: devices that the new one may resemble.
        prior: how much the counts weigh beside them.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> Features(space).rows(draw_some(space, 3, torch.Generator().manual_seed(0))).shape
    (3, 6)
    """

    space: SearchSpace
    known: KnownDevices | None = None
    prior: Prior = Prior()

    def __post_init__(self) -> None:
        sample = draw_some(self.space, SAMPLE, torch.Generator().manual_seed(0))
        names = sorted({key for genotype in sample for key in count_operations(genotype)})
        counts = _matrix(sample, names)
        variance = self.prior.own_variance if self.known else 1.0
        scale = np.sqrt(variance / max(counts.var(axis=0).sum(), 1e-12))
        object.__setattr__(self, "_counted", (names, counts.mean(axis=0), scale))

    def rows(self, genotypes: Sequence[Genotype]) -> Array:
        """(architectures, features): the mean's, the counts', the known devices'."""
        names, centre, scale = self._counted  # type: ignore[attr-defined]
        own = [np.full((len(genotypes), 1), LEVEL), scale * (_matrix(genotypes, names) - centre)]
        if self.known is not None:
            own.append(self.known.rows([self.space.notation(genotype) for genotype in genotypes]))
        return np.hstack(own)


def count_operations(genotype: Genotype) -> Counter[tuple[str, str]]:
    """How often each cell has each operation.

    >>> from nas_lightning.spaces import NasBench201
    >>> cell = "|skip_connect~0|+|none~0|none~1|+|nor_conv_3x3~0|nor_conv_3x3~1|none~2|"
    >>> sorted(count_operations(NasBench201().parse(cell)).items())
    [(('cell', 'none'), 3), (('cell', 'nor_conv_3x3'), 2), (('cell', 'skip_connect'), 1)]
    """
    return Counter((name, edge.op) for name, cell in genotype for edge in cell.edges)


def _matrix(genotypes: Sequence[Genotype], names: Sequence[tuple[str, str]]) -> Array:
    counted = [count_operations(genotype) for genotype in genotypes]
    return np.array([[counts[name] for name in names] for counts in counted], dtype=np.float64)
