"""Figures: pure functions from values to matplotlib figures."""

from nas_lightning.plots.cells import draw_cell, draw_genotype
from nas_lightning.plots.curves import draw_curves, draw_weights
from nas_lightning.plots.style import save

__all__ = ["draw_cell", "draw_curves", "draw_genotype", "draw_weights", "save"]
