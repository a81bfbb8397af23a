"""The space of NAS-Bench-201 (Dong & Yang 2020, arXiv:2001.00326): 15,625 cells of four nodes.

Every pair of nodes is joined by one of five operations, `none` included; a node is the sum of its inputs. The
network has three stages of N cells with residual blocks in between (section 2.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, product, repeat
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Cell, Edge, Genotype
from nas_lightning.spaces.base import SearchSpace, best
from nas_lightning.spaces.graph import CellGraph, Mixture, Mixtures
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.network import Backbone, Network
from nas_lightning.spaces.operations import (
    SEARCH_NORM,
    TRAIN_NORM,
    Norm,
    ReduceByPool,
    conv_norm,
    operation_names,
)
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.utils.files import parse_json
from nas_lightning.utils.randomness import choose
from nas_lightning.validation import Cells, Channels, PositiveInt, Share, checked

OPS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
NODES = 4
EDGES = tuple((source, target) for target in range(1, NODES) for source in range(target))


class NasBench201(SearchSpace):
    """One cell: 6 edges × 5 operations.

    Args:
        ops: the candidates of every edge: names of operations, or dotted names of the user's own.

    >>> space = NasBench201()
    >>> text = "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|"
    >>> space.notation(space.parse(text)) == text
    True
    """

    name: ClassVar[str] = "nasbench201"
    shown_by_cells = frozenset({"ops"})

    def __init__(self, ops: Sequence[str] = OPS) -> None:
        self.ops = operation_names(ops)
        self.group = Group(EDGES, self.ops)

    @property
    def groups(self) -> Mapping[str, Group]:
        return {"cell": self.group}

    @checked
    def supernet(  # type: ignore[override]
        self,
        *,
        in_channels: Channels,
        num_classes: PositiveInt,
        channels: Channels = 8,
        cells: Cells = 2,
        partial: PositiveInt = 1,
    ) -> Supernet:
        """Build the supernet; `cells` per stage."""

        def graph(width: int) -> CellGraph:
            ops = [self.ops] * len(EDGES)
            return CellGraph(
                EDGES, ops, inputs=1, nodes=NODES, channels=width, norm=SEARCH_NORM, partial=partial
            )

        return Supernet(StagedBackbone(graph, SEARCH_NORM, in_channels, channels, cells), num_classes)

    @checked
    def network(  # type: ignore[override]
        self,
        genotype: Genotype,
        *,
        in_channels: Channels,
        num_classes: PositiveInt,
        channels: Channels = 16,
        cells: Cells = 5,
        auxiliary: bool = False,
        dropout: Share = 0.0,
        norm: Norm = TRAIN_NORM,
    ) -> Network:
        """Build the network; `cells` per stage."""
        self.check(genotype)
        edges = genotype["cell"].edges

        def graph(width: int) -> CellGraph:
            ends = [(edge.source, edge.target) for edge in edges]
            ops = [[edge.op] for edge in edges]
            return CellGraph(ends, ops, inputs=1, nodes=NODES, channels=width, norm=norm, drop_path=True)

        backbone = StagedBackbone(graph, norm, in_channels, channels, cells)
        return Network(backbone, num_classes, auxiliary=auxiliary, dropout=dropout)

    def check(self, genotype: Genotype) -> None:
        super().check(genotype)
        cell = genotype["cell"]
        ends = tuple((edge.source, edge.target) for edge in cell.edges)
        if (ends, cell.inputs, cell.output) != (EDGES, 1, (NODES - 1,)):
            raise InputError("Each of the six edges of the cell must have one operation", got=genotype)
        for op in genotype.ops:
            if op not in self.ops:
                raise InputError(
                    f"The operation must be one of the space ({near_match(op, self.ops)})", got=op
                )

    def discretize(self, scores: Mapping[str, Tensor]) -> Genotype:
        """Choose the operation with the largest score on every edge, `none` included."""
        self.check_scores(scores)
        rows = scores["cell"].tolist()
        return self._genotype([best(dict(zip(self.ops, row, strict=True)))[0] for row in rows])

    def sample(self, generator: torch.Generator) -> Genotype:
        return self._genotype([choose(self.ops, generator) for _ in EDGES])

    def neighbors(self, genotype: Genotype) -> list[Genotype]:
        """Return the 24 genotypes with another operation on one edge."""
        self.check(genotype)
        ops = list(genotype.ops)
        changes = [(row, op) for row in range(len(ops)) for op in self.ops if op != ops[row]]
        return [self._genotype([*ops[:row], op, *ops[row + 1 :]]) for row, op in changes]

    def all(self) -> Iterator[Genotype]:
        """Iterate over all genotypes: 15,625 with the default operations."""
        return (self._genotype(ops) for ops in product(self.ops, repeat=len(EDGES)))

    def _genotype(self, ops: Sequence[str]) -> Genotype:
        edges = [Edge(op, source, target) for op, (source, target) in zip(ops, EDGES, strict=True)]
        return self.genotype_of({"cell": Cell(edges, inputs=1, output=[NODES - 1])})

    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        """Read an architecture string `|op~0|+|op~0|op~1|+|op~0|op~1|op~2|`, or our JSON."""
        if isinstance(text, str) and not text.lstrip().startswith("{"):
            return self._parse_string(text)
        expected = "The architecture must be |op~0|+|op~0|op~1|+|op~0|op~1|op~2| or JSON"
        data = parse_json(text, expected) if isinstance(text, str) else text
        if not isinstance(data, Mapping):
            raise InputError(expected, got=data)
        if "arch" in data:
            return self._parse_string(str(data["arch"]))
        return self.genotype_from_dict(data)

    def _parse_string(self, text: str) -> Genotype:
        ops = re.findall(r"([^|~+]+)~", text)
        if len(ops) != len(EDGES) or self._render(ops) != text.strip():
            raise InputError("The architecture must be |op~0|+|op~0|op~1|+|op~0|op~1|op~2|", got=text)
        genotype = self._genotype(ops)
        self.check(genotype)
        return genotype

    def notation(self, genotype: Genotype) -> str:
        self.check(genotype)
        return self._render(genotype.ops)

    @staticmethod
    def _render(ops: Sequence[str]) -> str:
        nodes = [
            [f"{op}~{s}" for op, (s, t) in zip(ops, EDGES, strict=True) if t == n] for n in range(1, NODES)
        ]
        return "+".join(f"|{'|'.join(node)}|" for node in nodes)


class GraphCell(nn.Module):
    """A cell of one input whose output is its last node.

    Args:
        graph: from one input to all nodes.
    """

    def __init__(self, graph: CellGraph) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, x: Tensor, mixture: Mixture | None) -> Tensor:
        return self.graph([x], mixture)[-1]


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut of a pooled 1×1 one; halves the resolution, doubles the channels.

    Args:
        c_in: channels of the input.
        c_out: channels of the output.
        norm: of the convolutions.
    """

    def __init__(self, c_in: int, c_out: int, norm: Norm) -> None:
        super().__init__()
        self.conv_a = conv_norm(c_in, c_out, 3, 2, norm)
        self.conv_b = conv_norm(c_out, c_out, 3, 1, norm)
        self.shortcut = ReduceByPool(c_in, c_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.conv_b(F.relu(self.conv_a(F.relu(x))))


class StagedBackbone(Backbone):
    """A 3×3 stem and three stages of cells with residual blocks in between (section 2.1, figure 1).

    Args:
        graph: builds a cell's graph from its channels.
        norm: of the network.
        in_channels: of the images.
        channels: of the first stage; they double from stage to stage.
        cells: of a stage.
    """

    @checked
    def __init__(
        self,
        graph: Callable[[int], CellGraph],
        norm: Norm,
        in_channels: Channels,
        channels: Channels,
        cells: Cells,
    ) -> None:
        super().__init__()
        stem = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        self.stem = nn.Sequential(stem, norm.outside_cells(channels))
        widths = [channels, 2 * channels, 4 * channels]
        self.blocks = nn.ModuleList(ResidualBlock(a, b, norm) for a, b in pairwise(widths))
        self.stages = nn.ModuleList(
            nn.ModuleList(GraphCell(graph(width)) for _ in range(cells)) for width in widths
        )
        self.widths = [width for width in widths for _ in range(cells)]
        self.auxiliary_at = 2 * cells - 1  # the end of the second stage
        self.last_norm = norm.outside_cells(widths[-1])

    def cells_outputs(self, x: Tensor, mixtures: Sequence[Mixtures] | None = None) -> Iterator[Tensor]:
        x = self.stem(x)
        of_cells = iter(repeat(None) if mixtures is None else [of_cell["cell"] for of_cell in mixtures])
        for index, stage in enumerate(self.stages):
            if index:
                x = self.blocks[index - 1](x)
            for cell in stage:  # type: ignore[attr-defined]
                x = self.run(cell, x, next(of_cells))
                yield x

    def final(self, x: Tensor) -> Tensor:
        return F.relu(self.last_norm(x))
