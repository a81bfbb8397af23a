"""Pictures of several cells' connections side by side: edges coloured by kind, without their operations."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from nas_lightning.genotype import Cell
from nas_lightning.plots.cell import draw_layout, legend_line
from nas_lightning.plots.cell_layout import FONT_SIZE, lay_out
from nas_lightning.plots.style import INK, kind

COLUMNS = 2
BORDER, TITLE, LEGEND = 0.14, 0.26, 0.5


def draw_topologies(cells: Mapping[str, Cell]) -> Figure:
    """One panel a cell, two in a row, all at the same scale; its name in the mapping is its title."""
    layouts = {name: lay_out(cell, labelled=False) for name, cell in cells.items()}
    width = max(layout.width for layout in layouts.values()) + 2 * BORDER
    height = max(layout.height for layout in layouts.values()) + 2 * BORDER + TITLE
    columns = min(COLUMNS, len(cells))
    rows = -(-len(cells) // columns)
    figure = Figure(figsize=(columns * width, rows * height + LEGEND))
    across, down = figure.get_size_inches()
    for number, (name, layout) in enumerate(layouts.items()):
        row, column = divmod(number, columns)
        place = (column * width, down - (row + 1) * height)
        axes = figure.add_axes((place[0] / across, place[1] / down, width / across, height / down))
        spare = (width - layout.width) / 2, (height - TITLE - layout.height) / 2
        axes.set_xlim(-spare[0], width - spare[0])
        axes.set_ylim(-spare[1], height - spare[1])
        axes.set_axis_off()
        draw_layout(axes, cells[name], layout)
        axes.text(
            BORDER - spare[0],
            height - spare[1] - TITLE / 2,
            name,
            ha="left",
            va="center",
            size=FONT_SIZE + 1,
            weight="bold",
            color=INK,
        )
    kinds = sorted({kind(edge.op) for cell in cells.values() for edge in cell.edges})
    figure.legend(
        handles=[legend_line(family) for family in kinds],
        loc="lower center",
        ncols=min(2, len(kinds)),
        frameon=False,
        fontsize=FONT_SIZE,
        labelcolor=INK,
    )
    return figure
