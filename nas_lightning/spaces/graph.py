"""A cell as a graph: which operations are computed on which maps, and how they are summed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.spaces.depthwise import is_traced
from nas_lightning.spaces.operations import NONE, NeedsReLU, Norm, build_op, weighted

# Channels put together, divided and interleaved, which stay innermost in memory; so do their gradients.
#
# What comes back to each of several concatenated maps is a slice of a gradient. torch's norms read slices
# three to seven times as slowly as dense maps with their channels last on a CPU, and in a cell every
# operation of the node reads it. Here it is made dense once.


def concatenate(maps: Sequence[Tensor]) -> Tensor:
    """The maps one after another: some of (b, c, h, w) → (b, Σ c, h, w).

    >>> concatenate([torch.zeros(1, 2, 3, 3), torch.ones(1, 1, 3, 3)])[0, :, 0, 0].tolist()
    [0.0, 0.0, 1.0]
    """
    if not torch.is_grad_enabled() or is_traced():
        return torch.cat(list(maps), dim=1)
    return Concatenation.apply(*maps)


class Concatenation(torch.autograd.Function):
    """(x₁, …, xₙ) ↦ [x₁ … xₙ], channel by channel."""

    @staticmethod
    def forward(ctx: Any, *maps: Tensor) -> Tensor:
        ctx.channels = [x.shape[1] for x in maps]
        return torch.cat(maps, dim=1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        parts = gradient.split(ctx.channels, dim=1)
        return tuple(part.contiguous(memory_format=torch.channels_last) for part in parts)


def divide(x: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """The first of so many parts of the channels, dense, and the others.

    By a split, not by slices: the gradient of a slice does not have the channels last.

    >>> [part.shape[1] for part in divide(torch.zeros(1, 8, 2, 2), 4)]
    [2, 6]
    """
    count = x.shape[1] // parts
    first, others = x.split([count, x.shape[1] - count], dim=1)
    return first.contiguous(memory_format=torch.channels_last), others


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Interleave the channels, so that the next cell's operations see others (PC-DARTS, section 3.2).

    >>> channel_shuffle(torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 4, 1, 1), groups=2).flatten().tolist()
    [1.0, 3.0, 2.0, 4.0]
    """
    return x.movedim(1, -1).unflatten(-1, (groups, -1)).transpose(-2, -1).flatten(-2).movedim(-1, 1)


# Dropping paths at a rate that changes while a network trains, compiled or not.


class DropPath(nn.Module):
    """Drops an operation's output from some images and scales it for the others (arXiv:1605.07648).

        y = x · m / (1 − p),  m ~ Bernoulli(1 − p) for each image

    As timm's, but its rate p is a tensor: a compiled network is not compiled again when the rate changes,
    only when it starts to drop at all.

    Args:
        drop_prob: p.

    >>> _ = torch.manual_seed(0)
    >>> DropPath(0.5)(torch.ones(4, 1, 1, 1)).flatten()
    tensor([0., 2., 0., 0.])
    """

    rate: Tensor

    def __init__(self, drop_prob: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("rate", torch.zeros(()), persistent=False)
        self.drop_prob = drop_prob

    @property
    def drop_prob(self) -> float:
        """p, which may be set at any time."""
        return self._drop_prob

    @drop_prob.setter
    def drop_prob(self, value: float) -> None:
        self._drop_prob, self.active = value, value > 0
        self.rate.fill_(value)

    def forward(self, x: Tensor) -> Tensor:  # (b, …) → the same shape
        if not (self.training and self.active):
            return x
        shape = (len(x), *[1] * (x.ndim - 1))
        kept = torch.rand(shape, device=x.device) >= self.rate
        return x * (kept / (1 - self.rate)).to(x.dtype)

    def extra_repr(self) -> str:
        return f"drop_prob={self.drop_prob:.3f}"


# Operations of more channels that go on from narrower ones (Net2Net, Chen et al. 2016, arXiv:1511.05641).
#
# A weight of n channels becomes one of n′ by a map g of its channels,
#
#     W′[j] = W[g(j)],   g(j) = j for j < n, else drawn uniformly from the n,
#
# along every dimension that grows. What it computes is not kept, as Net2Net would by dividing: the channels
# that come in are others of the network's and not copies.


def widen(weight: Tensor, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """The weight with these sizes.

    >>> widen(torch.tensor([5.0, 7.0]), (3,), torch.Generator().manual_seed(0))
    tensor([5., 7., 5.])
    """
    for dimension, (old, new) in enumerate(zip(weight.shape, shape, strict=True)):
        drawn = torch.randint(old, (max(0, new - old),), generator=generator)
        index = torch.cat([torch.arange(min(old, new)), drawn]).to(weight.device)
        weight = weight.index_select(dimension, index)
    last = torch.channels_last if weight.dim() == 4 else torch.contiguous_format
    return weight.contiguous(memory_format=last)


def resize(parameter: nn.Parameter, value: Tensor) -> None:
    """Give the parameter a value of another size.

    Whoever holds the node of the graph that accumulates its gradient, as DistributedDataParallel does, keeps
    one that knows the old size; torch makes a new node for another data type.
    """
    parameter.data = value.to(torch.float16 if value.dtype != torch.float16 else torch.float32)
    parameter.data = value


def adopt(wide: nn.Module, narrow: nn.Module, generator: torch.Generator) -> nn.Module:
    """The wide module with the parameters of the narrow one, widened in place: optimizers go on with them."""
    sizes = {name: parameter.shape for name, parameter in wide.named_parameters()}
    for name, parameter in narrow.named_parameters():
        resize(parameter, widen(parameter.data, sizes[name], generator))
        owner, _, leaf = name.rpartition(".")
        setattr(wide.get_submodule(owner), leaf, parameter)
    return wide.train(narrow.training)


# One module for every cell: a directed acyclic graph whose edges carry operations.
#
# A supernet's cell holds all candidates of all edges and weighs them; a derived network's cell holds the
# edges
# of its genotype and adds them up. Both are this class, with the same parameter names, so that a derived
# network inherits a supernet's weights by loading the entries that it has.


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


# Choices in a supernet's nodes: what a node reads and what it computes, weighted by a mixture.


def weigh_candidates(mixture: Mixture, row: int, candidate: Callable[[int], Tensor]) -> dict[int, Tensor]:
    """w[row, c] · candidate(c) by column c, for the active candidates; nothing is computed of the others."""
    active = [column for column, chosen in enumerate(mixture.active[row]) if chosen]
    if mixture.weights is None:
        return {column: candidate(column) for column in active}
    return {column: mixture.weights[row][column] * candidate(column) for column in active}


def weighted_sum(mixture: Mixture, row: int, candidate: Callable[[int], Tensor], like: Tensor) -> Tensor:
    """Σ_c w[row, c] · candidate(c); without an active candidate zero, in the shape of `like`.

    >>> mixture = Mixture([[torch.tensor(0.5), torch.tensor(0.3)]], [[True, False]])
    >>> weighted_sum(mixture, 0, lambda column: torch.ones(1) + column, torch.ones(1))
    tensor([0.5000])
    """
    first, *others = weigh_candidates(mixture, row, candidate).values() or [torch.zeros_like(like)]
    for term in others:
        first = first + term
    return first
