"""A front as files of a run: `front.csv`, all that was looked at, and a figure."""

from __future__ import annotations

from collections.abc import Sequence

from nas_lightning.files import write_whole
from nas_lightning.objectives.fronts.objectives import Front
from nas_lightning.runs.folder import RunFolder
from nas_lightning.runs.history import FIGURES
from nas_lightning.tables import Table


def write_front(run: RunFolder, front: Front, notations: Sequence[str]) -> None:
    """Write what a search for a front has come to.

    Args:
        run: the folder.
        front: what was found.
        notations: of its architectures.
    """
    from nas_lightning.plots.front import draw_front
    from nas_lightning.plots.style import save

    rows = list(zip(*front.looked_at.values(), strict=True))
    write_whole(run.front, front.table(notations).csv())
    write_whole(run.candidates, Table("candidates", "", list(front.looked_at), rows).csv())
    save(draw_front(front.looked_at, front.columns, front.knee), run.path / FIGURES / "front")
