"""How deep and how wide cells are.

The depth of a cell is the number of inner nodes on the longest path from an input to the output, the path
whose probability PR-DARTS rewards (Zhou et al. 2020, arXiv:2006.16537, section 4.2). Its width is the sum
over inner nodes of the share of their inputs that are inputs of the cell, in units of a node's width (Shu et
al. 2020, arXiv:1909.09569, section 2.2, where the depth also counts the edge to an output that concatenates
nodes). The zero operation connects nothing.
"""

from __future__ import annotations

from fractions import Fraction

from nas_lightning.genotype import Cell, Genotype
from nas_lightning.spaces.operations import NONE, SKIP


def depth(cell: Cell) -> int:
    """Return the number of inner nodes on the longest path from an input to the output.

    >>> cell = Cell([("a", 0, 2), ("a", 1, 2), ("a", 0, 3), ("a", 2, 3)], inputs=2, output=[2, 3])
    >>> depth(cell), width(cell)
    (2, Fraction(3, 2))
    """
    longest = dict.fromkeys(range(cell.inputs), 0)
    for edge in cell.edges:  # sources come before targets
        if edge.op != NONE and edge.source in longest:
            longest[edge.target] = max(longest.get(edge.target, 0), longest[edge.source] + 1)
    return max(longest.get(node, 0) for node in cell.output)


def width(cell: Cell) -> Fraction:
    """Return the sum over inner nodes of the share of their inputs that are inputs of the cell."""
    total = Fraction(0)
    for node in range(cell.inputs, cell.nodes):
        sources = [edge.source for edge in cell.into(node) if edge.op != NONE]
        if sources:
            total += Fraction(sum(source < cell.inputs for source in sources), len(sources))
    return total


def skips(cell: Cell) -> int:
    """Return the number of skip connections."""
    return sum(edge.op == SKIP for edge in cell.edges)


def topology_metrics(genotype: Genotype) -> dict[str, float]:
    """Return depth, width, and skips of each cell by metric name; empty without cells.

    >>> cell = Cell([("skip_connect", 0, 1)], inputs=1, output=[1])
    >>> topology_metrics(Genotype("nasbench201", {"cell": cell}))
    {'depth/cell': 1.0, 'width/cell': 1.0, 'skips/cell': 1.0}
    """
    return {
        f"{measure.__name__}/{name}": float(measure(cell))
        for name, cell in genotype
        for measure in (depth, width, skips)
    }


def topology_text(genotype: Genotype) -> str:
    """Return depth, width, and skips of each cell in one line; empty without cells.

    >>> cell = Cell([("skip_connect", 0, 1)], inputs=1, output=[1])
    >>> topology_text(Genotype("nasbench201", {"cell": cell}))
    'cell: depth 1, width 1, 1 skip'
    """
    parts = []
    for name, cell in genotype:
        count = skips(cell)
        parts.append(
            f"{name}: depth {depth(cell)}, width {float(width(cell)):.3g}, {count} skip{'s' * (count != 1)}"
        )
    return "; ".join(parts)
