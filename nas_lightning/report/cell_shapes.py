"""Cells as the page draws them: geometry in pixels, y downwards, that a template writes as SVG."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nas_lightning.genotype import Cell, Edge, Genotype
from nas_lightning.plots.cell_layout import (
    INNER_BOX,
    INPUT_BOX,
    OUTPUT_BOX,
    cell_title,
    exit_node,
    label_width,
    lay_out,
)
from nas_lightning.plots.layout import LABEL_HEIGHT, Layout, Point, Route
from nas_lightning.plots.style import Kind, kind, node_label, op_label

SCALE = 108.0  # pixels an inch: the labels' 8 points are 12 pixels
BORDER = 0.1


@dataclass(frozen=True)
class Box:
    """A rectangle with text in it, in pixels.

    Args:
        x: of the centre.
        y: of the centre.
        width: of the rectangle.
        height: of the rectangle.
        text: what stands in it.
    """

    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True)
class NodeShape:
    """A node.

    Args:
        box: where it is, and the letter or number in it.
        index: below the line after the letter.
        inner: whether it is a node between inputs and output, which are round.
        note: a second line.
    """

    box: Box
    index: str
    inner: bool
    note: str = ""


@dataclass(frozen=True)
class EdgeShape:
    """An edge.

    Args:
        kind: of its operation; None: it gathers the outputs.
        path: the data of an SVG path.
        tip: where its arrow ends.
        label: the operation; None where nothing is computed.
        words: what it is, in words.
        row: where its weights stand in the history, `group/row`; empty where they do not.
        marked: whether it stands out.
    """

    kind: Kind | None
    path: str
    tip: Point
    label: Box | None
    words: str
    row: str = ""
    marked: bool = False


@dataclass(frozen=True)
class CellShape:
    """A whole cell.

    Args:
        title: which cell it is.
        words: the cell in words.
        width: in pixels.
        height: in pixels.
        edges: below the nodes.
        nodes: above the edges.
    """

    title: str
    words: str
    width: float
    height: float
    edges: Sequence[EdgeShape]
    nodes: Sequence[NodeShape]


def shape_genotype(
    genotype: Genotype,
    rows: Mapping[str, Mapping[tuple[int, int], int]] | None = None,
    plain: Mapping[str, Collection[Edge]] | None = None,
) -> list[CellShape]:
    """All cells of a genotype.

    Args:
        genotype: whose cells they are.
        rows: {cell: {(source, target): row}}, where the edges' weights stand in the history.
        plain: the edges of each cell that are not marked; None: none is.
    """
    rows = rows or {}
    plain = {name: cell.edges for name, cell in genotype} if plain is None else plain
    return [shape_cell(name, cell, rows.get(name, {}), plain.get(name, ())) for name, cell in genotype]


def common_edges(genotypes: Sequence[Genotype]) -> dict[str, set[Edge]]:
    """The edges that all genotypes with such a cell have, by the name of the cell."""
    edges_of: dict[str, list[set[Edge]]] = {}
    for name, cell in (named for genotype in genotypes for named in genotype):
        edges_of.setdefault(name, []).append(set(cell.edges))
    return {name: set.intersection(*edges) for name, edges in edges_of.items()}


def shape_cell(
    name: str, cell: Cell, rows: Mapping[tuple[int, int], int], plain: Collection[Edge]
) -> CellShape:
    """One cell; its edges first, then those that gather its outputs."""
    layout = lay_out(cell)
    edges = []
    for edge, route in zip(cell.edges, layout.routes, strict=False):
        row = rows.get((edge.source, edge.target))
        edges.append(
            EdgeShape(
                kind(edge.op),
                _path(route, layout),
                _place(route.points[-1], layout),
                _label(edge.op, route, layout),
                edge_words(edge, cell.inputs),
                "" if row is None else f"{name}/{row}",
                edge not in plain,
            )
        )
    for route in layout.routes[len(cell.edges) :]:
        tip = _place(route.points[-1], layout)
        edges.append(EdgeShape(None, _path(route, layout), tip, None, "gathered by the output"))
    nodes = [_node(cell, node, layout) for node in layout.nodes]
    width, height = ((extent + 2 * BORDER) * SCALE for extent in (layout.width, layout.height))
    return CellShape(cell_title(name), cell_words(cell), width, height, edges, nodes)


def edge_words(edge: Edge, inputs: int) -> str:
    """An edge in words.

    >>> edge_words(Edge("sep_conv_3x3", 0, 2), 2)
    'sep conv 3×3 from c k−2 to 0'
    """
    return f"{op_label(edge.op)} from {node_label(edge.source, inputs)} to {node_label(edge.target, inputs)}"


def cell_words(cell: Cell) -> str:
    """A cell in words: what each node takes from which, and what comes out.

    >>> cell_words(Cell([("skip_connect", 0, 2), ("max_pool_3x3", 1, 2)], 2, [2]))
    'the output takes skip of c k−2 and max pool 3×3 of c k−1.'
    """
    nodes = sorted({edge.target for edge in cell.edges})
    parts = []
    for node in nodes:
        taken = " and ".join(
            f"{op_label(e.op)} of {node_label(e.source, cell.inputs)}" for e in cell.into(node)
        )
        name = "the output" if cell.output == (node,) else f"node {node_label(node, cell.inputs)}"
        parts.append(f"{name} takes {taken}")
    if len(cell.output) > 1:
        gathered = ", ".join(node_label(node, cell.inputs) for node in cell.output)
        parts.append(f"the output concatenates {gathered}")
    return "; ".join(parts) + "."


def kinds_in(genotypes: Sequence[Genotype]) -> list[Kind]:
    """The families of operations in them, for a legend."""
    return list(dict.fromkeys(kind(op) for genotype in genotypes for op in sorted(genotype.ops)))


def _place(point: Point, layout: Layout) -> Point:
    return (point[0] + BORDER) * SCALE, (layout.height - point[1] + BORDER) * SCALE


def _path(route: Route, layout: Layout) -> str:
    """Through the route's points, level at each of them."""
    points = [_place(point, layout) for point in route.points]
    data = "M{:.1f} {:.1f}".format(*points[0])
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (x0 + x1) / 2
        data += f"C{middle:.1f} {y0:.1f} {middle:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
    return data


def _label(op: str, route: Route, layout: Layout) -> Box | None:
    if route.label is None:
        return None
    return Box(*_place(route.label, layout), label_width(op) * SCALE, LABEL_HEIGHT * SCALE, op_label(op))


def _node(cell: Cell, node: int, layout: Layout) -> NodeShape:
    x, y = _place(layout.nodes[node], layout)
    if node == exit_node(cell):
        box = Box(x, y, OUTPUT_BOX[0] * SCALE, OUTPUT_BOX[1] * SCALE, "c")
        return NodeShape(box, "k", False, "concat" if len(cell.output) > 1 else "")
    inner = node >= cell.inputs
    width, height = INNER_BOX if inner else INPUT_BOX
    text, _, index = node_label(node, cell.inputs).partition(" ")
    return NodeShape(Box(x, y, width * SCALE, height * SCALE, text), index, inner)
