"""Pictures: pure functions from values to pictures, which save themselves as SVG and PNG."""

from nas_lightning.plots.cells import draw_cell, draw_genotype, draw_topologies
from nas_lightning.plots.charts import draw_curves, draw_front, draw_weights
from nas_lightning.plots.files import save
from nas_lightning.plots.picture import Picture

__all__ = [
    "Picture",
    "draw_cell",
    "draw_curves",
    "draw_front",
    "draw_genotype",
    "draw_topologies",
    "draw_weights",
    "save",
]
