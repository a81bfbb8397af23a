"""Where a cell's nodes and edges go in a picture, and how large its boxes are, in inches."""

from __future__ import annotations

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

from nas_lightning.genotype import Cell
from nas_lightning.plots.layout import Layout, Point, Wire, arrange
from nas_lightning.plots.style import op_label
from nas_lightning.spaces.ops import NONE

FONT_SIZE = 8.0
INPUT_BOX = (0.52, 0.34)
INNER_BOX = (0.34, 0.34)
OUTPUT_BOX = (0.62, 0.46)
_TITLES = {"cell": "Cell", "reduce": "Reduction cell"}


def cell_title(name: str) -> str:
    """What stands above a cell of that name.

    >>> cell_title("normal"), cell_title("reduce")
    ('Normal cell', 'Reduction cell')
    """
    return _TITLES.get(name, f"{name.capitalize()} cell")


def text_width(text: str) -> float:
    """The width of a text in inches."""
    font = FontProperties(size=FONT_SIZE)
    return TextToPath().get_text_width_height_descent(text, font, ismath=False)[0] / 72


def lay_out(cell: Cell, *, labelled: bool = True) -> Layout:
    """The cell's own edges in their order, with room for their labels, then those that gather its outputs."""
    boxes: dict[int, Point] = dict.fromkeys(range(cell.inputs), INPUT_BOX)
    boxes.update({edge.target: INNER_BOX for edge in cell.edges})
    wires = [Wire(e.source, e.target, label_width(e.op) if labelled else 0.0) for e in cell.edges]
    boxes[exit_node(cell)] = OUTPUT_BOX
    wires += [Wire(node, exit_node(cell), 0.0) for node in cell.output if node != exit_node(cell)]
    return arrange(boxes, wires)


def exit_node(cell: Cell) -> int:
    """The node that stands for the cell's output: its only output node, or one more that concatenates."""
    return cell.output[0] if len(cell.output) == 1 else cell.nodes


def label_width(op: str) -> float:
    return 0.0 if op == NONE else text_width(op_label(op)) + 0.16
