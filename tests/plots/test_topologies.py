"""Connections of cells side by side: a panel each, without the names of operations."""

import pytest
from matplotlib.patches import Circle, FancyArrowPatch

from nas_lightning.genotype import Cell
from nas_lightning.plots.cells import draw_topologies

WIDE = Cell([("sep_conv_3x3", 0, 2), ("skip_connect", 1, 2), ("avg_pool_3x3", 0, 3)], inputs=2, output=[2, 3])
DEEP = Cell([("sep_conv_3x3", 0, 2), ("skip_connect", 2, 3), ("skip_connect", 3, 4)], inputs=2, output=[4])


def test_each_cell_has_a_panel_of_its_nodes_and_edges():
    figure = draw_topologies({"wide: 2c, 2": WIDE, "deep: 1c, 3": DEEP, "again": WIDE})
    assert len(figure.axes) == 3
    for axes, cell in zip(figure.axes, (WIDE, DEEP, WIDE), strict=True):
        gathers = len(cell.output) if len(cell.output) > 1 else 0
        arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
        assert len(arrows) == len(cell.edges) + gathers
        inner = {edge.target for edge in cell.edges} - (set() if gathers else set(cell.output))
        assert sum(isinstance(patch, Circle) for patch in axes.patches) == len(inner)
    texts = [{text.get_text() for text in axes.texts} for axes in figure.axes]
    assert "deep: 1c, 3" in texts[1]
    assert not any("conv" in text for found in texts for text in found)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "pooling",
        "separable convolution",
        "skip connection",
    ]


def test_panels_have_one_scale():
    """An inch of one cell is an inch of another, so that deep ones are long."""
    figure = draw_topologies({"wide": WIDE, "deep": DEEP})
    for axes in figure.axes:
        low, high = axes.get_xlim()
        assert axes.get_position().width * figure.get_figwidth() == pytest.approx(high - low)
