"""One module for every cell: a directed acyclic graph whose edges carry operations.

A supernet's cell holds all candidates of all edges and weighs them; a derived network's cell holds the edges
of its genotype and adds them up. Both are this class, with the same parameter names, so that a derived
network inherits a supernet's weights by loading the entries that it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.spaces.cells.channels import channel_shuffle, concatenate, divide
from nas_lightning.spaces.cells.drop_path import DropPath
from nas_lightning.spaces.cells.widening import adopt
from nas_lightning.spaces.ops import NONE, NeedsReLU, Norm, build_op, weighted


class Mixture(NamedTuple):
    """What a cell computes in one forward pass; both fields are lists of (edges, ops).

    Args:
        weights: of each edge and operation; None: all are 1.
        active: which of them are computed.
    """

    weights: list[list[Tensor]] | None  # None: the active operations are added up as they are
    active: list[list[bool]]


Mixtures = Mapping[str, Mixture]
"""What a cell computes, by group."""


class EdgeOp(NamedTuple):
    """An operation on an edge: its place in the weight matrix and the module that computes it.

    Args:
        source: the node that it reads.
        row: its edge in the weights.
        column: its operation in the weights.
        key: the name of its module.
        shared: whether other edges of the node have the same module.
    """

    source: int
    row: int
    column: int
    key: str
    shared: bool  # with the other edges that leave its source


class Candidates(nn.Module, ABC):
    """A module with operations to choose from."""

    @abstractmethod
    def operations(self) -> list[nn.Module]:
        """The candidates of all its rows."""


class CellGraph(Candidates):
    """x_j = Σ_{i<j} Σ_o w[i→j, o] · o(x_i), for every inner node j in turn.

    An operation that holds neither parameters nor statistics gives the same result on every edge that leaves
    a node, so it is computed once a node; so is the ReLU that most operations start with.

    Args:
        edges: (source, target) of each row of the weight matrix.
        ops: the operations on each of those edges, the columns of the weight matrix.
        inputs: number of input nodes.
        nodes: number of all nodes.
        channels: channels of every node.
        norm: the batch norms of the operations.
        stride: the stride of the edges that leave a node.
        partial: only the first 1/partial of the channels pass the operations, the others go round them
            (PC-DARTS, arXiv:1907.05737, equation 2), weighted with the sum of their edge's active weights.
        drop_path: drop the paths of a derived network, identities excepted, at the rate set later.

    """

    def __init__(
        self,
        edges: Sequence[tuple[int, int]],
        ops: Sequence[Sequence[str]],
        *,
        inputs: int,
        nodes: int,
        channels: int,
        norm: Norm,
        stride: Callable[[int], int] = lambda source: 1,
        partial: int = 1,
        drop_path: bool = False,
    ) -> None:
        super().__init__()
        check_partial(channels, partial)
        self.inputs, self.nodes, self.partial = inputs, nodes, partial
        self.channels, self.norm = channels, norm
        self.strides = [stride(source) for source in range(nodes)]
        self.everything = Mixture(None, [[True] * len(names) for names in ops])
        self.ops = nn.ModuleDict()
        self.drop_path = DropPath() if drop_path else None
        self.edges: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]  # target → (source, row)
        self.edge_ops: list[list[EdgeOp]] = [[] for _ in range(nodes)]  # target → operations that end there
        self.built: dict[str, tuple[str, int]] = {}  # the name and stride of each operation
        shared: dict[tuple[str, int], str] = {}
        for row, ((source, target), names) in enumerate(zip(edges, ops, strict=True)):
            self.edges[target].append((source, row))
            for column, name in enumerate(names):
                if name == NONE:
                    continue
                op = build_op(name, channels // partial, self.strides[source], norm)
                key = self._new_key(f"{source}_{target}_{name}".replace(".", "_"))
                stateless = not op.state_dict()
                if stateless:
                    key = shared.setdefault((name, source), key)
                if key not in self.ops:
                    self.ops[key], self.built[key] = op, (name, self.strides[source])
                self.edge_ops[target].append(EdgeOp(source, row, column, key, stateless))

    def operations(self) -> list[nn.Module]:
        return list(self.ops.values())

    def widen(self, partial: int, generator: torch.Generator) -> None:
        """Let 1/partial of the channels pass the operations, which go on with what they have learned."""
        check_partial(self.channels, partial)
        for key, (name, stride) in self.built.items():
            with torch.device("meta"):  # draws no random numbers
                wide = build_op(name, self.channels // partial, stride, self.norm)
            self.ops[key] = adopt(wide, self.ops[key], generator)
        self.partial = partial

    def _new_key(self, key: str) -> str:
        while key in self.ops:  # NASNet has an operation twice between the same two nodes
            key += "_again"
        return key

    def forward(self, inputs: Sequence[Tensor], mixture: Mixture | None = None) -> list[Tensor]:
        """All nodes, the inputs first: tensors of (batch, channels, height, width); None: everything."""
        run = _Run(self, inputs, self.everything if mixture is None else mixture)
        for target in range(self.inputs, self.nodes):
            run.nodes.append(run.node(target))
        return run.nodes


class _Run:
    """One forward pass: the nodes so far, and what the edges that leave a node have in common."""

    def __init__(self, graph: CellGraph, inputs: Sequence[Tensor], mixture: Mixture) -> None:
        self.graph, self.nodes, self.mixture = graph, list(inputs), mixture
        self.divided: dict[int, tuple[Tensor, Tensor]] = {}
        self.rectified: dict[int, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}

    def node(self, target: int) -> Tensor:
        total: Tensor | None = None
        for item in self.graph.edge_ops[target]:
            if not self.mixture.active[item.row][item.column]:
                continue
            weight = None if self.mixture.weights is None else self.mixture.weights[item.row][item.column]
            if weight is None or item.shared:
                total = _add(total, self.output(item), weight)
            else:
                total = _add(total, weighted(self.graph.ops[item.key], self.input(item), weight), None)
        if total is None:
            total = torch.zeros_like(self.read_strided(self.through(0), 0))
        if self.graph.partial == 1:
            return total
        return channel_shuffle(concatenate([total, self.bypass(target)]), self.graph.partial)

    def output(self, item: EdgeOp) -> Tensor:
        """The operation's output, from an edge that shares it where there is one."""
        op = self.graph.ops[item.key]
        if item.key not in self.outputs:
            self.outputs[item.key] = op(self.input(item))
        output = self.outputs[item.key]
        if self.graph.drop_path is None or isinstance(op, nn.Identity):
            return output
        return self.graph.drop_path(output)

    def input(self, item: EdgeOp) -> Tensor:
        """What the operation is computed on."""
        relu = isinstance(self.graph.ops[item.key], NeedsReLU)
        return self.relu(item.source) if relu else self.through(item.source)

    def through(self, source: int) -> Tensor:
        """The channels of a node that pass the operations."""
        return self.nodes[source] if self.graph.partial == 1 else self.parts(source)[0]

    def parts(self, source: int) -> tuple[Tensor, Tensor]:
        """The channels of a node that pass the operations, and the others as the next nodes read them."""
        if source not in self.divided:
            passing, rest = divide(self.nodes[source], self.graph.partial)
            self.divided[source] = passing, self.read_strided(rest, source)
        return self.divided[source]

    def relu(self, source: int) -> Tensor:
        if source not in self.rectified:
            self.rectified[source] = F.relu(self.through(source))
        return self.rectified[source]

    def bypass(self, target: int) -> Tensor:
        """The channels that go round the operations of the edges that are in use."""
        total: Tensor | None = None
        for source, row in self.graph.edges[target]:
            rest = self.parts(source)[1]
            columns = [column for column, active in enumerate(self.mixture.active[row]) if active]
            if columns:
                total = _add(total, rest, self.row_sum(row, columns, rest))
            elif total is None:
                total = torch.zeros_like(rest)
        assert total is not None, "a node has at least one edge"
        return total

    def row_sum(self, row: int, columns: list[int], like: Tensor) -> Tensor | None:
        """The sum of an edge's active weights; None stands for 1."""
        if self.mixture.weights is not None:
            return torch.stack([self.mixture.weights[row][column] for column in columns]).sum()
        return None if len(columns) == 1 else like.new_tensor(len(columns))

    def read_strided(self, x: Tensor, source: int) -> Tensor:
        return x if self.graph.strides[source] == 1 else F.max_pool2d(x, 2, ceil_mode=True)


def check_partial(channels: int, partial: int) -> None:
    """Raise unless as many channels can pass the operations."""
    if channels % partial:
        raise InputError(f"expected partial to divide the cell's {channels} channels", got=partial)


def _add(total: Tensor | None, x: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return x if total is None else total + x
    return x * weight if total is None else torch.addcmul(total, x, weight)
