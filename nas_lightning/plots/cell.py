"""Pictures of cells: nodes from left to right, operations as labels on the edges, coloured by kind."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from nas_lightning.genotype import Cell, Genotype
from nas_lightning.plots.cell_layout import (
    FONT_SIZE,
    INNER_BOX,
    INPUT_BOX,
    OUTPUT_BOX,
    cell_title,
    exit_node,
    label_width,
    lay_out,
    text_width,
)
from nas_lightning.plots.layout import LABEL_HEIGHT, Layout, Point, Route
from nas_lightning.plots.style import GREY, INK, Kind, kind, node_name, op_label
from nas_lightning.spaces.ops import NONE

BORDER = 0.18
TITLE = 0.26
LEGEND = 0.36


def draw_cell(cell: Cell, title: str = "") -> Figure:
    """A cell as a graph from left to right.

    Inputs are labelled as outputs of the cells before, inner nodes are numbered from 0. Edges that carry
    `none` are dotted and have no label.
    """
    return _figure([(title, cell)])


def draw_genotype(genotype: Genotype) -> Figure:
    """All cells of a genotype, one below the other, with one legend."""
    return _figure([(cell_title(name), cell) for name, cell in genotype])


def _figure(cells: Sequence[tuple[str, Cell]]) -> Figure:
    kinds = sorted({kind(edge.op) for _, cell in cells for edge in cell.edges})
    layouts = [lay_out(cell) for _, cell in cells]
    legend_width = sum(0.62 + text_width(family.name) for family in kinds)
    titles = [TITLE if title else 0.0 for title, _ in cells]
    width = max(legend_width, *(layout.width for layout in layouts)) + 2 * BORDER
    height = sum(layout.height + 2 * BORDER for layout in layouts) + sum(titles) + LEGEND
    figure = Figure(figsize=(width, height))
    top = height
    for (title, cell), layout, space in zip(cells, layouts, titles, strict=True):
        top -= layout.height + 2 * BORDER + space
        axes = figure.add_axes((0, top / height, 1, (layout.height + 2 * BORDER + space) / height))
        left = (width - layout.width) / 2
        axes.set_xlim(-left, width - left)
        axes.set_ylim(-BORDER, layout.height + BORDER + space)
        axes.set_axis_off()
        draw_layout(axes, cell, layout)
        if title:
            place = (BORDER - left, layout.height + BORDER + space / 2)
            axes.text(*place, title, ha="left", va="center", size=11, weight="bold", color=INK)
    handles = [legend_line(family) for family in kinds]
    figure.legend(
        handles=handles,
        loc="lower center",
        ncols=len(handles),
        frameon=False,
        fontsize=FONT_SIZE,
        labelcolor=INK,
        columnspacing=1.6,
        handlelength=1.8,
    )
    return figure


def legend_line(family: Kind) -> Line2D:
    """What a legend shows of a kind of operations."""
    dotted = family == kind(NONE)
    return Line2D(
        [], [], color=family.colour, linewidth=2.2, linestyle=":" if dotted else "-", label=family.name
    )


def draw_layout(axes: Axes, cell: Cell, layout: Layout) -> None:
    """The edges of a cell, then its nodes."""
    gathers = len(layout.routes) - len(cell.edges)
    colours = [kind(edge.op).colour for edge in cell.edges] + [GREY] * gathers
    ops = [edge.op for edge in cell.edges] + [""] * gathers
    for route, colour, op in zip(layout.routes, colours, ops, strict=True):
        _draw_edge(axes, route, colour, op)
    for node, place in layout.nodes.items():
        _draw_node(axes, cell, node, place)


def _draw_edge(axes: Axes, route: Route, colour: str, op: str) -> None:
    width, style = (1.0, (0, (1, 2.2))) if op == NONE else (1.5 if op else 1.0, "-")
    arrow = FancyArrowPatch(
        path=curve(route.points),
        arrowstyle="-|>,head_length=3.4,head_width=1.7" if op != NONE else "-",
        color=colour,
        linewidth=width,
        linestyle=style,
        shrinkA=0,
        shrinkB=0,
        capstyle="butt",
        joinstyle="miter",
        zorder=1,
    )
    axes.add_patch(arrow)
    if route.label is not None:
        x, y = route.label
        box = _box(route.label, (label_width(op), LABEL_HEIGHT), 0.06, "white", colour, 1.0)
        axes.add_patch(box)
        axes.text(
            x, y - 0.005, op_label(op), ha="center", va="center_baseline", size=FONT_SIZE, color=INK, zorder=4
        )


def curve(points: Sequence[Point]) -> Path:
    """Through the points, level at each of them."""
    vertices, codes = [points[0]], [Path.MOVETO]
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (x0 + x1) / 2
        vertices += [(middle, y0), (middle, y1), (x1, y1)]
        codes += [Path.CURVE4] * 3
    return Path(vertices, codes)


def _draw_node(axes: Axes, cell: Cell, node: int, place: Point) -> None:
    x, y = place
    if node == exit_node(cell):
        axes.add_patch(_box(place, OUTPUT_BOX, 0.08, "#eceff3", INK, 1.1))
        gathered = len(cell.output) > 1
        axes.text(x, y + 0.08 * gathered, "$c_k$", ha="center", va="center", size=10, color=INK, zorder=4)
        if gathered:
            axes.text(x, y - 0.12, "concat", ha="center", va="center", size=7, color=INK, zorder=4)
    elif node < cell.inputs:
        axes.add_patch(_box(place, INPUT_BOX, 0.08, "#eceff3", INK, 1.1))
        name = node_name(node, cell.inputs)
        axes.text(x, y, name, ha="center", va="center", size=10, color=INK, zorder=4)
    else:
        disc = Circle(place, INNER_BOX[0] / 2, facecolor="white", edgecolor=INK, linewidth=1.1, zorder=3)
        axes.add_patch(disc)
        name = node_name(node, cell.inputs)
        axes.text(x, y, name, ha="center", va="center_baseline", size=9, weight="bold", color=INK, zorder=4)


def _box(centre: Point, size: Point, rounding: float, face: str, edge: str, line: float) -> FancyBboxPatch:
    corner = (centre[0] - size[0] / 2, centre[1] - size[1] / 2)
    style = f"round,pad=0,rounding_size={rounding}"
    return FancyBboxPatch(
        corner, *size, boxstyle=style, facecolor=face, edgecolor=edge, linewidth=line, zorder=3
    )
