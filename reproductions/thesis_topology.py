"""Topology of cells (Y. Shu's thesis, 2022, chapter 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from nas_lightning.backends import spread
from nas_lightning.data import SearchData
from nas_lightning.data.batches import Batch
from nas_lightning.genotype import Cell, Genotype
from nas_lightning.metrics import GradNorm
from nas_lightning.metrics.engine import Passes
from nas_lightning.metrics.gradients import SampleGradNorm
from nas_lightning.metrics.pool import PoolFile
from nas_lightning.objectives.counts import count_parameters
from nas_lightning.plots import Picture
from nas_lightning.plots.cells import draw_topologies
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces import DartsSpace, topology
from nas_lightning.spaces.darts import TwoCellSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.spaces.topology import width
from nas_lightning.studies import figures
from nas_lightning.studies.base import Study
from nas_lightning.studies.scoring import ParallelStudy, Values, estimate, mean_estimate, spearman
from nas_lightning.studies.training import train_once
from nas_lightning.tasks import task_of
from nas_lightning.utils.progress import follow
from nas_lightning.utils.randomness import generator, seed_of_name
from nas_lightning.utils.tables import Entry, Table
from nas_lightning.validation import (
    DISTINCT,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seed,
    above,
    at_least,
    at_most,
    checked,
    entries,
)
from reproductions.plain_training import Case, train_cases, train_curve

# How deep and how wide a cell is (Y. Shu's thesis, 2022, section 4.2; arXiv:1909.09569).


def depth(cell: Cell) -> int:
    """Return the edges on the longest path from an input to the output, which concatenates the outputs.

    >>> cell = Cell([("a", 0, 2), ("a", 1, 2), ("a", 0, 3), ("a", 2, 3)], inputs=2, output=[2, 3])
    >>> depth(cell), width(cell)
    (3, Fraction(3, 2))
    """
    concatenates = len(cell.output) > 1 or cell.output[0] < cell.inputs
    return topology.depth(cell) + concatenates


# Random variants of a published cell, and its widest form (Y. Shu's thesis, 2022, A.1.2; arXiv:1909.09569).
#
# Cells are in the published notation: for each kind a list of (operation, source), two for each inner node.
#
#     connections    the k-th pair keeps its operation and its node t; its source is uniform over 0 … t − 1
#     operations     the k-th pair keeps its source; its operation is uniform over the candidates
#     adapted        every node reads both inputs: sources 0, 1, 0, 1, … — the widest and shallowest cell
#     deepest        every node reads the two before it: the narrowest and deepest

INPUTS, EDGES = 2, 2  # of a cell, and into each of its inner nodes
KINDS = ("normal", "reduce")
OPERATIONS = (
    *("max_pool_3x3", "avg_pool_3x3", "skip_connect"),
    *("sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5"),
)
"""The candidates in the order of the authors' public code, which their seeds refer to."""

Description = Mapping[str, Any]


def random_connections(cells: Description, seed: int) -> dict[str, Any]:
    """Return the same operations with random sources."""
    random = np.random.RandomState(seed % 2**32)
    return _with(cells, lambda pairs: [(op, random.randint(_node(k))) for k, (op, _) in enumerate(pairs)])


def random_operations(
    cells: Description, seed: int, candidates: Sequence[str] = OPERATIONS
) -> dict[str, Any]:
    """Return the same connections with random operations.

    Seeds 1 to 10 are C₁ to C₁₀ of table 4.3: NumPy's legacy generator, the normal cell first, as the public
    code has it.
    """
    random = np.random.RandomState(seed % 2**32)

    def drawn(pairs: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        choice = random.choice(len(candidates), len(pairs))
        return [(candidates[number], source) for number, (_, source) in zip(choice, pairs, strict=True)]

    return _with(cells, drawn)


def adapted(cells: Description) -> dict[str, Any]:
    """Return the same operations, with both inputs of the cell as the sources of every node.

    >>> adapted({"normal": [("sep_conv_3x3", 0), ("skip_connect", 2)], "normal_concat": [2]})["normal"]
    [('sep_conv_3x3', 0), ('skip_connect', 1)]
    """
    return _with(cells, lambda pairs: [(op, k % EDGES) for k, (op, _) in enumerate(pairs)])


def deepest(cells: Description) -> dict[str, Any]:
    """Return the same operations, with the two previous nodes as the sources of every node."""
    return _with(cells, lambda pairs: [(op, _node(k) - 1 - k % EDGES) for k, (op, _) in enumerate(pairs)])


def _node(k: int) -> int:
    """Return the inner node of the k-th pair."""
    return INPUTS + k // EDGES


def _with(cells: Description, change: Any) -> dict[str, Any]:
    changed = {kind: change([tuple(pair) for pair in cells[kind]]) for kind in KINDS if kind in cells}
    return {**cells, **{kind: [(op, int(source)) for op, source in pairs] for kind, pairs in changed.items()}}


# The widest against the narrowest linear cell (Y. Shu's thesis, 2022, theorems 4.3 and 4.4, appendix A.2).
#
# With the same matrices W⁽¹⁾ … W⁽ⁿ⁾, the widest cell has the nodes y⁽ⁱ⁾ = W⁽ⁱ⁾ x, the narrowest ŷ⁽ⁱ⁾ = W⁽ⁱ⁾ ⋯
# W⁽¹⁾ x. With f = ½ Σ_i ‖y⁽ⁱ⁾ − t⁽ⁱ⁾‖² after both, averaged over samples, every quantity of the theorems is
# known: the block-wise Lipschitz constants of the widest cell are L = ‖E x xᵀ‖ exactly. Matrix norms are
# spectral, variances are of entries (Frobenius), λ⁽ⁱ⁾ = ‖W⁽ⁱ⁾‖.
#
# Theorem 4.3 states, for a change of W⁽ⁱ⁾ alone,
#
#     ‖∂f̂/∂W₁⁽ⁱ⁾ − ∂f̂/∂W₂⁽ⁱ⁾‖ ≤ (Π_{j<i} λ⁽ʲ⁾) L⁽ⁱ⁾ ‖W₁⁽ⁱ⁾ − W₂⁽ⁱ⁾‖.
#
# Its proof assumes that gradients at the nodes after i do not change, although these nodes change, and that
# node i changes by (W₁ − W₂) x, although its input is ŷ⁽ⁱ⁻¹⁾. Without these two steps the proof gives, for
# objectives that are sums over nodes,
#
#     ‖…‖ ≤ Σ_{k≥i} L⁽ᵏ⁾ (Π_{j≤k, j≠i} λ⁽ʲ⁾)² ‖W₁⁽ⁱ⁾ − W₂⁽ⁱ⁾‖.
#
# Theorem 4.4, E‖∂f̂/∂W⁽ⁱ⁾ − E …‖² ≤ n Σ_{k≥i} (σ⁽ᵏ⁾/λ⁽ⁱ⁾ Π_{j≤k} λ⁽ʲ⁾)², holds with σ⁽ᵏ⁾ of the widest cell
# with the same outputs, whose matrices are the products W⁽ᵏ⁾ ⋯ W⁽¹⁾, but not with the same matrices.

Matrices = Sequence[Tensor]


def products(W: Matrices) -> list[Tensor]:
    """Return W⁽ⁱ⁾ ⋯ W⁽¹⁾, with which the widest cell has the outputs of the narrowest."""
    found = [W[0]]
    for matrix in W[1:]:
        found.append(matrix @ found[-1])
    return found


def widest_gradients(W: Matrices, x: Tensor, t: Tensor) -> list[Tensor]:
    """Return ∂f/∂W⁽ⁱ⁾ = (W⁽ⁱ⁾ x − t⁽ⁱ⁾) xᵀ of each sample (A.1): x (N, c), t (n, N, c) → n × (N, c, c)."""
    return [torch.einsum("na,nb->nab", x @ matrix.T - goal, x) for matrix, goal in zip(W, t, strict=True)]


def narrowest_gradients(W: Matrices, x: Tensor, t: Tensor) -> list[Tensor]:
    """Return ∂f̂/∂W⁽ⁱ⁾ of each sample, by (A.4) from the widest cell with the same outputs."""
    wide = widest_gradients(products(W), x, t)
    eye = torch.eye(x.shape[1], dtype=x.dtype)
    gradients = []
    for i in range(len(W)):
        before = products(W[:i])[-1] if i else eye
        after, total = eye, torch.zeros_like(wide[i])
        for k in range(i, len(W)):
            after = W[k] @ after if k > i else eye
            total = total + after.T @ wide[k] @ before.T
        gradients.append(total)
    return gradients


def lipschitz(x: Tensor) -> float:
    """Return L of every block of the widest cell, ‖E x xᵀ‖."""
    return float(torch.linalg.matrix_norm(x.T @ x / len(x), ord=2))


def variance(gradients: Tensor) -> float:
    """Return E‖g − E g‖² over samples, (N, c, c)."""
    return float((gradients - gradients.mean(dim=0)).square().sum(dim=(1, 2)).mean())


def smoothness_bounds(norms: Sequence[float], L: float, i: int) -> tuple[float, float]:
    """Return the bound of theorem 4.3 as printed and as its proof gives it, for block i from 0."""
    printed, proved = L, 0.0
    for norm in norms[:i]:
        printed *= norm
    for k in range(i, len(norms)):
        product = 1.0
        for j in range(k + 1):
            product *= norms[j] if j != i else 1.0
        proved += L * product**2
    return printed, proved


def variance_bound(norms: Sequence[float], variances: Sequence[float], i: int) -> float:
    """Return the bound of theorem 4.4 for block i, from the (σ⁽ᵏ⁾)² of a widest cell."""
    total = 0.0
    for k in range(i, len(norms)):
        product = 1.0
        for j in range(k + 1):
            product *= norms[j] if j != i else 1.0
        total += variances[k] * product**2
    return len(norms) * total


# Loss and gradient variance on a plane through trained weights (Y. Shu's thesis, 2022, section 4.3.2).
#
#     s(α, β) = E_i[f_i(w* + α w₁ + β w₂)],   g(α, β) = √Var[∇f_i(w* + α w₁ + β w₂)]
#
# w₁, w₂ are Gaussian, with filters of the same norms as in w* (Li et al. 2018, arXiv:1712.09913); biases and
# norms, which have no filters, are fixed. f_i is the loss of an image, with the running statistics of
# batch norms.


class PlanePoint(NamedTuple):
    """Loss and deviation at a point of the plane.

    Args:
        loss: s(α, β).
        deviation: g(α, β).
    """

    loss: float
    deviation: float


def filter_direction(weights: Sequence[Tensor], random: torch.Generator) -> list[Tensor]:
    """Draw a Gaussian direction with filters of the same norms as the weights': d_j ‖θ_j‖/‖d_j‖.

    >>> weights = [torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.ones(2)]
    >>> [d.norm(dim=-1) for d in filter_direction(weights, torch.Generator().manual_seed(0))]
    [tensor([5.0000, 2.0000]), tensor(0.)]
    """
    found = []
    for weight in weights:
        d = torch.randn(weight.shape, generator=random, dtype=weight.dtype)
        if weight.dim() < 2:
            found.append(torch.zeros_like(d))
            continue
        lengths = [
            part.detach().flatten(1).norm(dim=1).view(-1, *[1] * (d.dim() - 1)) for part in (weight, d)
        ]
        found.append(d * lengths[0] / lengths[1])
    return found


def judge_point(
    network: nn.Module, directions: Sequence[Sequence[Tensor]], place: Sequence[float], batch: Batch
) -> PlanePoint:
    """Return s and g at w* + Σ_k place_k w_k; the network is unchanged afterwards.

    g² = m⁻¹ Σ_i ‖∇f_i‖² − ‖∇f‖².
    """
    with _moved(network, directions, place), Passes(network, batch, batch_statistics=False) as passes:
        loss = float(passes.loss.detach())
        square = SampleGradNorm().compute(passes) ** 2 - float(GradNorm(per_layer=False).compute(passes)) ** 2
        return PlanePoint(loss, max(square, 0.0) ** 0.5)


@contextmanager
def _moved(
    network: nn.Module, directions: Sequence[Sequence[Tensor]], place: Sequence[float]
) -> Iterator[None]:
    weights = list(network.parameters())
    before = [weight.detach().clone() for weight in weights]
    try:
        with torch.no_grad():
            for distance, direction in zip(place, directions, strict=True):
                for weight, d in zip(weights, direction, strict=True):
                    weight.add_(d, alpha=distance)
        yield
    finally:
        with torch.no_grad():
            for weight, value in zip(weights, before, strict=True):
                weight.copy_(value)


@dataclass(frozen=True)
class PlaneWork:
    """The work for a point, which processes share.

    Args:
        network: the trained network.
        batch: images and labels.
        seed: seed of the directions.
    """

    network: nn.Module
    batch: Batch
    seed: int

    def __call__(self, name: str, place: tuple[int, float, float]) -> tuple[str, PlanePoint]:
        """Return the name and the values of a point; each plane has its own directions."""
        plane, *distances = place
        weights = [weight.detach() for weight in self.network.parameters()]
        directions = [filter_direction(weights, generator(self.seed, plane, axis)) for axis in range(2)]
        return name, judge_point(self.network, directions, distances, self.batch)


# Shapes and sizes of published cells and their variants (Y. Shu's thesis, 2022, tables 4.1 to 4.3).

SIZE: Mapping[str, Any] = {"in_channels": 3, "num_classes": 10, "channels": 36, "cells": 20}
"""Sizes of the thesis' networks for CIFAR-10."""
SHOWN = 5
"""Number of variants in the figure of a cell, at even distances in their order."""

_ADAPTED = "The auxiliary head counted. Adapted: every node of both cells reads the two inputs of the cell"
_REWIRED = "Widths in widths c of a node; drawn anew here, for the authors' draws are not published"


class PublishedCells:
    """Published cells and their variants with random connections and with random operations.

    Args:
        given: cells in DARTS' notation, by name.
        connections: number of variants of each with random connections.
        operations: number of variants of each with random operations.
        seed: seed of the connections; operations have the authors' seeds.

    >>> cell = [("sep_conv_3x3", 0), ("skip_connect", 1)] * 4
    >>> mine = {"normal": cell, "normal_concat": [2, 3, 4, 5], "reduce": cell, "reduce_concat": [2, 3, 4, 5]}
    >>> cells = PublishedCells({"mine": mine}, connections=2, operations=0)
    >>> [table.name for table in cells.tables()], list(cells.figures())
    (['cells', 'adapted', 'connections'], ['published', 'adapted', 'connections_mine'])
    """

    def __init__(
        self, given: Mapping[str, Description], *, connections: int, operations: int, seed: int = 0
    ) -> None:
        self.space, self.given = DartsSpace(), given
        self.genotypes = {name: self.space.parse(cell) for name, cell in given.items()}
        self.normal = {name: genotype["normal"] for name, genotype in self.genotypes.items()}
        self.adapted = {name: self.space.parse(adapted(cell))["normal"] for name, cell in given.items()}
        seeds = range(seed + 1, seed + 1 + connections)
        self.rewired = {name: self._rewired(cell, seeds) for name, cell in given.items()}
        self.operations = operations

    def tables(self) -> list[Table]:
        """Return the tables of shapes and parameters."""
        rewired = any(self.rewired.values())
        found = [self._shapes()] + [self._adapted()] * bool(self.given)
        return found + [self._connections()] * rewired + [self._operations()] * (self.operations > 0)

    def figures(self) -> dict[str, Picture]:
        """Draw normal cells as published (4.1), adapted (4.26), and with variants (4.2, 4.11, 4.12)."""
        forms = {"published": self.normal, "adapted": self.adapted} if self.normal else {}
        found = {name: draw_topologies(_titled(cells)) for name, cells in forms.items()}
        for name, variants in self.rewired.items():
            if variants:
                step = -(-len(variants) // SHOWN)
                numbered = {f"C{number}": cell for number, cell in enumerate(variants, 1)}
                some = dict(list(numbered.items())[::-step])  # the widest first, as the published cell is
                found[f"connections_{name}"] = draw_topologies(_titled({name: self.normal[name], **some}))
        return found

    def _rewired(self, given: Description, seeds: range) -> list[Cell]:
        """Return normal cells with random connections, the narrowest and deepest first."""
        drawn = [self.space.parse(random_connections(given, seed))["normal"] for seed in seeds]
        return sorted(drawn, key=lambda cell: (width(cell), -depth(cell)))

    def _shapes(self) -> Table:
        rows: list[list[Entry]] = [
            [
                name,
                *(value for kind in KINDS for value in (float(width(g[kind])), depth(g[kind]))),
            ]
            for name, g in self.genotypes.items()
        ]
        columns = [
            "cell",
            *(f"{kind} {what}" for kind in KINDS for what in ("width", "depth")),
        ]
        return Table("cells", "Width, in widths c of a node, and depth of cells", columns, rows)

    def _adapted(self) -> Table:
        """Return parameters as published and adapted (table 4.1)."""
        rows: list[list[Entry]] = [
            [name, *(self._millions(form, auxiliary=True) for form in (given, adapted(given)))]
            for name, given in self.given.items()
        ]
        title = "Parameters (millions) of cells and of their widest, shallowest form, 36 channels, 20 cells"
        return Table("adapted", title, ["cell", "as published", "adapted"], rows, _ADAPTED)

    def _connections(self) -> Table:
        """Return shapes of variants with random connections (table 4.2)."""
        rows: list[list[Entry]] = [
            [name, f"C{number}", float(width(cell)), depth(cell)]
            for name, variants in self.rewired.items()
            for number, cell in enumerate(variants, 1)
        ]
        columns = ["cell", "variant", "normal width", "normal depth"]
        title = "Shapes of normal cells with random connections"
        return Table("connections", title, columns, rows, _REWIRED, long=True)

    def _operations(self) -> Table:
        """Return parameters of variants with random operations, by the authors' seeds (table 4.3)."""
        seeds = range(1, self.operations + 1)
        rows: list[list[Entry]] = [
            [name, *map(self._millions, [given, *(random_operations(given, seed) for seed in seeds)])]
            for name, given in self.given.items()
        ]
        columns = ["cell", "C0", *(f"C{seed}" for seed in seeds)]
        title = "Parameters (millions) of cells with random operations, 36 channels, 20 cells"
        return Table("operations", title, columns, rows, "C0 is the cell as published; no auxiliary head")

    def _millions(self, given: Description, *, auxiliary: bool = False) -> float:
        with torch.device("meta"):
            network = self.space.network(self.space.parse(given), **SIZE, auxiliary=auxiliary)
        return count_parameters(network) / 1e6


def _titled(cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """Return the cells with width and depth in their names."""
    return {f"{name}: {float(width(c)):g}c, {depth(c)}": c for name, c in cells.items()}


# Depth and width of published cells; theorems 4.3 and 4.4 on linear ones (Y. Shu's thesis, 2022).

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
    """Shapes of published cells, and how much harder the narrowest linear cell is to train than the widest.

    Args:
        genotypes: published cells in DARTS' notation, by name.
        connections: number of variants of each with random connections, whose shapes are shown.
        operations: number of variants of each with random operations, whose parameters are counted.
        nodes: n, intermediate nodes of the linear cells.
        channels: c of each node.
        scales: scales of the matrices; entries have the deviation scale/√c, so that λ is nearly 2 scale.
        draws: number of draws of matrices, steps, and data for each scale.
        samples: number of inputs of a draw.
        seed: seed of all draws.

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
        """Measure the cells; draw linear cells and compare them with the bounds."""
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
        """Return the ratios of each block for new matrices, data, and a step of random length."""

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
    """Ratios of a block for a draw, or arrays of all draws."""

    norm: Any  # λ of the block's matrix
    slope: Any  # change of the narrowest cell's gradient, over L of the widest
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
    """Return the largest ratio to the bound, and the percentage of draws in which it holds."""
    return [float(np.max(shares)), f"{100 * float(np.mean(shares <= 1 + 1e-9)):.0f} %"]


# How published cells and variants of them converge (Y. Shu's thesis, 2022, 4.3.1; figures 4.3–4.5, 4.10).

FILE = "curves.csv"
_VARIANTS_NOTE = (
    "Scores (%), of classes accuracies, of images that no training saw: after the last epoch, and the mean "
    "over epochs, which is more for the sooner of two that end alike; nothing where the training diverged"
)
_VARIANTS_VERDICT = (
    "Spearman's ρ over cells and their variants with random connections, ± the bootstrap's standard error. "
    "The thesis finds that wide and shallow cells converge faster"
)


class Variant(NamedTuple):
    """A cell to train.

    Args:
        name: its name in tables.
        genotype: both kinds of cells.
        same_operations: whether it has the operations of a published cell.
    """

    name: str
    genotype: Genotype
    same_operations: bool

    @property
    def shape(self) -> tuple[float, int]:
        """Width and depth of the normal cell."""
        return float(width(self.genotype["normal"])), depth(self.genotype["normal"])


Curves = dict[tuple[str, float], Values]
"""Scores after each epoch, by variant and learning rate."""


@checked
class CellVariants(Study):
    """Cells and their variants, trained alike at several learning rates without regularization.

    Args:
        cells: published cells in DARTS' notation, by name.
        connections: number of variants of each with random connections.
        operations: number of variants of each with random operations.
        lrs: initial learning rates, with a cosine to 0.
        epochs: epochs of each training, on the weights' side of the images.
        seed: seed of variants, weights, and order.

    >>> cell = [("sep_conv_3x3", 0), ("skip_connect", 1)] * 4
    >>> mine = {"normal": cell, "normal_concat": [2, 3, 4, 5], "reduce": cell, "reduce_concat": [2, 3, 4, 5]}
    >>> from nas_lightning.spaces import DartsSpace, topology
    >>> study = CellVariants(cells={"mine": mine}, connections=2, operations=1)
    >>> [variant.name for variant in study.variants(DartsSpace())]
    ['mine', 'mine, connections 1', 'mine, connections 2', 'mine, operations 1']
    """

    def __init__(
        self,
        *,
        cells: Mapping[str, Mapping[str, Any]],
        connections: NonNegativeInt = 4,
        operations: NonNegativeInt = 2,
        lrs: Annotated[Sequence[PositiveFloat], entries(1), DISTINCT] = (0.0025, 0.025, 0.25),
        epochs: PositiveInt = 10,
        seed: Seed = 0,
    ) -> None:
        self.cells = {name: dict(given) for name, given in cells.items()}
        self.connections, self.operations = connections, operations
        self.lrs, self.epochs, self.seed = list(lrs), epochs, seed

    def variants(self, space: TwoCellSpace) -> Iterator[Variant]:
        """Yield each cell as published, then its variants, the narrowest connections first."""
        for name, given in self.cells.items():
            yield Variant(name, space.parse(given), True)
            seeds = range(self.seed + 1, self.seed + 1 + self.connections)
            rewired = [Variant("", space.parse(random_connections(given, seed)), True) for seed in seeds]
            rewired.sort(key=lambda variant: (variant.shape[0], -variant.shape[1]))
            for number, variant in enumerate(rewired, 1):
                yield variant._replace(name=f"{name}, connections {number}")
            for number in range(1, self.operations + 1):
                genotype = space.parse(random_operations(given, self.seed + number))
                yield Variant(f"{name}, operations {number}", genotype, False)

    def run(self, space: TwoCellSpace, network: NetworkFactory, data: SearchData, folder: Path) -> Findings:
        """Train the variants that are not in the file, and compare all."""
        variants = list(self.variants(space))
        cases = [Case(v.name, v.genotype, lr) for v in variants for lr in self.lrs]
        found = train_cases(cases, network, data, folder / FILE, epochs=self.epochs, seed=self.seed)
        curves = {(case.network, case.lr): found[case.name].score for case in cases}
        sizes = [count_parameters(network(variant.genotype)) for variant in variants]
        what, score = f"{self.epochs} epochs on {data.name}", task_of(data).score
        tables = [self._results(variants, sizes, curves, what), self._verdict(variants, curves, what)]
        panels = {f"lr {lr:g}": {v.name: curves[v.name, lr] for v in variants} for lr in self.lrs}
        ends = {title: {name: c[-1] for name, c in lines.items()} for title, lines in panels.items()}
        pictures = {"convergence": figures.overlay(panels, f"{score} (%)", "epoch")}
        pictures["accuracies"] = figures.draw_bars(ends, f"{score} after the last epoch (%)")
        return Findings(tables, pictures)

    def _results(self, variants: Sequence[Variant], sizes: Sequence[int], curves: Curves, what: str) -> Table:
        columns = ["cell", "normal width", "normal depth", "params"]
        columns += [f"{kind}, lr {lr:g}" for lr in self.lrs for kind in ("last", "mean")]
        rows: list[list[Entry]] = []
        for variant, size in zip(variants, sizes, strict=True):
            found = [curves[variant.name, lr] for lr in self.lrs]
            numbers = [_known(value) for curve in found for value in (curve[-1], curve.mean())]
            rows.append([variant.name, *variant.shape, size, *numbers])
        return Table(
            "variants", f"Cells and their variants trained alike: {what}", columns, rows, _VARIANTS_NOTE
        )

    def _verdict(self, variants: Sequence[Variant], curves: Curves, what: str) -> Table:
        """Correlate shapes with the mean score over epochs; a diverged training is the last."""
        rewired = [variant for variant in variants if variant.same_operations]
        rows: list[list[Entry]] = []
        for lr in self.lrs:
            speed = np.nan_to_num([curves[variant.name, lr].mean() for variant in rewired], nan=-np.inf)
            shapes = [[float(v.shape[side]) for v in rewired] for side in (0, 1)]
            found = [estimate(spearman, shape, speed, seed=self.seed) for shape in shapes]
            rows.append([f"{lr:g}", len(rewired), *found])
        columns = ["lr", "cells", "width and mean score", "depth and mean score"]
        return Table("verdict", f"Shape and speed of convergence: {what}", columns, rows, _VARIANTS_VERDICT)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


# Loss contours and gradient variance of cells (Y. Shu's thesis, 2022, section 4.3.2; figures 4.6 to 4.8).

QUANTITIES = PlanePoint._fields
_LANDSCAPE_NOTE = (
    "log₁₀ of loss and √variance: at the center, and the mean over a plane, of planes ± the standard error, "
    "where it is a number. Both are of images that no training saw"
)
_LANDSCAPE_VERDICT = (
    "Spearman's ρ over cells, ± the bootstrap's standard error. The thesis finds smoother losses and smaller "
    "variances with wider and shallower cells"
)


@checked
@dataclass(frozen=True, kw_only=True)
class Landscape(ParallelStudy):
    """Loss and gradient variance around the trained weights of cells and of their random variants.

    Args:
        cells: published cells in DARTS' notation, by name.
        connections: number of variants of each with random connections.
        points: number of points on each side of the plane; rounded up to an odd number, for the center.
        extent: α and β are from −extent to extent.
        planes: number of pairs of directions; the figures show the first.
        images: number of images that loss and variance are computed on.
        lr: initial learning rate of the training without regularization, on the weights' side.
        epochs: epochs of the training.
        seed: seed of variants, weights, order, and directions.
        workers, backend: processes that judge points, see `ParallelStudy`.

    >>> cell = [("sep_conv_3x3", 0), ("skip_connect", 1)] * 4
    >>> mine = {"normal": cell, "normal_concat": [2, 3, 4, 5], "reduce": cell, "reduce_concat": [2, 3, 4, 5]}
    >>> study = Landscape(cells={"mine": mine}, points=5, extent=0.5)
    >>> study.ticks.tolist()
    [-0.5, -0.25, 0.0, 0.25, 0.5]
    """

    cells: Annotated[Mapping[str, Mapping[str, Any]], entries(1)]
    connections: NonNegativeInt = 4
    points: Annotated[int, at_least(1)] = 11
    extent: Annotated[float, above(0), at_most(1000)] = 1.0
    planes: PositiveInt = 2
    images: Annotated[int, at_least(2)] = 128
    lr: PositiveFloat = 0.025
    epochs: PositiveInt = 10
    seed: Seed = 0

    @property
    def ticks(self) -> Values:
        """Coordinates of the points on a side of the plane."""
        return np.linspace(-self.extent, self.extent, self.points + 1 - self.points % 2)

    def run(self, space: TwoCellSpace, network: NetworkFactory, data: SearchData, folder: Path) -> Findings:
        """Train the variants without saved weights, and evaluate the points that are not in the file."""
        source = CellVariants(cells=self.cells, connections=self.connections, operations=0, seed=self.seed)
        variants = list(source.variants(space))
        batch = data.valid.plain_images(self.images)
        grids = {v.name: self._grids(v, network, data, batch, folder) for v in variants}
        what = f"{len(self.ticks)}² points, {len(batch[1])} images of {data.name}"
        pictures = {}
        for number, (kind, label) in enumerate(zip(QUANTITIES, ("loss", "√Var[∇f]"), strict=True)):
            of = {name: values[0, :, :, number] for name, values in grids.items()}
            pictures[f"{kind}_contours"] = figures.draw_contours(of, self.ticks, label)
            pictures[f"{kind}_surfaces"] = figures.draw_surfaces(of, self.ticks, label)
        tables = [
            _cells(variants, grids, what),
            self._verdict(variants, grids, what),
            self._points(grids, what),
        ]
        return Findings(tables, pictures)

    def _grids(
        self, variant: Variant, network: NetworkFactory, data: SearchData, batch: Batch, folder: Path
    ) -> Values:
        """Return the values of a cell, (planes, α, β, kinds)."""
        places = [
            (plane, *pair) for plane in range(self.planes) for pair in product(self.ticks.tolist(), repeat=2)
        ]
        names = {f"{plane} {a:g} {b:g}": (plane, a, b) for plane, a, b in places}
        settings = {
            "cell": str(variant.genotype),
            "images": len(batch[1]),
            "epochs": self.epochs,
            "lr": self.lr,
        }
        settings |= {"seed": self.seed, "parameters": count_parameters(network(variant.genotype))}
        stem = variant.name.replace(", ", "_").replace(" ", "_")
        path = folder / "points" / f"{stem}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        file = PoolFile(path, QUANTITIES, settings)
        rows = file.read()
        todo = [(name, place) for name, place in names.items() if name not in rows]
        if todo:
            trained = self._train(variant, network, data, path.with_suffix(".pt"))
            work = PlaneWork(trained, batch, self.seed)
            done = spread(work, todo, workers=self.workers, backend=self.backend)
            started = len(names) - len(todo)
            for name, point in follow(done, f"points of {variant.name}", total=len(names), done=started):
                rows[name] = point._asdict()
                file.append(name, rows[name])
        side = len(self.ticks)
        values = np.array([[rows[name][kind] for kind in QUANTITIES] for name in names])
        return values.reshape(self.planes, side, side, len(QUANTITIES))

    def _train(self, variant: Variant, network: NetworkFactory, data: SearchData, path: Path) -> nn.Module:
        """Load or train the network."""

        def train(net: nn.Module) -> nn.Module:
            train_curve(net, data, lr=self.lr, epochs=self.epochs, seed=self.seed)
            return net

        with torch.random.fork_rng():
            torch.manual_seed(seed_of_name(self.seed, variant.name))
            return train_once(network(variant.genotype), train, path, variant.name)

    def _verdict(self, variants: Sequence[Variant], grids: Mapping[str, Values], what: str) -> Table:
        rows: list[list[Entry]] = []
        for number, kind in enumerate(("loss", "√Var[∇f]")):
            means = np.array([_over_planes(grids[v.name])[:, number].mean() for v in variants])
            shapes = [[float(v.shape[side]) for v in variants] for side in (0, 1)]
            rows.append(
                [kind, len(variants), *(estimate(spearman, s, means, seed=self.seed) for s in shapes)]
            )
        columns = ["mean log₁₀ of", "cells", "with width", "with depth"]
        return Table(
            "verdict", f"Shape of cells and of their landscape: {what}", columns, rows, _LANDSCAPE_VERDICT
        )

    def _points(self, grids: Mapping[str, Values], what: str) -> Table:
        places = list(product(range(self.planes), self.ticks.tolist(), self.ticks.tolist()))
        rows = [
            [name, *place, *map(float, point)]
            for name, values in grids.items()
            for place, point in zip(places, values.reshape(-1, len(QUANTITIES)), strict=True)
        ]
        columns = ["cell", "plane", "α", "β", "loss", "√Var[∇f]"]
        return Table("points", f"Loss and gradient variance: {what}", columns, rows, long=True)


def _over_planes(values: Values) -> Values:
    """Return the mean of log₁₀ over the finite points of each plane, (planes, kinds)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log10(values).reshape(len(values), -1, values.shape[-1])
    return np.ma.masked_invalid(logs).mean(axis=1).filled(np.nan)


def _cells(variants: Sequence[Variant], grids: Mapping[str, Values], what: str) -> Table:
    rows: list[list[Entry]] = []
    for variant in variants:
        values = grids[variant.name]
        middle = values.shape[1] // 2
        center, means = values[0, middle, middle], _over_planes(values)
        found = [
            entry
            for k in range(len(QUANTITIES))
            for entry in (float(np.log10(center[k])), mean_estimate(means[:, k]))
        ]
        rows.append([variant.name, *variant.shape, *found])
    columns = ["cell", "normal width", "normal depth", "loss at the center", "loss"]
    columns += ["√Var[∇f] at the center", "√Var[∇f]"]
    return Table(
        "cells", f"Loss and gradient variance around trained weights: {what}", columns, rows, _LANDSCAPE_NOTE
    )
