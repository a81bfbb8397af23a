"""Cells as graphs: which operations are computed on which maps, and how the results are summed."""

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

# Concatenating, splitting, and shuffling channels, with gradients in the channels-last memory format


def concatenate(maps: Sequence[Tensor]) -> Tensor:
    """Concatenate maps along the channels, with dense gradients: (b, c, h, w), … → (b, Σ c, h, w).

    The gradient of each map is a slice of the gradient of the result. torch's CPU batch norms read slices
    three to seven times as slowly as dense channels-last maps, and all operations of a node read the same
    gradient, so it is copied once: a factor of 1.21 in the speed of an architecture step, 1.07 of a weight
    step, and 1.11 of training a derived network (space=darts, batch size 16).

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
    """Return the first of `parts` equal parts of the channels, dense, and the other channels.

    Slices instead of a split would have gradients that are not channels-last.

    >>> [part.shape[1] for part in divide(torch.zeros(1, 8, 2, 2), 4)]
    [2, 6]
    """
    count = x.shape[1] // parts
    first, others = x.split([count, x.shape[1] - count], dim=1)
    return first.contiguous(memory_format=torch.channels_last), others


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Interleave the channels, so that the next cell's operations read others (PC-DARTS, section 3.2).

    >>> channel_shuffle(torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 4, 1, 1), groups=2).flatten().tolist()
    [1.0, 3.0, 2.0, 4.0]
    """
    return x.movedim(1, -1).unflatten(-1, (groups, -1)).transpose(-2, -1).flatten(-2).movedim(-1, 1)


# Drop path


class DropPath(nn.Module):
    """Drop an operation's output for random images and scale it for the others (arXiv:1605.07648).

        y = x · m / (1 − p),  m ~ Bernoulli(1 − p) for each image

    Unlike in timm's, the rate p is a tensor, so that changing it does not recompile a network.

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


# Widening operations (Net2Net, Chen et al. 2016, arXiv:1511.05641)
#
#     W′[j] = W[g(j)],   g(j) = j for j < n, else drawn uniformly from the n channels of W,
#
# along every dimension that grows. Unlike in Net2Net, the function changes: the additional input channels are
# other channels of the network instead of copies.


def widen(weight: Tensor, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Return W′ of the given shape.

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
    """Set a parameter to a value of another size.

    DistributedDataParallel holds the graph node that accumulates the gradient and that stores the old size;
    changing the data type makes torch create a new node.
    """
    parameter.data = value.to(torch.float16 if value.dtype != torch.float16 else torch.float32)
    parameter.data = value


def adopt(wide: nn.Module, narrow: nn.Module, generator: torch.Generator) -> nn.Module:
    """Give the wide module the parameters of the narrow one, widened in place to keep them in optimizers."""
    sizes = {name: parameter.shape for name, parameter in wide.named_parameters()}
    for name, parameter in narrow.named_parameters():
        resize(parameter, widen(parameter.data, sizes[name], generator))
        owner, _, leaf = name.rpartition(".")
        setattr(wide.get_submodule(owner), leaf, parameter)
    return wide.train(narrow.training)


# Mixtures of candidates


class Mixture(NamedTuple):
    """Architecture weights of one group in one forward pass; both fields are lists of (edges, ops).

    Args:
        weights: of each edge and operation; None: the active ones have the weight 1.
        active: which of them are computed.
    """

    weights: list[list[Tensor]] | None
    active: list[list[bool]]


Mixtures = Mapping[str, Mixture]
"""Mixtures by the names of their groups."""


class Candidates(nn.Module, ABC):
    """A module with operations to choose from."""

    @abstractmethod
    def operations(self) -> list[nn.Module]:
        """Return the candidates of all rows."""


def weigh_candidates(mixture: Mixture, row: int, candidate: Callable[[int], Tensor]) -> dict[int, Tensor]:
    """Return w[row, c] · candidate(c) by column c; only the active candidates are computed."""
    active = [column for column, chosen in enumerate(mixture.active[row]) if chosen]
    if mixture.weights is None:
        return {column: candidate(column) for column in active}
    return {column: mixture.weights[row][column] * candidate(column) for column in active}


def weighted_sum(mixture: Mixture, row: int, candidate: Callable[[int], Tensor], like: Tensor) -> Tensor:
    """Return Σ_c w[row, c] · candidate(c); without an active candidate, zeros of the shape of `like`.

    >>> mixture = Mixture([[torch.tensor(0.5), torch.tensor(0.3)]], [[True, False]])
    >>> weighted_sum(mixture, 0, lambda column: torch.ones(1) + column, torch.ones(1))
    tensor([0.5000])
    """
    first, *others = weigh_candidates(mixture, row, candidate).values() or [torch.zeros_like(like)]
    for term in others:
        first = first + term
    return first


# Cells whose edges carry operations


class EdgeOp(NamedTuple):
    """An operation on an edge.

    Args:
        source: the node that it reads.
        row: of its edge in the weight matrix.
        column: of the operation in the weight matrix.
        key: the name of its module.
        shared: whether the other edges that leave `source` use the same module.
    """

    source: int
    row: int
    column: int
    key: str
    shared: bool


class CellGraph(Candidates):
    """x_j = Σ_{i<j} Σ_o w[i→j, o] · o(x_i), for every inner node j in turn.

    A supernet's cell has all candidates on all edges; a derived network's cell has the edges of its genotype.
    Parameter names are the same, so a derived network inherits a supernet's weights by loading its entries.

    An operation without parameters and statistics has the same result on every edge that leaves a node, so it
    is computed once per node; so is the ReLU before most operations.

    Args:
        edges: (source, target) of each row of the weight matrix.
        ops: the operations on each of those edges, the columns of the weight matrix.
        inputs: number of input nodes.
        nodes: number of all nodes.
        channels: channels of every node.
        norm: the batch norms of the operations.
        stride: the stride of the edges that leave a node.
        partial: only the first 1/partial of the channels pass the operations; the others bypass them
            (PC-DARTS, arXiv:1907.05737, equation 2), weighted by the sum of their edge's active weights.
        drop_path: drop the paths of a derived network, except identities, at the rate set later.
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
        """Let 1/partial of the channels pass the operations, whose parameters are widened."""
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
        """Return all nodes, (b, c, h, w) each, the inputs first; mixture None: all operations, weight 1."""
        run = _Run(self, inputs, self.everything if mixture is None else mixture)
        for target in range(self.inputs, self.nodes):
            run.nodes.append(run.node(target))
        return run.nodes


class _Run:
    """One forward pass: the nodes so far, and the results that the edges leaving a node share."""

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
        """Return the operation's output, computed once for all edges that share it."""
        op = self.graph.ops[item.key]
        if item.key not in self.outputs:
            self.outputs[item.key] = op(self.input(item))
        output = self.outputs[item.key]
        if self.graph.drop_path is None or isinstance(op, nn.Identity):
            return output
        return self.graph.drop_path(output)

    def input(self, item: EdgeOp) -> Tensor:
        """Return the operation's input."""
        relu = isinstance(self.graph.ops[item.key], NeedsReLU)
        return self.relu(item.source) if relu else self.through(item.source)

    def through(self, source: int) -> Tensor:
        """Return the channels of a node that pass the operations."""
        return self.nodes[source] if self.graph.partial == 1 else self.parts(source)[0]

    def parts(self, source: int) -> tuple[Tensor, Tensor]:
        """Return the channels of a node that pass the operations, and the bypassing ones after a stride."""
        if source not in self.divided:
            passing, rest = divide(self.nodes[source], self.graph.partial)
            self.divided[source] = passing, self.read_strided(rest, source)
        return self.divided[source]

    def relu(self, source: int) -> Tensor:
        if source not in self.rectified:
            self.rectified[source] = F.relu(self.through(source))
        return self.rectified[source]

    def bypass(self, target: int) -> Tensor:
        """Return the weighted sum of the channels that bypass the operations."""
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
        """Return the sum of an edge's active weights; None means 1."""
        if self.mixture.weights is not None:
            return torch.stack([self.mixture.weights[row][column] for column in columns]).sum()
        return None if len(columns) == 1 else like.new_tensor(len(columns))

    def read_strided(self, x: Tensor, source: int) -> Tensor:
        return x if self.graph.strides[source] == 1 else F.max_pool2d(x, 2, ceil_mode=True)


def check_partial(channels: int, partial: int) -> None:
    """Raise unless `partial` divides the channels."""
    if channels % partial:
        raise InputError(f"`partial` must divide the {channels} channels of the cell", got=partial)


def _add(total: Tensor | None, x: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return x if total is None else total + x
    return x * weight if total is None else torch.addcmul(total, x, weight)
