"""Shapes and sizes of published cells and their variants (Y. Shu's thesis, 2022, tables 4.1 to 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from matplotlib.figure import Figure

from nas_lightning.cost.counts import count_parameters
from nas_lightning.genotype import Cell
from nas_lightning.plots.topologies import draw_topologies
from nas_lightning.spaces import DartsSpace
from nas_lightning.studies.theory.topology import depth, width
from nas_lightning.studies.theory.variants import Description, adapted, random_connections, random_operations
from nas_lightning.tables import Entry, Table

SIZE: Mapping[str, Any] = {"in_channels": 3, "num_classes": 10, "channels": 36, "cells": 20}
"""Of the thesis' networks for CIFAR-10."""
SHOWN = 5
"""Variants of a cell that its picture has, at equal steps through their order."""
KINDS = ("normal", "reduce")

_ADAPTED = "The auxiliary head counted. Adapted: every node of both cells reads the two inputs of the cell"
_REWIRED = "Widths in widths c of a node; drawn anew here, for the authors' draws are not published"


class PublishedCells:
    """Cells of DARTS' notation, rewired and with other operations.

    Args:
        given: the cells, by name.
        connections: variants of each with random connections.
        operations: variants of each with random operations.
        seed: of the connections; operations have the authors' seeds.

    >>> cell = [("sep_conv_3x3", 0), ("skip_connect", 1)] * 4
    >>> mine = {"normal": cell, "normal_concat": [2, 3, 4, 5], "reduce": cell, "reduce_concat": [2, 3, 4, 5]}
    >>> cells = PublishedCells({"mine": mine}, connections=2, operations=0)
    >>> [table.name for table in cells.tables()], list(cells.figures())
    (['cells', 'adapted', 'connections'], ['published', 'adapted', 'connections_mine'])
    """

    def __init__(
        self, given: Mapping[str, Description], *, connections: int, operations: int, seed: int = 0
    ) -> None:
        self.space, self.given = DartsSpace(), given
        self.genotypes = {name: self.space.parse(cell) for name, cell in given.items()}
        self.normal = {name: genotype["normal"] for name, genotype in self.genotypes.items()}
        self.adapted = {name: self.space.parse(adapted(cell))["normal"] for name, cell in given.items()}
        seeds = range(seed + 1, seed + 1 + connections)
        self.rewired = {name: self._rewired(cell, seeds) for name, cell in given.items()}
        self.operations = operations

    def tables(self) -> list[Table]:
        """Shapes and parameters; of variants where there are any."""
        rewired = any(self.rewired.values())
        found = [self._shapes()] + [self._adapted()] * bool(self.given)
        return found + [self._connections()] * rewired + [self._operations()] * (self.operations > 0)

    def figures(self) -> dict[str, Figure]:
        """Normal cells as published (4.1), adapted (4.26), and beside variants (4.2, 4.11, 4.12)."""
        forms = {"published": self.normal, "adapted": self.adapted} if self.normal else {}
        found = {name: draw_topologies(_titled(cells)) for name, cells in forms.items()}
        for name, variants in self.rewired.items():
            if variants:
                step = -(-len(variants) // SHOWN)
                numbered = {f"C{number}": cell for number, cell in enumerate(variants, 1)}
                some = dict(list(numbered.items())[::-step])  # the widest first, as the published cell is
                found[f"connections_{name}"] = draw_topologies(_titled({name: self.normal[name], **some}))
        return found

    def _rewired(self, given: Description, seeds: range) -> list[Cell]:
        """Normal cells with random connections, the narrowest and deepest first."""
        drawn = [self.space.parse(random_connections(given, seed))["normal"] for seed in seeds]
        return sorted(drawn, key=lambda cell: (width(cell), -depth(cell)))

    def _shapes(self) -> Table:
        rows: list[list[Entry]] = [
            [name, *(value for kind in KINDS for value in (float(width(g[kind])), depth(g[kind])))]
            for name, g in self.genotypes.items()
        ]
        columns = ["cell", *(f"{kind} {what}" for kind in KINDS for what in ("width", "depth"))]
        return Table("cells", "Width, in widths c of a node, and depth of cells", columns, rows)

    def _adapted(self) -> Table:
        """Parameters as published and adapted (table 4.1)."""
        rows: list[list[Entry]] = [
            [name, *(self._millions(form, auxiliary=True) for form in (given, adapted(given)))]
            for name, given in self.given.items()
        ]
        title = "Parameters (millions) of cells and of their widest, shallowest form, 36 channels, 20 cells"
        return Table("adapted", title, ["cell", "as published", "adapted"], rows, _ADAPTED)

    def _connections(self) -> Table:
        """Shapes of variants with random connections (table 4.2)."""
        rows: list[list[Entry]] = [
            [name, f"C{number}", float(width(cell)), depth(cell)]
            for name, variants in self.rewired.items()
            for number, cell in enumerate(variants, 1)
        ]
        columns = ["cell", "variant", "normal width", "normal depth"]
        title = "Shapes of normal cells with random connections"
        return Table("connections", title, columns, rows, _REWIRED, long=True)

    def _operations(self) -> Table:
        """Parameters of variants with random operations, by the authors' seeds (table 4.3)."""
        seeds = range(1, self.operations + 1)
        rows: list[list[Entry]] = [
            [name, *map(self._millions, [given, *(random_operations(given, seed) for seed in seeds)])]
            for name, given in self.given.items()
        ]
        columns = ["cell", "C0", *(f"C{seed}" for seed in seeds)]
        title = "Parameters (millions) of cells with random operations, 36 channels, 20 cells"
        return Table("operations", title, columns, rows, "C0 is the cell as published; no auxiliary head")

    def _millions(self, given: Description, *, auxiliary: bool = False) -> float:
        with torch.device("meta"):
            network = self.space.network(self.space.parse(given), **SIZE, auxiliary=auxiliary)
        return count_parameters(network) / 1e6


def _titled(cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """By name, width and depth."""
    return {f"{name}: {float(width(c)):g}c, {depth(c)}": c for name, c in cells.items()}
