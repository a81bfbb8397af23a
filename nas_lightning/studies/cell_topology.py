"""Depth and width of published cells; theorems 4.3 and 4.4 on linear ones (Y. Shu's thesis, 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nas_lightning.checks import NonNegativeInt, PositiveFloat, PositiveInt, Seed, at_least, checked, entries
from nas_lightning.runs.findings import Findings
from nas_lightning.studies.base import Study
from nas_lightning.studies.theory.linear_cells import (
    lipschitz,
    narrowest_gradients,
    products,
    smoothness_bounds,
    variance,
    variance_bound,
    widest_gradients,
)
from nas_lightning.studies.theory.published_cells import PublishedCells
from nas_lightning.tables import Entry, Table

_SMOOTH = (
    "‖change of ∂f̂/∂W⁽ⁱ⁾‖/‖change of W⁽ⁱ⁾‖ of the narrowest cell over L of the widest, median; as a share of "
    "the bounds, the largest: above 1 a bound is broken. `printed` is theorem 4.3, `proved` what its proof "
    "gives when nodes move as they do"
)
_SPREAD = (
    "Variance of the gradient of the narrowest cell over that of the widest, median; as a share of the bound "
    "of theorem 4.4, the largest, with σ of the widest cell with the same matrices, and with the same outputs"
)


class CellTopology(Study):
    """Cells by their shape, and how much harder the narrowest is to train than the widest.

    Args:
        genotypes: published cells of DARTS' notation, by name.
        connections: variants of each with random connections, whose shapes are told.
        operations: variants of each with random operations, whose parameters are counted at the
            thesis' size.
        nodes: n, intermediate nodes of the linear cells.
        channels: c, of each node.
        scales: of the matrices: their entries have the deviation scale/√c, so that λ is nearly 2 scale.
        draws: of matrices, steps and data, for each scale.
        samples: inputs of a draw.
        seed: of all that is drawn.

    >>> cell = [("sep_conv_3x3", 0), ("skip_connect", 1)] * 4
    >>> mine = {"normal": cell, "normal_concat": [2, 3, 4, 5], "reduce": cell, "reduce_concat": [2, 3, 4, 5]}
    >>> small = {"connections": 2, "operations": 0, "nodes": 2, "scales": [0.5], "draws": 2}
    >>> findings = CellTopology(genotypes={"mine": mine}, **small).run()
    >>> [table.name for table in findings.tables]
    ['cells', 'adapted', 'connections', 'smoothness', 'variance']
    """

    @checked
    def __init__(
        self,
        *,
        genotypes: Mapping[str, Mapping[str, Any]],
        connections: NonNegativeInt = 13,
        operations: NonNegativeInt = 10,
        nodes: PositiveInt = 4,
        channels: PositiveInt = 8,
        scales: Annotated[Sequence[PositiveFloat], entries(1)] = (0.25, 0.5, 1.0, 2.0),
        draws: PositiveInt = 200,
        samples: Annotated[int, at_least(2)] = 16,
        seed: Seed = 0,
    ) -> None:
        given = {name: dict(cell) for name, cell in genotypes.items()}
        self.cells = PublishedCells(given, connections=connections, operations=operations, seed=seed)
        self.nodes, self.channels, self.scales = nodes, channels, list(scales)
        self.draws, self.samples, self.seed = draws, samples, seed

    def run(self) -> Findings:
        """Measure the cells; draw linear ones and compare them with the bounds."""
        generator = torch.Generator().manual_seed(self.seed)
        blocks: Blocks = {}
        for scale in self.scales:
            draws = [self.draw(scale, generator) for _ in range(self.draws)]
            for number, shares in enumerate(zip(*draws, strict=True), 1):
                blocks[scale, number] = Shares(*map(np.array, zip(*shares, strict=True)))
        what = f"{self.draws} draws, n = {self.nodes}, c = {self.channels}"
        tables = [*self.cells.tables(), _smoothness(blocks, what), _spread(blocks, what)]
        return Findings(tables, self.cells.figures())

    def draw(self, scale: float, generator: torch.Generator) -> list[Shares]:
        """What is found of each block, for fresh matrices, data and a step of random length."""

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator)

        n, c = self.nodes, self.channels
        W = [scale / c**0.5 * normal(c, c) for _ in range(n)]
        x, t = normal(self.samples, c), normal(n, self.samples, c)
        norms = [_norm(matrix) for matrix in W]
        L, before = lipschitz(x), narrowest_gradients(W, x, t)
        same = [variance(g) for g in widest_gradients(W, x, t)]
        composed = [variance(g) for g in widest_gradients(products(W), x, t)]
        shares = []
        for i in range(n):
            step = 10.0 ** float(torch.rand((), generator=generator) * 4 - 3) * normal(c, c)
            moved = [matrix + step if j == i else matrix for j, matrix in enumerate(W)]
            ratio = _norm((narrowest_gradients(moved, x, t)[i] - before[i]).mean(dim=0)) / _norm(step)
            printed, proved = smoothness_bounds(norms, L, i)
            spread = variance(before[i])
            bounds = [variance_bound(norms, sigma, i) for sigma in (same, composed)]
            of_bounds = [spread / bound for bound in bounds]
            shares.append(
                Shares(norms[i], ratio / L, ratio / printed, ratio / proved, spread / same[i], *of_bounds)
            )
        return shares


class Shares(NamedTuple):
    """What a draw says of a block, or each with the values of all draws."""

    norm: Any  # λ of the block's matrix
    slope: Any  # how fast the narrowest cell's gradient changes, over L of the widest
    printed: Any  # the same over the bound of theorem 4.3
    proved: Any  # and over the bound that its proof gives
    spread: Any  # the variance of the narrowest cell's gradient, over that of the widest
    same: Any  # the same over the bound of theorem 4.4, σ with the same matrices
    composed: Any  # and with the same outputs


Blocks = dict[tuple[float, int], Shares]  # by scale and number


def _smoothness(blocks: Blocks, what: str) -> Table:
    rows: list[list[Entry]] = [
        [*block, _median(found.norm), _median(found.slope), *_worst(found.printed), *_worst(found.proved)]
        for block, found in blocks.items()
    ]
    columns = ["scale", "block", "λ", "narrowest/widest"]
    columns += ["of printed", "printed holds", "of proved", "proved holds"]
    return Table("smoothness", f"Theorem 4.3: {what}", columns, rows, _SMOOTH)


def _spread(blocks: Blocks, what: str) -> Table:
    rows: list[list[Entry]] = [
        [*block, _median(found.spread), *_worst(found.same), *_worst(found.composed)]
        for block, found in blocks.items()
    ]
    columns = ["scale", "block", "narrowest/widest"]
    columns += ["of bound, same matrices", "holds", "of bound, same outputs", "it holds"]
    return Table("variance", f"Theorem 4.4: {what}", columns, rows, _SPREAD)


def _norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, ord=2))


def _median(values: Any) -> float:
    return float(np.median(values))


def _worst(shares: Any) -> list[Entry]:
    """The largest share of the bound, and in how many draws it holds, in percent."""
    return [float(np.max(shares)), f"{100 * float(np.mean(shares <= 1 + 1e-9)):.0f} %"]
