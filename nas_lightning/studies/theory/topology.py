"""How deep and how wide a cell is (Y. Shu's thesis, 2022, section 4.2; arXiv:1909.09569)."""

from __future__ import annotations

from fractions import Fraction

from nas_lightning.genotype import Cell


def depth(cell: Cell) -> int:
    """Edges on the longest path from an input to the output, in which the outputs are concatenated.

    >>> cell = Cell([("a", 0, 2), ("a", 1, 2), ("a", 0, 3), ("a", 2, 3)], inputs=2, output=[2, 3])
    >>> depth(cell), width(cell)
    (3, Fraction(3, 2))
    """
    longest = dict.fromkeys(range(cell.inputs), 0)
    for edge in cell.edges:  # sources come before targets
        longest[edge.target] = max(longest.get(edge.target, 0), longest[edge.source] + 1)
    gathered = 1 if len(cell.output) > 1 or cell.output[0] < cell.inputs else 0
    return max(longest[node] for node in cell.output) + gathered


def width(cell: Cell) -> Fraction:
    """Σ over the inner nodes of the share of their inputs that are the cell's, in widths c of one node."""
    total = Fraction(0)
    for node in range(cell.inputs, cell.nodes):
        sources = [edge.source for edge in cell.into(node)]
        if sources:
            total += Fraction(sum(source < cell.inputs for source in sources), len(sources))
    return total
