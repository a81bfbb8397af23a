"""The space of DARTS (Liu et al. 2019, arXiv:1806.09055, section 3.1): a normal and a reduction cell.

A cell has two inputs (the outputs of the two cells before it) and, by default, four inner nodes, each joined
to all earlier nodes: 14 edges × 8 operations. Its output is the concatenation of the inner nodes. A derived
cell keeps two edges per node, from different nodes, with one operation each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import ClassVar

import torch
from torch import Tensor

from nas_lightning.checks import Cells, Channels, PositiveInt, checked
from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Edge, Genotype
from nas_lightning.randomness import choose
from nas_lightning.spaces.base import best
from nas_lightning.spaces.cells.graph import CellGraph
from nas_lightning.spaces.darts.base import InnerNodes, TwoCellSpace, strides
from nas_lightning.spaces.darts.network import INPUTS, DartsBackbone, Stem
from nas_lightning.spaces.group import Group, real_ops
from nas_lightning.spaces.ops import SEARCH_NORM, operation_names
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


class DartsSpace(TwoCellSpace):
    """Normal and reduction cells of `nodes` inner nodes.

    Args:
        nodes: inner nodes of a cell.
        ops: the candidates of every edge: names of operations, or dotted names of a user's own.
        edge_ops: the candidates of each edge by the kind of the cell, as many each and all of them in `ops`,
            where edges have their own.

    >>> space = DartsSpace()
    >>> space.groups["normal"].shape
    (14, 8)
    >>> genotype = space.sample(torch.Generator().manual_seed(0))
    >>> space.parse(space.notation(genotype)) == genotype
    True
    """

    name: ClassVar[str] = "darts"

    @checked
    def __init__(
        self,
        nodes: InnerNodes = 4,
        ops: Sequence[str] = OPS,
        edge_ops: Mapping[str, Sequence[Sequence[str]]] | None = None,
    ) -> None:
        super().__init__(nodes, ops)
        self.edge_ops = edge_ops
        edges = tuple((source, target) for target in self.inner for source in range(target))
        self.group = Group(edges, self.ops)
        self._groups = dict.fromkeys(self.cells, self.group)
        if edge_ops is not None:
            self._groups = own_groups(self.group, edge_ops, self.cells)

    @property
    def groups(self) -> Mapping[str, Group]:
        return self._groups

    @checked
    def supernet(  # type: ignore[override]
        self,
        *,
        in_channels: Channels,
        num_classes: PositiveInt,
        channels: Channels = 8,
        cells: Cells = 5,
        stem: Stem = "cifar",
        stem_multiplier: PositiveInt = 3,
        partial: PositiveInt = 1,
    ) -> Supernet:
        def graph(kind: str, width: int) -> CellGraph:
            return CellGraph(
                self.group.edges,
                self.groups[kind].candidates,
                inputs=INPUTS,
                nodes=self.inner.stop,
                channels=width,
                norm=SEARCH_NORM,
                stride=strides[kind],
                partial=partial,
            )

        outputs = {kind: tuple(self.inner) for kind in self.groups}
        backbone = DartsBackbone(
            graph, outputs, SEARCH_NORM, in_channels, channels, cells, stem, stem_multiplier
        )
        return Supernet(backbone, num_classes)

    def one_hot(self, genotype: Genotype) -> dict[str, Tensor]:
        for kind, cell in genotype:
            if set(cell.output) != set(self.inner):
                raise InputError(f"expected {kind!r} to return all {len(self.inner)} inner nodes", got=cell)
        return super().one_hot(genotype)

    def discretise(self, scores: Mapping[str, Tensor]) -> Genotype:
        """Per node the two edges with the largest score of an operation other than `none` (section 2.4)."""
        self.check_scores(scores)
        cells = {kind: self._strongest(matrix, self.groups[kind]) for kind, matrix in scores.items()}
        return self.genotype_of(cells)

    def _strongest(self, scores: Tensor, group: Group) -> Cell:
        pairs = zip(group.candidates, scores.tolist(), strict=True)
        table = [dict(zip(names, row, strict=True)) for names, row in pairs]
        edges = []
        for node in self.inner:
            candidates = []
            for row, (source, target) in enumerate(group.edges):
                if target == node:
                    op, score = best({op: table[row][op] for op in real_ops(group.candidates[row])})
                    candidates.append((score, Edge(op, source, target)))
            candidates.sort(key=lambda item: -item[0])  # stable: ties go to the earlier edge
            edges += [edge for _, edge in candidates[:2]]
        return Cell(edges, INPUTS, self.inner)

    def sample(self, generator: torch.Generator) -> Genotype:
        return self.genotype_of({kind: self._sample_cell(kind, generator) for kind in self.groups})

    def _sample_cell(self, kind: str, generator: torch.Generator) -> Cell:
        edges = []
        for node in self.inner:
            sources = choose(combinations(range(node), 2), generator)
            edges += [
                Edge(choose(self._ops(kind, source, node), generator), source, node) for source in sources
            ]
        return Cell(edges, INPUTS, self.inner)

    def _ops(self, kind: str, source: int, target: int) -> list[str]:
        """What an edge may have."""
        group = self.groups[kind]
        return real_ops(group.candidates[group.edges.index((source, target))])

    def neighbours(self, genotype: Genotype) -> list[Genotype]:
        """One edge with another operation, or from another node that does not feed its node yet.

        From there it has the same operation; any, where the two edges have none in common.
        """
        self.check(genotype)
        neighbours = []
        for kind, cell in genotype:
            for index, edge in enumerate(cell.edges):
                others = [e for i, e in enumerate(cell.edges) if i != index]
                free = set(range(edge.target)) - {e.source for e in others if e.target == edge.target}
                changes = {source: self._changes(kind, edge, source) for source in free}
                for op, source in product(real_ops(self.ops), sorted(free)):
                    if op in changes[source]:
                        changed = Cell([*others, Edge(op, source, edge.target)], cell.inputs, cell.output)
                        neighbours.append(self.genotype_of({**dict(genotype), kind: changed}))
        return neighbours

    def _changes(self, kind: str, edge: Edge, source: int) -> list[str]:
        """The operations that an edge may go on with from that node."""
        here, there = (self._ops(kind, node, edge.target) for node in (edge.source, source))
        if source == edge.source:
            return [op for op in there if op != edge.op]
        return [op for op in there if op == edge.op] if {*here} & {*there} else there


def own_groups(
    group: Group, edge_ops: Mapping[str, Sequence[Sequence[str]]], cells: Sequence[str]
) -> dict[str, Group]:
    """The group of each kind of cell, with the candidates that its edges have of their own."""
    if set(edge_ops) != set(cells):
        raise InputError(
            f"expected operations for {', '.join(cells)}", got=list(edge_ops), where="space.edge_ops"
        )
    return {
        kind: Group(group.rows, group.ops, own=tuple(map(operation_names, edge_ops[kind]))) for kind in cells
    }
