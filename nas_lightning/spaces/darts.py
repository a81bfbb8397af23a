"""The space of DARTS (Liu et al. 2019, arXiv:1806.09055, section 3.1): a normal and a reduction cell.

A cell has two inputs (the outputs of the two cells before it) and, by default, four inner nodes, each joined
to all earlier nodes: 14 edges × 8 operations. Its output is the concatenation of the inner nodes. A derived
cell keeps two edges per node, from different nodes, with one operation each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Edge, Genotype
from nas_lightning.ops import SEARCH_NORM, TRAIN_NORM, FactorizedReduce, Norm, conv_norm
from nas_lightning.spaces import darts_notation
from nas_lightning.spaces.base import Group, SearchSpace, best, choose, real_ops
from nas_lightning.spaces.graph import CellGraph, Plan
from nas_lightning.spaces.network import Backbone, Network
from nas_lightning.spaces.supernet import Supernet

OPS = (
    "none",
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)
INPUTS = 2
Stem = Literal["cifar", "imagenet"]


class DartsSpace(SearchSpace):
    """Normal and reduction cells of `nodes` inner nodes.

    >>> space = DartsSpace()
    >>> space.groups["normal"].shape
    (14, 8)
    >>> genotype = space.sample(torch.Generator().manual_seed(0))
    >>> space.parse(space.notation(genotype)) == genotype
    True
    """

    name: ClassVar[str] = "darts"

    def __init__(self, nodes: int = 4, ops: Sequence[str] = OPS) -> None:
        if nodes < 1:
            raise InputError("expected at least one inner node", got=nodes, where="space.nodes")
        self.inner = range(INPUTS, INPUTS + nodes)
        edges = tuple((source, target) for target in self.inner for source in range(target))
        self.group = Group(edges, tuple(ops))

    @property
    def groups(self) -> Mapping[str, Group]:
        return {"normal": self.group, "reduce": self.group}

    def supernet(  # type: ignore[override]
        self,
        *,
        in_channels: int,
        num_classes: int,
        channels: int = 16,
        cells: int = 8,
        stem: Stem = "cifar",
        stem_multiplier: int = 3,
        partial: int = 1,
    ) -> Supernet:
        def graph(kind: str, width: int) -> CellGraph:
            return CellGraph(
                self.group.edges,
                [self.group.ops] * len(self.group.edges),
                inputs=INPUTS,
                nodes=self.inner.stop,
                channels=width,
                norm=SEARCH_NORM,
                stride=_strides[kind],
                partial=partial,
            )

        outputs = {kind: tuple(self.inner) for kind in self.groups}
        backbone = DartsBackbone(
            graph, outputs, SEARCH_NORM, in_channels, channels, cells, stem, stem_multiplier
        )
        return Supernet(backbone, num_classes)

    def network(  # type: ignore[override]
        self,
        genotype: Genotype,
        *,
        in_channels: int,
        num_classes: int,
        channels: int = 36,
        cells: int = 20,
        stem: Stem = "cifar",
        stem_multiplier: int = 3,
        stem_stride: int = 1,
        auxiliary: bool = False,
        dropout: float = 0.0,
        norm: Norm = TRAIN_NORM,
    ) -> Network:
        self.check(genotype)

        def graph(kind: str, width: int) -> CellGraph:
            cell = genotype[kind]
            return CellGraph(
                [(edge.source, edge.target) for edge in cell.edges],
                [[edge.op] for edge in cell.edges],
                inputs=INPUTS,
                nodes=cell.nodes,
                channels=width,
                norm=norm,
                stride=_strides[kind],
                drop_path=True,
            )

        outputs = {kind: cell.output for kind, cell in genotype}
        backbone = DartsBackbone(
            graph, outputs, norm, in_channels, channels, cells, stem, stem_multiplier, stem_stride
        )
        return Network(backbone, num_classes, auxiliary=auxiliary, dropout=dropout)

    def check(self, genotype: Genotype) -> None:
        super().check(genotype)
        for kind, cell in genotype:
            darts_notation.check_cell(kind, cell, INPUTS)

    def one_hot(self, genotype: Genotype) -> dict[str, Tensor]:
        for kind, cell in genotype:
            if set(cell.output) != set(self.inner):
                raise InputError(f"expected {kind!r} to return all {len(self.inner)} inner nodes", got=cell)
        return super().one_hot(genotype)

    def discretise(self, scores: Mapping[str, Tensor]) -> Genotype:
        """Per node the two edges with the largest score of an operation other than `none` (section 2.4)."""
        self.check_scores(scores)
        return Genotype(self.name, {kind: self._strongest(matrix) for kind, matrix in scores.items()})

    def _strongest(self, scores: Tensor) -> Cell:
        table = [dict(zip(self.group.ops, row, strict=True)) for row in scores.tolist()]
        edges = []
        for node in self.inner:
            candidates = []
            for row, (source, target) in enumerate(self.group.edges):
                if target == node:
                    op, score = best({op: table[row][op] for op in real_ops(self.group)})
                    candidates.append((score, Edge(op, source, target)))
            candidates.sort(key=lambda item: -item[0])  # stable: ties go to the earlier edge
            edges += [edge for _, edge in candidates[:2]]
        return Cell(edges, INPUTS, self.inner)

    def sample(self, generator: torch.Generator) -> Genotype:
        return Genotype(self.name, {kind: self._sample_cell(generator) for kind in self.groups})

    def _sample_cell(self, generator: torch.Generator) -> Cell:
        edges = []
        for node in self.inner:
            sources = choose(combinations(range(node), 2), generator)
            edges += [Edge(choose(real_ops(self.group), generator), source, node) for source in sources]
        return Cell(edges, INPUTS, self.inner)

    def neighbours(self, genotype: Genotype) -> list[Genotype]:
        """One edge with another operation, or from another node that does not feed its node yet."""
        self.check(genotype)
        found = []
        for kind, cell in genotype:
            for index, edge in enumerate(cell.edges):
                others = [e for i, e in enumerate(cell.edges) if i != index]
                free = set(range(edge.target)) - {e.source for e in others if e.target == edge.target}
                for op, source in product(real_ops(self.group), sorted(free)):
                    if (op == edge.op) != (source == edge.source):
                        changed = Cell([*others, Edge(op, source, edge.target)], cell.inputs, cell.output)
                        found.append(Genotype(self.name, {**dict(genotype), kind: changed}))
        return found

    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        """DARTS' `Genotype(normal=[('sep_conv_3x3', 0), …], …)` as text or mapping, or our own JSON."""
        genotype = darts_notation.parse(text, self.name, INPUTS)
        self.check(genotype)
        return genotype

    def notation(self, genotype: Genotype) -> str:
        return darts_notation.render(genotype)


_strides: dict[str, Callable[[int], int]] = {
    "normal": lambda source: 1,
    "reduce": lambda source: 2 if source < INPUTS else 1,
}


class DartsCell(nn.Module):
    """Brings two rectified inputs to one width and resolution, then runs the graph (DARTS, section 3.1)."""

    def __init__(
        self,
        graph: CellGraph,
        output: Sequence[int],
        norm: Norm,
        c_in: tuple[int, int],
        c: int,
        after_reduction: bool,
    ) -> None:
        super().__init__()
        self.output = list(output)
        self.pre0 = (
            FactorizedReduce(c_in[0], c, norm) if after_reduction else conv_norm(c_in[0], c, 1, 1, norm)
        )
        self.pre1 = conv_norm(c_in[1], c, 1, 1, norm)
        self.graph = graph

    def forward(self, r0: Tensor, r1: Tensor, plan: Plan | None) -> Tensor:
        nodes = self.graph([self.pre0(r0), self.pre1(r1)], plan)
        return torch.cat([nodes[node] for node in self.output], dim=1)


class DartsBackbone(Backbone):
    """A stem and `cells` cells; those at one and two thirds halve the resolution and double the channels."""

    def __init__(
        self,
        graph: Callable[[str, int], CellGraph],
        outputs: Mapping[str, Sequence[int]],
        norm: Norm,
        in_channels: int,
        channels: int,
        cells: int,
        stem: Stem,
        stem_multiplier: int,
        stem_stride: int = 1,
    ) -> None:
        super().__init__()
        if cells < 1 or channels < 2:
            raise InputError(
                "expected at least 1 cell and 2 channels", got=f"cells={cells}, channels={channels}"
            )
        if stem == "imagenet":
            self.stem: nn.ModuleList = imagenet_stem(in_channels, channels, norm)
            width_before = width = channels
        elif stem == "cifar":
            width_before = width = channels * stem_multiplier
            conv = nn.Conv2d(in_channels, width, 3, stem_stride, padding=1, bias=False)
            self.stem = nn.ModuleList([nn.Sequential(conv, norm.outside_cells(width))])
        else:
            raise InputError("expected the stem 'cifar' or 'imagenet'", got=stem)
        self.auxiliary_second_norm = stem != "imagenet"
        self.auxiliary_at = 2 * cells // 3
        self.widths, self.kinds = [], []
        self.cells = nn.ModuleList()
        after_reduction = stem == "imagenet"
        for index in range(cells):
            kind = "reduce" if index in (cells // 3, 2 * cells // 3) else "normal"
            if kind == "reduce":
                channels *= 2
            cell = DartsCell(
                graph(kind, channels), outputs[kind], norm, (width_before, width), channels, after_reduction
            )
            self.cells.append(cell)
            after_reduction = kind == "reduce"
            width_before, width = width, len(outputs[kind]) * channels
            self.widths.append(width)
            self.kinds.append(kind)

    def cells_outputs(self, x: Tensor, plans: Mapping[str, Plan] | None = None) -> Iterator[Tensor]:
        state = self.stem[0](x)
        r0 = r1 = F.relu(state)  # once for the two cells that read it
        if len(self.stem) == 2:
            r1 = F.relu(self.stem[1](state))
        for index, (kind, cell) in enumerate(zip(self.kinds, self.cells, strict=True)):
            if index:
                r0, r1 = r1, F.relu(state)
            state = cell(r0, r1, None if plans is None else plans[kind])
            yield state


def imagenet_stem(in_channels: int, channels: int, norm: Norm) -> nn.ModuleList:
    """Two steps that bring 224×224 to 56×56 and 28×28; the first two cell inputs (DARTS, section 3.3)."""
    half = channels // 2
    first = nn.Sequential(
        nn.Conv2d(in_channels, half, 3, stride=2, padding=1, bias=False),
        norm.outside_cells(half),
        nn.ReLU(),
        nn.Conv2d(half, channels, 3, stride=2, padding=1, bias=False),
        norm.outside_cells(channels),
    )
    second = nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, stride=2, padding=1, bias=False),
        norm.outside_cells(channels),
    )
    return nn.ModuleList([first, second])
