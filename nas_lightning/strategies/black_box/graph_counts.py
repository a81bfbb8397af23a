"""What can be counted in a genotype's graph (GRAF, Kadlecová et al. 2024, arXiv:2404.16551)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from nas_lightning.genotype import Cell, Genotype

Best = Callable[..., int]
"""`max` or `min`."""


def graph_counts(genotype: Genotype) -> dict[str, float]:
    """Of each cell and operation its edges and the most and fewest on a path; of each node its degrees.

    A path leads from an input to an output. What is not there is not listed, and counts as 0.

    >>> from nas_lightning.spaces import NasBench201
    >>> cell = "|skip_connect~0|+|none~0|nor_conv_3x3~1|+|none~0|skip_connect~1|nor_conv_3x3~2|"
    >>> counts = graph_counts(NasBench201().parse(cell))
    >>> counts["cell/edges/nor_conv_3x3"], counts["cell/most/nor_conv_3x3"], counts["cell/most/all"]
    (2, 2, 3)
    """
    found: Counter[str] = Counter()
    for name, cell in genotype:
        found.update({f"{name}/{key}": value for key, value in _of_cell(cell).items()})
    return dict(found)


def _of_cell(cell: Cell) -> dict[str, int]:
    edges = [edge for edge in cell.edges if edge.op != "none"]
    counts: Counter[str] = Counter(f"edges/{edge.op}" for edge in edges)
    counts.update(f"out/{edge.source}" for edge in edges)
    counts.update(f"in/{edge.target}" for edge in edges)
    for op in (*sorted({edge.op for edge in edges}), "all"):
        steps = [(edge.source, edge.target, int(op in (edge.op, "all"))) for edge in edges]
        for kind, best in (("most", max), ("least", min)):
            ends = _path_sums(cell, steps, best)
            if ends:
                counts[f"{kind}/{op}"] = best(ends)
    return dict(counts)


def _path_sums(cell: Cell, steps: list[tuple[int, int, int]], best: Best) -> list[int]:
    """The best sum over the paths from any input to each output that one leads to."""
    sums = dict.fromkeys(range(cell.inputs), 0)
    for source, target, length in sorted(steps, key=lambda step: step[1]):
        if source in sums:
            longer = sums[source] + length
            sums[target] = best(sums.get(target, longer), longer)
    return [sums[node] for node in cell.output if node in sums]
