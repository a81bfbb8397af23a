"""Random variants of a published cell, and its widest form (Y. Shu's thesis, 2022, A.1.2; arXiv:1909.09569).

Cells are given as they are published: for each kind a list of (operation, source), two an inner node.

    connections    the k-th pair keeps its operation and its node t; its source is uniform over 0 … t − 1
    operations     the k-th pair keeps its source; its operation is uniform over the candidates
    adapted        every node reads both inputs: sources 0, 1, 0, 1, … — the widest and shallowest cell
    deepest        every node reads the two before it: the narrowest and deepest

>>> cell = {"normal": [("sep_conv_3x3", 0), ("skip_connect", 2)], "normal_concat": [2]}
>>> adapted(cell)["normal"]
[('sep_conv_3x3', 0), ('skip_connect', 1)]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

INPUTS, EDGES = 2, 2  # of a cell, and into each of its inner nodes
KINDS = ("normal", "reduce")
OPERATIONS = (
    *("max_pool_3x3", "avg_pool_3x3", "skip_connect"),
    *("sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5"),
)
"""The candidates in the order of the authors' public code, which their seeds choose from."""

Description = Mapping[str, Any]


def random_connections(cells: Description, seed: int) -> dict[str, Any]:
    """The same operations in the same order, read from nodes that are drawn."""
    random = np.random.RandomState(seed % 2**32)
    return _with(cells, lambda pairs: [(op, random.randint(_node(k))) for k, (op, _) in enumerate(pairs)])


def random_operations(
    cells: Description, seed: int, candidates: Sequence[str] = OPERATIONS
) -> dict[str, Any]:
    """The same connections with operations that are drawn.

    Seeds 1 to 10 are C₁ to C₁₀ of table 4.3: NumPy's legacy generator, the normal cell first, as the public
    code has it.
    """
    random = np.random.RandomState(seed % 2**32)

    def drawn(pairs: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        choice = random.choice(len(candidates), len(pairs))
        return [(candidates[number], source) for number, (_, source) in zip(choice, pairs, strict=True)]

    return _with(cells, drawn)


def adapted(cells: Description) -> dict[str, Any]:
    """The same operations, each node's two fed by both of the cell's inputs."""
    return _with(cells, lambda pairs: [(op, k % EDGES) for k, (op, _) in enumerate(pairs)])


def deepest(cells: Description) -> dict[str, Any]:
    """The same operations, each node's two fed by the two nodes before it."""
    return _with(cells, lambda pairs: [(op, _node(k) - 1 - k % EDGES) for k, (op, _) in enumerate(pairs)])


def _node(k: int) -> int:
    """The inner node that the k-th pair ends in."""
    return INPUTS + k // EDGES


def _with(cells: Description, change: Any) -> dict[str, Any]:
    changed = {kind: change([tuple(pair) for pair in cells[kind]]) for kind in KINDS if kind in cells}
    return {**cells, **{kind: [(op, int(source)) for op, source in pairs] for kind, pairs in changed.items()}}
