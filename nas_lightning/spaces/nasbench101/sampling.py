"""Modules of NAS-Bench-101, each as likely as any other of its 423,624 (Ying et al. 2019, arXiv:1902.09635).

Matrices drawn bit by bit until one is valid are mostly pruned to a few vertices: of 2,000 that way 5 had 7
vertices, as 85 % of the space has, and 193 none but input and output. So matrices are drawn from the list of
those that need no pruning, with operations; and a module that is in that list in n orders of its vertices is
kept with probability 1/n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations

import numpy as np
import torch

from nas_lightning.spaces.nasbench101.modules import MOST_EDGES, MOST_VERTICES, OPS, Matrix, Module


@cache
def whole_matrices(vertices: int) -> list[Matrix]:
    """All upper-triangular matrices of at most 9 edges whose vertices are all between input and output.

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
    """In how many ways the vertices of a module can be numbered so that its matrix is upper-triangular.

    Numberings that give the same matrix and operations count once.
    """
    found = set()
    for order in _orders(module.matrix, [0]):
        matrix = tuple(tuple(module.matrix[i][j] for j in order) for i in order)
        found.add((matrix, tuple(module.ops[vertex - 1] for vertex in order[1:-1])))
    return len(found)


def _orders(matrix: Matrix, placed: list[int]) -> Iterator[list[int]]:
    """All orders of the vertices that go on from `placed`, with sources before targets."""
    if len(placed) == len(matrix):
        yield placed
    for vertex in set(range(len(matrix))) - set(placed):
        if all(source in placed for source in range(vertex) if matrix[source][vertex]):
            yield from _orders(matrix, [*placed, vertex])


def draw(generator: torch.Generator, candidates: Sequence[str] = OPS) -> Module:
    """A module, uniformly at random among those that are not the same but for the order of their vertices."""
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
