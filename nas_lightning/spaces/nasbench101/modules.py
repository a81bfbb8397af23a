"""Cells of NAS-Bench-101 as graphs: pruning, channels, hash (Ying et al. 2019, arXiv:1902.09635).

A *module* is an upper-triangular matrix of 0 and 1 over its vertices, input first and output last, and the
operations of the vertices between. A genotype says the same as a cell: an edge carries the operation of the
vertex that it ends in, `output` lists the vertices that the output reads, and the input among them is the
edge from input to output. The rules here are those of the public benchmark (google-research/nasbench), whose
table they are for: a module outside of them would be looked up as another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import md5
from itertools import combinations
from typing import NamedTuple

from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Cell, Edge

OPS = ("conv3x3-bn-relu", "conv1x1-bn-relu", "maxpool3x3")  # the hash counts them in this order
MOST_VERTICES = 7
MOST_EDGES = 9
INPUT, OUTPUT = "input", "output"
Matrix = tuple[tuple[int, ...], ...]


class Module(NamedTuple):
    """`matrix[i][j]` is 1 where vertex i feeds vertex j; `ops` are those of the vertices 1 to V − 2.

    Args:
        matrix: entry (i, j) is 1 where vertex i feeds vertex j: (V, V).
        ops: of the vertices 1 to V − 2.
    """

    matrix: Matrix
    ops: tuple[str, ...]

    @property
    def edges(self) -> int:
        return sum(map(sum, self.matrix))


def module_of(matrix: Sequence[Sequence[int]], ops: Sequence[str], candidates: Sequence[str] = OPS) -> Module:
    """A module from its parts; `ops` may name input and output as the public benchmark does."""
    if len(ops) == len(matrix) and len(ops) > 1 and (ops[0], ops[-1]) == (INPUT, OUTPUT):
        ops = ops[1:-1]
    size = len(matrix)
    rows = tuple(tuple(int(value) for value in row) for row in matrix)
    square = size > 1 and all(len(row) == size for row in rows)
    if not square or any(
        v not in (0, 1) or (v and j <= i) for i, r in enumerate(rows) for j, v in enumerate(r)
    ):
        raise InputError("expected an upper-triangular matrix of 0 and 1", got=list(map(list, rows)))
    if len(ops) != size - 2:
        raise InputError(f"expected {size - 2} operations for {size} vertices", got=list(ops))
    for op in ops:
        if op not in candidates:
            raise InputError(f"expected an operation of the space ({near_match(op, candidates)})", got=op)
    return Module(rows, tuple(ops))


def prune(module: Module) -> Module:
    """Without the vertices that are not between input and output; raises where nothing is."""
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
        raise InputError("expected a path from the input to the output", got="none")
    rows = tuple(tuple(matrix[i][j] for j in kept) for i in kept)
    return Module(rows, tuple(module.ops[vertex - 1] for vertex in kept[1:-1]))


def check(module: Module) -> None:
    """Raise unless the pruned module is small enough for the benchmark."""
    if len(module.matrix) > MOST_VERTICES:
        raise InputError(f"expected at most {MOST_VERTICES} vertices", got=len(module.matrix))
    if module.edges > MOST_EDGES:
        raise InputError(f"expected at most {MOST_EDGES} edges", got=module.edges)


def to_cell(module: Module) -> Cell:
    """The module as a genotype's cell."""
    matrix, last = module.matrix, len(module.matrix) - 1
    edges = [
        Edge(module.ops[target - 1], source, target)
        for target in range(1, last)
        for source in range(target)
        if matrix[source][target]
    ]
    return Cell(edges, inputs=1, output=[vertex for vertex in range(last) if matrix[vertex][last]])


def from_cell(cell: Cell, candidates: Sequence[str] = OPS) -> Module:
    """The module that a genotype's cell stands for, vertices without a use included."""
    if cell.inputs != 1:
        raise InputError("expected a cell with one input", got=cell.inputs)
    last = cell.nodes
    matrix = [[0] * (last + 1) for _ in range(last + 1)]
    ops = []
    for vertex in range(1, last):
        chosen = {edge.op for edge in cell.into(vertex)}
        if len(chosen) != 1:
            raise InputError(f"expected one operation on all edges into vertex {vertex}", got=sorted(chosen))
        ops.append(chosen.pop())
    for _, source, target in cell.edges:
        if matrix[source][target]:
            raise InputError("expected each edge once", got=f"{source}→{target}")
        matrix[source][target] = 1
    for vertex in cell.output:
        matrix[vertex][last] = 1
    return module_of(matrix, ops, candidates)


def variations(module: Module, candidates: Sequence[str] = OPS) -> list[Module]:
    """Another operation, an edge more or less, or a vertex of one edge in and one out more or less.

    In all of them every vertex is between input and output, so that variations are mutual.
    """
    return [other for other in dict.fromkeys(_neighbours(module, candidates)) if _is_whole(other)]


def _is_whole(module: Module) -> bool:
    """Whether every vertex is between input and output, and the module is small enough."""
    try:
        check(module)
        return prune(module) == module
    except InputError:
        return False


def _neighbours(module: Module, candidates: Sequence[str]) -> Iterator[Module]:
    """All changes that leave at least input and output, valid or not."""
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
    """The matrix with a vertex more, of no edges yet."""
    rows = [(*row[:vertex], 0, *row[vertex:]) for row in matrix]
    return (*rows[:vertex], (0,) * (len(matrix) + 1), *rows[vertex:])


def _with(matrix: Matrix, edge: tuple[int, int]) -> Matrix:
    """The matrix with the other value for an edge."""
    return tuple(
        tuple(value ^ ((i, j) == edge) for j, value in enumerate(row)) for i, row in enumerate(matrix)
    )


def vertex_channels(matrix: Matrix, c_in: int, c_out: int) -> list[int]:
    """The channels of every vertex of a pruned module (section 2.2; `compute_vertex_channels`).

    The vertices that feed the output share its channels, the first ones taking what does not divide; each
    other vertex has as many as the widest that it feeds. The edge from the input counts for nothing.

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
    """The name of a pruned module in the benchmark, the same for all orders of its vertices (section 2.1).

    Every vertex starts from its numbers of edges out and in and its label (−1 for the input, −2 for the
    output, else the place of its operation), and takes in its neighbours' hashes once for each vertex.
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
