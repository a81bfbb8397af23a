"""What the spaces of DARTS' two cells have in common: derived networks and notations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from nas_lightning.checks import Cells, Channels, PositiveInt, Share, at_least, at_most, checked
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.cells.graph import CellGraph
from nas_lightning.spaces.darts import notation as darts_notation
from nas_lightning.spaces.darts.network import INPUTS, DartsBackbone, Stem
from nas_lightning.spaces.network import Network
from nas_lightning.spaces.ops import TRAIN_NORM, Norm, operation_names

MOST_INNER = 100  # far above any published cell; keeps a mistyped number from filling the memory
InnerNodes = Annotated[int, at_least(1), at_most(MOST_INNER)]


class TwoCellSpace(SearchSpace):
    """Normal and reduction cells, whose nodes each add up two operations on earlier nodes.

    Args:
        nodes: inner nodes of a cell.
        ops: the candidates: names of operations, or dotted names of a user's own.

    """

    shown_by_cells = frozenset({"nodes", "ops", "edge_ops"})

    @checked
    def __init__(self, nodes: InnerNodes, ops: Sequence[str]) -> None:
        self.nodes, self.ops = nodes, operation_names(ops)
        self.inner = range(INPUTS, INPUTS + nodes)

    @property
    def cells(self) -> tuple[str, ...]:
        return "normal", "reduce"

    @checked
    def network(  # type: ignore[override]
        self,
        genotype: Genotype,
        *,
        in_channels: Channels,
        num_classes: PositiveInt,
        channels: Channels = 16,
        cells: Cells = 8,
        stem: Stem = "cifar",
        stem_multiplier: PositiveInt = 3,
        stem_stride: PositiveInt = 1,
        auxiliary: bool = True,
        dropout: Share = 0.0,
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
                stride=strides[kind],
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

    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        """DARTS' `Genotype(normal=[('sep_conv_3x3', 0), …], …)` as text or mapping, or our own JSON."""
        fields = darts_notation.read_fields(text)
        if "cells" in fields:
            return self.genotype_from_dict(fields)
        genotype = self.genotype_of(
            {kind: darts_notation.read_cell(fields, kind, INPUTS) for kind in self.cells}
        )
        self.check(genotype)
        return genotype

    def notation(self, genotype: Genotype) -> str:
        return darts_notation.render(genotype)


strides: dict[str, Callable[[int], int]] = {
    "normal": lambda source: 1,
    "reduce": lambda source: 2 if source < INPUTS else 1,
}
"""The stride of the edges that leave a node, by the kind of its cell."""
