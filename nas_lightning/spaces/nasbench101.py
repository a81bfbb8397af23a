"""The space of NAS-Bench-101 (Ying et al. 2019, arXiv:1902.09635): modules, networks, and sampling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, reduce
from hashlib import md5
from itertools import combinations
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Cell, Edge, Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.graph import DropPath, Mixtures, concatenate
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.network import Backbone, Network
from nas_lightning.spaces.operations import (
    NONE,
    TRAIN_NORM,
    NeedsReLU,
    Norm,
    build_op,
    conv_norm_relu,
    operation_names,
)
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.utils.files import parse_json
from nas_lightning.validation import Cells, Channels, PositiveInt, Share, checked

OPS = ("conv3x3-bn-relu", "conv1x1-bn-relu", "maxpool3x3")  # the order in which the hash numbers them
MOST_VERTICES = 7
MOST_EDGES = 9
INPUT, OUTPUT = "input", "output"
STACKS = 3
GENOTYPES = "nasbench101"  # all genotypes of modules name this space, so that its table has their results
Matrix = tuple[tuple[int, ...], ...]

# Modules: pruning, channels, hash
#
# A *module* is an upper-triangular matrix of 0 and 1 over its vertices, the input first and the output last,
# and the operations of the vertices in between. A genotype expresses it as a cell: an edge carries the
# operation of the vertex in which it ends, and `output` lists the vertices that the output reads. All rules
# are those of the public benchmark (google-research/nasbench), whose table they index.


class Module(NamedTuple):
    """A graph with operations on its vertices.

    Args:
        matrix: entry (i, j) is 1 if vertex i feeds vertex j: (V, V).
        ops: of the vertices 1 to V − 2.
    """

    matrix: Matrix
    ops: tuple[str, ...]

    @property
    def edges(self) -> int:
        return sum(map(sum, self.matrix))


def module_of(matrix: Sequence[Sequence[int]], ops: Sequence[str], candidates: Sequence[str] = OPS) -> Module:
    """Build a module; `ops` may include input and output, as in the public benchmark."""
    if len(ops) == len(matrix) and len(ops) > 1 and (ops[0], ops[-1]) == (INPUT, OUTPUT):
        ops = ops[1:-1]
    size = len(matrix)
    rows = tuple(tuple(int(value) for value in row) for row in matrix)
    square = size > 1 and all(len(row) == size for row in rows)
    if not square or any(
        v not in (0, 1) or (v and j <= i) for i, r in enumerate(rows) for j, v in enumerate(r)
    ):
        raise InputError("The matrix must be upper-triangular, of 0 and 1", got=list(map(list, rows)))
    if len(ops) != size - 2:
        raise InputError(f"There must be {size - 2} operations for {size} vertices", got=list(ops))
    for op in ops:
        if op not in candidates:
            raise InputError(f"The operation must be one of the space ({near_match(op, candidates)})", got=op)
    return Module(rows, tuple(ops))


def prune(module: Module) -> Module:
    """Remove the vertices that are on no path from input to output; raise if there is no path."""
    matrix, last = module.matrix, len(module.matrix) - 1
    after, before = {0}, {last}
    for vertex in range(1, last + 1):
        if any(matrix[source][vertex] for source in after):
            after.add(vertex)
    for vertex in range(last - 1, -1, -1):
        if any(matrix[vertex][target] for target in before):
            before.add(vertex)
    kept = sorted(after & before)
    if kept[:1] != [0] or kept[-1:] != [last]:
        raise InputError("There must be a path from the input to the output")
    rows = tuple(tuple(matrix[i][j] for j in kept) for i in kept)
    return Module(rows, tuple(module.ops[vertex - 1] for vertex in kept[1:-1]))


def check_size(module: Module) -> None:
    """Raise unless the pruned module is small enough for the benchmark."""
    if len(module.matrix) > MOST_VERTICES:
        raise InputError(f"There can be at most {MOST_VERTICES} vertices", got=len(module.matrix))
    if module.edges > MOST_EDGES:
        raise InputError(f"There can be at most {MOST_EDGES} edges", got=module.edges)


def to_cell(module: Module) -> Cell:
    """Return the module as a genotype's cell."""
    matrix, last = module.matrix, len(module.matrix) - 1
    edges = [
        Edge(module.ops[target - 1], source, target)
        for target in range(1, last)
        for source in range(target)
        if matrix[source][target]
    ]
    return Cell(edges, inputs=1, output=[vertex for vertex in range(last) if matrix[vertex][last]])


def from_cell(cell: Cell, candidates: Sequence[str] = OPS) -> Module:
    """Return the module of a genotype's cell, including vertices that pruning would remove."""
    if cell.inputs != 1:
        raise InputError("The cell must have one input", got=cell.inputs)
    last = cell.nodes
    matrix = [[0] * (last + 1) for _ in range(last + 1)]
    ops = []
    for vertex in range(1, last):
        chosen = {edge.op for edge in cell.into(vertex)}
        if len(chosen) != 1:
            raise InputError(
                f"All edges into vertex {vertex} must have the same operation", got=sorted(chosen)
            )
        ops.append(chosen.pop())
    for _, source, target in cell.edges:
        if matrix[source][target]:
            raise InputError("Edges must be distinct", got=f"{source}→{target}")
        matrix[source][target] = 1
    for vertex in cell.output:
        matrix[vertex][last] = 1
    return module_of(matrix, ops, candidates)


def variations(module: Module, candidates: Sequence[str] = OPS) -> list[Module]:
    """Return modules with another operation, one edge more or less, or one vertex more or less.

    The vertex has one edge in and one out. Every vertex is on a path from input to output, so the relation is
    symmetric.
    """
    return [other for other in dict.fromkeys(_neighbors(module, candidates)) if _is_pruned(other)]


def _is_pruned(module: Module) -> bool:
    """Return whether every vertex is on a path from input to output, and the size is allowed."""
    try:
        check_size(module)
        return prune(module) == module
    except InputError:
        return False


def _neighbors(module: Module, candidates: Sequence[str]) -> Iterator[Module]:
    """Yield all changes that keep the input and the output, valid or not."""
    matrix, ops, last = module.matrix, module.ops, len(module.matrix) - 1
    for vertex, old in enumerate(ops):
        for op in candidates:
            if op != old:
                yield Module(matrix, (*ops[:vertex], op, *ops[vertex + 1 :]))
    for source, target in combinations(range(last + 1), 2):
        yield Module(_with(matrix, (source, target)), ops)
    for vertex in range(1, last):
        if sum(matrix[vertex]) == sum(row[vertex] for row in matrix) == 1:
            kept = [other for other in range(last + 1) if other != vertex]
            smaller = tuple(tuple(matrix[i][j] for j in kept) for i in kept)
            yield Module(smaller, (*ops[: vertex - 1], *ops[vertex:]))
    for vertex in range(1, last + 1):  # the number of the new one
        larger = _insert(matrix, vertex)
        for source in range(vertex):
            for target in range(vertex + 1, last + 2):
                joined = _with(_with(larger, (source, vertex)), (vertex, target))
                for op in candidates:
                    yield Module(joined, (*ops[: vertex - 1], op, *ops[vertex - 1 :]))


def _insert(matrix: Matrix, vertex: int) -> Matrix:
    """Add a vertex without edges."""
    rows = [(*row[:vertex], 0, *row[vertex:]) for row in matrix]
    return (*rows[:vertex], (0,) * (len(matrix) + 1), *rows[vertex:])


def _with(matrix: Matrix, edge: tuple[int, int]) -> Matrix:
    """Add or remove an edge."""
    return tuple(
        tuple(value ^ ((i, j) == edge) for j, value in enumerate(row)) for i, row in enumerate(matrix)
    )


def vertex_channels(matrix: Matrix, c_in: int, c_out: int) -> list[int]:
    """Return the channels of every vertex of a pruned module (section 2.2; `compute_vertex_channels`).

    The vertices that feed the output share its channels, and the first ones take the remainder; each other
    vertex has as many as the widest vertex that it feeds. Edges from the input do not count.

    >>> vertex_channels(((0, 1, 1, 1, 0), (0, 0, 0, 0, 1), (0, 0, 0, 0, 1), (0, 0, 0, 0, 1), (0,) * 5), 8, 8)
    [8, 3, 3, 2, 8]
    """
    last = len(matrix) - 1
    channels = [c_in, *[0] * (last - 1), c_out]
    feeding = [vertex for vertex in range(1, last) if matrix[vertex][last]]
    for place, vertex in enumerate(feeding):
        share, rest = divmod(c_out, len(feeding))
        channels[vertex] = share + (place < rest)
    for vertex in range(last - 1, 0, -1):
        if not matrix[vertex][last]:
            channels[vertex] = max(
                channels[target] for target in range(vertex + 1, last) if matrix[vertex][target]
            )
    return channels


def module_hash(module: Module, candidates: Sequence[str] = OPS) -> str:
    """Return the benchmark's hash of a pruned module, invariant to the order of its vertices (section 2.1).

    The hash of a vertex starts from its numbers of outgoing and incoming edges and its label (−1 for the
    input, −2 for the output, else the index of its operation), and absorbs its neighbors' hashes V times.
    """
    matrix, size = module.matrix, len(module.matrix)
    labels = [-1, *(candidates.index(op) for op in module.ops), -2]
    sources = [[i for i in range(size) if matrix[i][j]] for j in range(size)]
    targets = [[j for j in range(size) if matrix[i][j]] for i in range(size)]
    hashes = [_md5(str((len(targets[v]), len(sources[v]), labels[v]))) for v in range(size)]
    for _ in range(size):
        hashes = [
            _md5(
                "".join(sorted(hashes[w] for w in sources[v]))
                + "|"
                + "".join(sorted(hashes[w] for w in targets[v]))
                + "|"
                + hashes[v]
            )
            for v in range(size)
        ]
    return _md5(str(sorted(hashes)))


def _md5(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()


# Uniform draws from the 423,624 modules
#
# Random bits rejected until they form a valid module are mostly pruned to a few vertices: of 2,000, 5 had 7
# vertices (85 % of the space has) and 193 only input and output. Therefore matrices are drawn from the list
# of those that need no pruning, with operations, and a module that is in this list in n orders of its
# vertices is accepted with probability 1/n.


@cache
def whole_matrices(vertices: int) -> list[Matrix]:
    """Return all upper-triangular matrices of at most 9 edges that pruning does not change.

    >>> [len(whole_matrices(vertices)) for vertices in (2, 3, 4)]
    [1, 2, 10]
    """
    places = list(combinations(range(vertices), 2))
    codes = np.arange(2 ** len(places), dtype=np.uint32)
    edges, out, into = (np.zeros((n, len(codes)), np.uint8) for n in (1, vertices, vertices))
    for index, (source, target) in enumerate(places):
        bit = (codes >> np.uint32(index)).astype(np.uint8) & 1
        edges[0] += bit
        out[source] += bit
        into[target] += bit
    whole = codes[(edges[0] <= MOST_EDGES) & out[:-1].all(axis=0) & into[1:].all(axis=0)]
    return [_matrix(code, vertices) for code in whole.tolist()]


def _matrix(code: int, vertices: int) -> Matrix:
    rows = [[0] * vertices for _ in range(vertices)]
    for index, (source, target) in enumerate(combinations(range(vertices), 2)):
        rows[source][target] = code >> index & 1
    return tuple(map(tuple, rows))


def labelings(module: Module) -> int:
    """Count the upper-triangular forms of a module: distinct pairs of matrix and operations."""
    found = set()
    for order in _orders(module.matrix, [0]):
        matrix = tuple(tuple(module.matrix[i][j] for j in order) for i in order)
        found.add((matrix, tuple(module.ops[vertex - 1] for vertex in order[1:-1])))
    return len(found)


def _orders(matrix: Matrix, placed: list[int]) -> Iterator[list[int]]:
    """Yield all orders of the vertices that begin with `placed` and have sources before targets."""
    if len(placed) == len(matrix):
        yield placed
    for vertex in set(range(len(matrix))) - set(placed):
        if all(source in placed for source in range(vertex) if matrix[source][vertex]):
            yield from _orders(matrix, [*placed, vertex])


def draw_module(generator: torch.Generator, candidates: Sequence[str] = OPS) -> Module:
    """Draw a module uniformly at random among those that differ in more than the order of their vertices."""
    counts = [len(whole_matrices(v)) * len(candidates) ** (v - 2) for v in range(2, MOST_VERTICES + 1)]
    while True:
        vertices, index = 2, _below(sum(counts), generator)
        while index >= counts[vertices - 2]:
            index -= counts[vertices - 2]
            vertices += 1
        which, index = divmod(index, len(candidates) ** (vertices - 2))
        ops = tuple(
            candidates[index // len(candidates) ** place % len(candidates)] for place in range(vertices - 2)
        )
        module = Module(whole_matrices(vertices)[which], ops)
        if _below(labelings(module), generator) == 0:
            return module


def _below(count: int, generator: torch.Generator) -> int:
    return int(torch.randint(count, (), generator=generator))


# Networks (section 2.2)


def vertex_op(name: str, channels: int, norm: Norm) -> nn.Module:
    """Build the operation of a vertex, with a ReLU before it if it needs one."""
    op = build_op(name, channels, 1, norm)
    return nn.Sequential(nn.ReLU(), op) if isinstance(op, NeedsReLU) else op


class ModuleCell(nn.Module):
    """x_j = op_j(P_j x_0 + Σ_i x_i[: channels of j]), out = P x_0 + concatenation (section 2.2).

    The input is projected by a 1×1 convolution; of a wider vertex, the first channels are read.

    Args:
        module: its vertices and edges.
        c_in: channels of the input.
        c_out: channels of the output.
        norm: of the operations.
    """

    def __init__(self, module: Module, c_in: int, c_out: int, norm: Norm) -> None:
        super().__init__()
        self.matrix, self.last = module.matrix, len(module.matrix) - 1
        self.channels = vertex_channels(module.matrix, c_in, c_out)
        self.ops = nn.ModuleList(
            vertex_op(name, channels, norm)
            for name, channels in zip(module.ops, self.channels[1:-1], strict=True)
        )
        self.projections = nn.ModuleDict(
            {
                str(vertex): conv_norm_relu(c_in, channels, 1, norm(channels))
                for vertex, channels in enumerate(self.channels)
                if vertex and module.matrix[0][vertex]
            }
        )
        self.drop_path = DropPath()

    def forward(self, x: Tensor) -> Tensor:
        nodes = [x]
        for vertex in range(1, self.last):
            channels = self.channels[vertex]
            inputs = [nodes[i][:, :channels] for i in range(1, vertex) if self.matrix[i][vertex]]
            nodes.append(self.drop_path(self.ops[vertex - 1](self._with_input(vertex, x, inputs))))
        feeding = [nodes[i] for i in range(1, self.last) if self.matrix[i][self.last]]
        return self._with_input(self.last, x, [concatenate(feeding)] if feeding else [])

    def _with_input(self, vertex: int, x: Tensor, inputs: list[Tensor]) -> Tensor:
        """Return the sum of a vertex' inputs."""
        if self.matrix[0][vertex]:
            inputs = [*inputs, self.projections[str(vertex)](x)]
        return reduce(torch.add, inputs)  # the sum of a stack would not be channels-last


class ModuleBackbone(Backbone):
    """A 3×3 stem and three stacks of cells, of a stack's channels each.

    Args:
        module: of every cell.
        norm: of the network.
        in_channels: of the images.
        channels: of the first stack; they double from stack to stack.
        cells: of a stack.
    """

    def __init__(self, module: Module, norm: Norm, in_channels: int, channels: int, cells: int) -> None:
        super().__init__()
        widest = sum(row[-1] for row in module.matrix[1:])
        if cells < 1 or channels < max(1, widest):
            expected = f"There must be at least 1 cell and {max(1, widest)} channels"
            raise InputError(expected, got=f"cells={cells}, channels={channels}")
        self.stem = conv_norm_relu(in_channels, channels, 3, norm.outside_cells(channels))
        self.widths = [channels * 2**stack for stack in range(STACKS) for _ in range(cells)]
        before = [channels, *self.widths[:-1]]
        self.cells = nn.ModuleList(
            ModuleCell(module, a, b, norm) for a, b in zip(before, self.widths, strict=True)
        )
        self.per_stack = cells
        self.auxiliary_at = 2 * cells - 1  # the end of the second stack

    def cells_outputs(self, x: Tensor, mixtures: Sequence[Mixtures] | None = None) -> Iterator[Tensor]:
        x = self.stem(x)
        for index, cell in enumerate(self.cells):
            if index and index % self.per_stack == 0:
                x = F.max_pool2d(x, 2, ceil_mode=True)
            x = cell(x)
            yield x


# Spaces

_EXPECTED = (
    'The module must be "0110…:input,conv3x3-bn-relu,…,output" or JSON {"matrix": [[0, 1, …], …], "ops": […]}'
)


class ModuleSpace(SearchSpace):
    """Base of NAS-Bench-101 and its sub-spaces.

    Genotypes may have vertices that are on no path from input to output; networks and hashes omit these.

    Args:
        ops: names of the operations on vertices.
    """

    def __init__(self, ops: Sequence[str] = OPS) -> None:
        self.ops = operation_names(ops)
        if NONE in self.ops:
            raise InputError("Operations of vertices cannot include none", got=self.ops, where="space.ops")

    @property
    def cells(self) -> tuple[str, ...]:
        return ("cell",)

    @checked
    def network(  # type: ignore[override]
        self,
        genotype: Genotype,
        *,
        in_channels: Channels,
        num_classes: PositiveInt,
        channels: Channels = 32,
        cells: Cells = 3,
        auxiliary: bool = False,
        dropout: Share = 0.0,
        norm: Norm = TRAIN_NORM,
    ) -> Network:
        """Build the network; `channels` of the stem and the first stack, `cells` per stack."""
        backbone = ModuleBackbone(self.module(genotype), norm, in_channels, channels, cells)
        return Network(backbone, num_classes, auxiliary=auxiliary, dropout=dropout)

    def module(self, genotype: Genotype) -> Module:
        """Return the genotype's pruned module."""
        self.check(genotype)
        return prune(from_cell(genotype["cell"], self.ops))

    def hash(self, genotype: Genotype) -> str:
        """Return the architecture's hash in the public benchmark, invariant to the order of its vertices."""
        return module_hash(self.module(genotype), self.ops)

    def check(self, genotype: Genotype) -> None:
        _check_names(genotype)
        check_size(prune(from_cell(genotype["cell"], self.ops)))

    def genotype(self, module: Module) -> Genotype:
        """Return a module as a genotype."""
        settings = {name: value for name, value in self.settings.items() if name == "ops"}
        return Genotype(GENOTYPES, {"cell": to_cell(module)}, settings)

    def notation(self, genotype: Genotype) -> str:
        """Write the matrix row by row and the operations, as in the public benchmark's files."""
        self.check(genotype)
        module = from_cell(genotype["cell"], self.ops)
        digits = "".join(str(value) for row in module.matrix for value in row)
        return f"{digits}:{','.join((INPUT, *module.ops, OUTPUT))}"


def read_module(text: str | Mapping[str, Any], candidates: Sequence[str] = OPS) -> Module:
    """Read a module from the public benchmark's matrix and operations, or from our JSON; not pruned."""
    data = parse_json(text, _EXPECTED) if isinstance(text, str) and text.lstrip().startswith("{") else text
    if isinstance(data, Mapping) and "cells" in data:
        genotype = Genotype.from_dict({"space": GENOTYPES, **data})
        _check_names(genotype)
        return from_cell(genotype["cell"], candidates)
    matrix, ops = _compact(data) if isinstance(data, str) else _parts(data)
    return module_of(matrix, ops, candidates)


def _check_names(genotype: Genotype) -> None:
    if genotype.space != GENOTYPES:
        raise InputError(f"The genotype must be one of the space {GENOTYPES!r}", got=genotype.space)
    names = [name for name, _ in genotype]
    if names != ["cell"]:
        raise InputError("The genotype must have one cell with the name 'cell'", got=", ".join(names))


def _compact(text: str) -> tuple[list[list[int]], list[str]]:
    digits, _, ops = text.strip().partition(":")
    size = int(len(digits) ** 0.5)
    if not digits or set(digits) - {"0", "1"} or size * size != len(digits):
        raise InputError(_EXPECTED, got=text)
    rows = [[int(digit) for digit in digits[size * row : size * (row + 1)]] for row in range(size)]
    return rows, [op.strip() for op in ops.split(",") if op.strip()]


def _parts(data: object) -> tuple[list[list[int]], list[str]]:
    if isinstance(data, Mapping):
        matrix = data.get("matrix", data.get("module_adjacency"))
        ops = data.get("ops", data.get("module_operations"))
        rows = isinstance(matrix, (list, tuple)) and all(isinstance(row, (list, tuple)) for row in matrix)
        texts = isinstance(ops, (list, tuple)) and all(isinstance(op, str) for op in ops)
        if rows and texts and all(type(value) is int for row in matrix for value in row):
            return [list(row) for row in matrix], list(ops)
    raise InputError(_EXPECTED, got=data)


class NasBench101(ModuleSpace):
    """Modules of up to 7 vertices and 9 edges, with operations on the vertices.

    The network has three stacks of the same module, with max pooling and twice the channels from one to the
    next (section 2.2). The space has no supernet, but its sub-spaces `nasbench1shot1` have one.

    Args:
        ops: the candidates of every vertex: names of operations, or dotted names of the user's own.

    >>> space = NasBench101()
    >>> genotype = space.parse("010001000:input,maxpool3x3,output")
    >>> print(genotype)
    cell: maxpool3x3(0)→1 ⇒ [1]
    >>> space.notation(genotype)
    '010001000:input,maxpool3x3,output'
    """

    name: ClassVar[str] = GENOTYPES

    @property
    def groups(self) -> Mapping[str, Group]:
        return {}

    @checked
    def supernet(  # type: ignore[override]
        self, *, in_channels: Channels, num_classes: PositiveInt
    ) -> Supernet:
        _no_supernet()

    def one_hot(self, genotype: Genotype) -> dict[str, Tensor]:
        _no_supernet()

    def discretize(self, scores: Mapping[str, Tensor]) -> Genotype:
        _no_supernet()

    def sample(self, generator: torch.Generator) -> Genotype:
        """Draw one of the 423,624 architectures uniformly."""
        return self.genotype(draw_module(generator, self.ops))

    def neighbors(self, genotype: Genotype) -> list[Genotype]:
        """Return the genotypes with another operation, one edge, or one vertex more or less."""
        return [self.genotype(module) for module in variations(self.module(genotype), self.ops)]

    def parse(self, text: str | Mapping[str, Any]) -> Genotype:
        """Read the public benchmark's matrix and operations, compact or as JSON, or our JSON; prune."""
        module = prune(read_module(text, self.ops))
        check_size(module)
        return self.genotype(module)


def _no_supernet() -> NoReturn:
    raise InputError(
        "This needs a space with a supernet, such as nasbench1shot1_s1", got="nasbench101", where="space"
    )
