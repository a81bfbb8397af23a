"""The history of a search for its page: the cells and the weights of every epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Genotype
from nas_lightning.plots.cells import cell_title, draw_cell
from nas_lightning.plots.charts import MOST_POINTS, line_colors
from nas_lightning.plots.picture import Picture
from nas_lightning.plots.style import op_label
from nas_lightning.runs.facts import read_history


@dataclass(frozen=True)
class Timeline:
    """Entries of a history, at most `MOST_POINTS`, evenly spaced.

    Args:
        entries: {"epoch", "genotypes", "groups": {name: {"edges", "ops", "scores"}}}.

    >>> weights = {"edges": [[0, 1]], "ops": ["none", "skip_connect"], "scores": [[0.4, 0.6]]}
    >>> timeline = Timeline([{"epoch": 0, "genotypes": [], "groups": {"cell": weights}}])
    >>> timeline.epochs, timeline.rows
    ([1], {'cell': {(0, 1): 'cell/0'}})
    """

    entries: Sequence[Mapping[str, Any]]

    @property
    def epochs(self) -> list[int]:
        """The epochs of the entries, from 1."""
        return [entry["epoch"] + 1 for entry in self.entries]

    @property
    def groups(self) -> Mapping[str, Any]:
        """The groups that have scores in the last epoch, by name."""
        return self.entries[-1]["groups"]

    @property
    def rows(self) -> dict[str, dict[tuple[int, int], str]]:
        """{group: {(source, target): name of a row}} of the groups with operations on edges."""
        return {
            name: {(edge[0], edge[1]): f"{name}/{row}" for row, edge in enumerate(group["edges"])}
            for name, group in self.groups.items()
            if all(len(edge) == 2 for edge in group["edges"])
        }

    @cached_property
    def genotypes(self) -> list[Genotype]:
        """The genotype of every epoch; empty if an epoch has several."""
        if not all(len(entry.get("genotypes", ())) == 1 for entry in self.entries):
            return []
        return [Genotype.from_dict(entry["genotypes"][0]) for entry in self.entries]

    def draw(self, result: Genotype) -> tuple[list[Picture], list[list[int]]]:
        """Draw each cell once; also return the indices of the cells of every epoch and of the result."""
        drawn: dict[tuple[str, Cell], Picture] = {}
        frames = []
        for genotype in [*self.genotypes, result]:
            for name, cell in genotype:
                if (name, cell) not in drawn:
                    drawn[name, cell] = draw_cell(cell, cell_title(name), self.rows.get(name))
            frames.append([list(drawn).index(named) for named in genotype])
        return list(drawn.values()), frames

    def numbers(self, frames: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Return the data of the script of the page: epochs, cells, and weights with four digits."""
        groups = {}
        for name in self.rows:
            tables = [entry["groups"][name]["scores"] for entry in self.entries if name in entry["groups"]]
            if len(tables) == len(self.entries):
                ops = self.groups[name]["ops"]
                groups[name] = {
                    "ops": [op_label(op) for op in ops],
                    "colors": line_colors(ops),
                    "scores": [[[float(f"{s:.4g}") for s in row] for row in table] for table in tables],
                }
        return {"epochs": self.epochs, "frames": frames, "groups": groups}


def read_timeline(path: Path) -> Timeline:
    """Read a history file, which must have at least one epoch."""
    entries = read_history(path, MOST_POINTS)
    if not entries:
        raise InputError("There must be at least one epoch", where=path.name)
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry.get("groups"), dict):
            raise InputError("Each line must have the scores of all groups", where=f"{path.name}:{number}")
    return Timeline(entries)
