"""DARTS' space as NASI searches it (Shu et al. 2022, arXiv:2109.00817, appendix B.2).

A node's operation and its input are chosen independently. In the supernet

    x_i = Σ_o w_io · o(Σ_{j<i} v_ij x_j),

so a sampled path has one operation on one input in every node. There is no `none`, and both inputs of a
reduction cell are max-pooled instead of a stride in its edges. A derived node keeps the two operations and
the two inputs with the largest scores. The paper does not define which operation takes which input; here the
operation that is earlier in `ops` takes the earlier node. The derived network is one of DARTS, with strides
instead of the pooling, and inherits no weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Edge, Genotype
from nas_lightning.spaces.darts import INPUTS, DartsBackbone, InnerNodes, Stem, TwoCellSpace
from nas_lightning.spaces.graph import Candidates, Mixture, Mixtures, weighted_sum
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.operations import NONE, SEARCH_NORM, NeedsReLU, Norm, build_op
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.utils.randomness import choose
from nas_lightning.validation import Cells, Channels, PositiveInt, checked

OPS = (
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)
KEEP = 2  # operations and inputs of a node


class DartsNasi(TwoCellSpace):
    """Per kind of cell, a group of operations with a row for each node, and a group of inputs for each node.

    Args:
        nodes: inner nodes of a cell.
        ops: the candidates of every node: names of operations, or dotted names of the user's own.

    >>> space = DartsNasi()
    >>> [(name, group.shape) for name, group in space.groups.items()][:3]
    [('normal_op', (4, 7)), ('normal_input_2', (1, 2)), ('normal_input_3', (1, 3))]
    >>> genotype = space.sample(torch.Generator().manual_seed(0))
    >>> space.discretize(space.one_hot(genotype)) == genotype
    True
    """

    name: ClassVar[str] = "darts_nasi"

    @checked
    def __init__(self, nodes: InnerNodes = 4, ops: Sequence[str] = OPS) -> None:
        super().__init__(nodes, ops)
        if NONE in self.ops or len(self.ops) < KEEP:
            raise InputError(
                "There must be at least two operations, without none", got=self.ops, where="space.ops"
            )

    @property
    def groups(self) -> Mapping[str, Group]:
        found = {}
        for kind in self.cells:
            found[f"{kind}_op"] = Group(tuple((node,) for node in self.inner), self.ops)
            for node in self.inner:
                found[f"{kind}_input_{node}"] = Group(((node,),), tuple(map(str, range(node))))
        return found

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
    ) -> Supernet:
        def graph(kind: str, width: int) -> NodeGraph:
            return NodeGraph(kind, self.inner, self.ops, width, SEARCH_NORM)

        outputs = {kind: tuple(self.inner) for kind in self.cells}
        backbone = DartsBackbone(
            graph,
            outputs,
            SEARCH_NORM,
            in_channels,
            channels,
            cells,
            stem,
            stem_multiplier,
            pooled=True,
            mixture_of=_all_mixtures,
        )
        return Supernet(backbone, num_classes)

    def check(self, genotype: Genotype) -> None:
        super().check(genotype)
        for kind, cell in genotype:
            if set(cell.output) != set(self.inner) or cell.nodes != self.inner.stop:
                raise InputError(f"{kind!r} must return all {len(self.inner)} inner nodes", got=cell)
            for node in self.inner:
                ops, sources, _ = zip(*cell.into(node), strict=True)
                if len(set(sources)) != KEEP or ops not in combinations(self.ops, KEEP):
                    expected = f"Node {node} of {kind!r} must have two inputs, in the order of the operations"
                    raise InputError(expected, got=f"{', '.join(ops)} of {sources}")

    def one_hot(self, genotype: Genotype) -> dict[str, Tensor]:
        """Return weights of 1 for the operations and the inputs that a node keeps."""
        self.check(genotype)
        groups = self.groups
        weights = {name: torch.zeros(group.shape) for name, group in groups.items()}
        for kind, cell in genotype:
            for op, source, node in cell.edges:
                weights[f"{kind}_op"][node - INPUTS, self.ops.index(op)] = 1.0
                weights[f"{kind}_input_{node}"][0, source] = 1.0
        return weights

    def discretize(self, scores: Mapping[str, Tensor]) -> Genotype:
        """Keep the two operations and the two inputs per node with the largest scores, paired in order."""
        self.check_scores(scores)
        cells = {}
        for kind in self.cells:
            table = scores[f"{kind}_op"].tolist()
            edges = []
            for row, node in zip(table, self.inner, strict=True):
                inputs = scores[f"{kind}_input_{node}"][0].tolist()
                edges += _edges([self.ops[column] for column in _largest(row)], _largest(inputs), node)
            cells[kind] = Cell(edges, INPUTS, self.inner)
        return self.genotype_of(cells)

    def sample(self, generator: torch.Generator) -> Genotype:
        cells = {}
        for kind in self.cells:
            edges = []
            for node in self.inner:
                ops = choose(combinations(self.ops, KEEP), generator)
                edges += _edges(ops, choose(combinations(range(node), KEEP), generator), node)
            cells[kind] = Cell(edges, INPUTS, self.inner)
        return self.genotype_of(cells)

    def neighbors(self, genotype: Genotype) -> list[Genotype]:
        """Return the genotypes with one other operation or one other input of one node."""
        self.check(genotype)
        neighbors = []
        for kind, cell in genotype:
            for node in self.inner:
                rest = [edge for edge in cell.edges if edge.target != node]
                ops = tuple(edge.op for edge in cell.into(node))
                sources = tuple(edge.source for edge in cell.into(node))
                changes = [
                    (other, sources) for other in combinations(self.ops, KEEP) if len({*other, *ops}) == 3
                ]
                others = combinations(range(node), KEEP)
                changes += [(ops, other) for other in others if len({*other, *sources}) == 3]
                for new_ops, new_sources in changes:
                    changed = Cell([*rest, *_edges(new_ops, new_sources, node)], INPUTS, self.inner)
                    neighbors.append(self.genotype_of({**dict(genotype), kind: changed}))
        return neighbors


def _largest(scores: Sequence[float]) -> list[int]:
    """Return the two columns with the largest scores in ascending order; ties go to the earlier."""
    return sorted(sorted(range(len(scores)), key=lambda column: -scores[column])[:KEEP])


def _edges(ops: Sequence[str], sources: Sequence[int], node: int) -> list[Edge]:
    return [Edge(op, source, node) for op, source in zip(ops, sources, strict=True)]


def _all_mixtures(mixtures: Mixtures, kind: str) -> Mixtures:
    return mixtures


class NodeGraph(Candidates):
    """The inner nodes of a supernet's cell: all operations on the weighted sum of all earlier nodes.

    Args:
        kind: of the cell.
        inner: the numbers of the nodes.
        ops: names of the operations.
        channels: of every node.
        norm: of the operations.
    """

    def __init__(
        self, kind: str, inner: Sequence[int], ops: Sequence[str], channels: int, norm: Norm
    ) -> None:
        super().__init__()
        self.kind, self.inner = kind, inner
        self.ops = nn.ModuleList(
            nn.ModuleList(build_op(name, channels, 1, norm) for name in ops) for _ in inner
        )

    def forward(self, inputs: Sequence[Tensor], mixtures: Mixtures) -> list[Tensor]:
        """Return all nodes, (b, c, h, w) each, the inputs first."""
        nodes = list(inputs)
        for row, node in enumerate(self.inner):
            x = weighted_sum(mixtures[f"{self.kind}_input_{node}"], 0, nodes.__getitem__, nodes[0])
            nodes.append(self._node(row, x, mixtures[f"{self.kind}_op"]))
        return nodes

    def operations(self) -> list[nn.Module]:
        return [op for ops in self.ops for op in ops]  # type: ignore[attr-defined]

    def _node(self, row: int, x: Tensor, mixture: Mixture) -> Tensor:
        ops, rectified = self.ops[row], F.relu(x)

        def output(column: int) -> Tensor:
            op = ops[column]  # type: ignore[index]
            return op(rectified if isinstance(op, NeedsReLU) else x)

        return weighted_sum(mixture, row, output, x)
