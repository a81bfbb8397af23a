"""The figures in a run's folder, by name: `genotype` (or `genotype_1`, …), `weights_<group>`, `curves`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nas_lightning.genotype import Genotype
from nas_lightning.plots.cell import draw_genotype
from nas_lightning.plots.curves import draw_curves
from nas_lightning.plots.style import save
from nas_lightning.plots.weights import draw_weights


def save_genotypes(genotypes: Sequence[Genotype], folder: Path) -> list[Path]:
    """One figure a genotype that has cells; returns the SVG files."""
    numbers = [f"_{number}" for number in range(1, len(genotypes) + 1)] if len(genotypes) > 1 else [""]
    return [
        save(draw_genotype(genotype), folder / f"genotype{number}")[0]
        for genotype, number in zip(genotypes, numbers, strict=True)
        if genotype.cells
    ]


def save_weights(history: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """One figure for every group that has scores; returns the SVG files."""
    groups = history[-1]["groups"] if history else {}
    return [save(draw_weights(history, group), folder / f"weights_{group}")[0] for group in groups]


def save_curves(rows: Iterable[Mapping[str, float]], folder: Path) -> Path:
    """Losses and accuracies; returns the SVG file."""
    return save(draw_curves(rows), folder / "curves")[0]
