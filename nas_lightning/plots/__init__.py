"""Figures: pure functions from values to matplotlib figures, without pyplot and its global state."""

from nas_lightning.plots.cell import draw_cell, draw_genotype
from nas_lightning.plots.curves import draw_curves
from nas_lightning.plots.style import save
from nas_lightning.plots.weights import draw_weights

__all__ = ["draw_cell", "draw_curves", "draw_genotype", "draw_weights", "save"]
