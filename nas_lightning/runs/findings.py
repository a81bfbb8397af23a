"""What a study or an evaluation ends in: tables, figures and numbers, and their files in a run's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nas_lightning.files import write_whole
from nas_lightning.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TABLES = "tables"


@dataclass(frozen=True)
class Findings:
    """What a study ends in.

    Args:
        tables: written to `tables/<name>.csv`, `.md` and `.tex`, and shown in this order, unless long.
        figures: written to `figures/<name>.svg` and `.png`.
        numbers: single numbers for the run's summary, by name.
    """

    tables: Sequence[Table]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    def write(self, folder: Path) -> list[Path]:
        """The files that a reader opens: the Markdown of each table, the picture of each figure."""
        from nas_lightning.plots.style import save

        written = []
        for table in self.tables:
            path = folder / TABLES / f"{table.name}.md"
            written.append(write_whole(path, table.markdown() + "\n"))
            write_whole(path.with_suffix(".csv"), table.csv())
            write_whole(path.with_suffix(".tex"), table.latex())
        for name, figure in self.figures.items():
            written.append(save(figure, folder / "figures" / name)[1])
        return written
