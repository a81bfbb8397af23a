"""Which networks of a trained pool make the ensemble (Zaidi et al. 2021, arXiv:2006.08573, section 4.1).

Forward selection: begin with nothing, and add the network that lowers the loss of the averaged prediction
most, on images that none was trained on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nas_lightning.ensembles.ensemble import Ensemble
from nas_lightning.ensembles.evaluation import Batch, Evaluation, evaluate
from nas_lightning.ensembles.forward_selection import averaged_loss, forward_selection
from nas_lightning.tables import Entry, Table


@dataclass(frozen=True)
class MemberSelection:
    """What forward selection took.

    Args:
        pool: what every candidate predicts for the held-out images.
        chosen: the candidates' numbers from 0, in the order in which they were taken.
        losses: of the averaged prediction after each.
        names: of the candidates, in the table.
    """

    pool: Evaluation
    chosen: tuple[int, ...]
    losses: tuple[float, ...]
    names: tuple[str, ...] = ()

    @property
    def together(self) -> Evaluation:
        """Those that were taken."""
        return Evaluation(self.pool.probabilities[list(self.chosen)], self.pool.labels)

    def table(self) -> Table:
        """Every candidate with its numbers, and what those that were taken came to."""
        rows: list[list[Entry]] = []
        for number, alone in enumerate(self.pool.members):
            place = self.chosen.index(number) if number in self.chosen else None
            taken: list[Entry] = ["", None] if place is None else [f"member {place + 1}", self.losses[place]]
            name = self.names[number] if self.names else f"candidate {number + 1}"
            rows.append([name, alone.error, alone.nll, *taken])
        count = len(self.pool.labels)
        return Table(
            "pool",
            f"{len(self.chosen)} of {len(rows)} candidates, selected on {count:,} held-out images",
            ["", "error", "NLL", "taken as", "NLL with those before"],
            rows,
        )


def select(pool: Evaluation, size: int, names: Sequence[str] = ()) -> MemberSelection:
    """`size` of the candidates by forward selection.

    >>> p = torch.tensor([[[0.8, 0.2], [0.7, 0.3]], [[0.7, 0.3], [0.7, 0.3]], [[0.3, 0.7], [0.1, 0.9]]])
    >>> select(Evaluation(p, torch.tensor([0, 1])), 2).chosen
    (2, 0)
    """

    def loss(members: Sequence[int]) -> float:
        found = float(averaged_loss(pool.probabilities[list(members)], pool.labels))
        return math.inf if math.isnan(found) else found  # of a network whose training diverged

    chosen = forward_selection(range(len(pool.probabilities)), size, loss)
    losses = [loss(chosen[: number + 1]) for number in range(size)]
    return MemberSelection(pool, tuple(chosen), tuple(losses), tuple(names))


def predictions(
    runs: Sequence[Path], batches: Sequence[Batch], device: torch.device, **own: Any
) -> Evaluation:
    """What the networks of these runs predict; one of them is in memory at a time; `own` as in `load`."""
    found = [evaluate(Ensemble.of_runs([run], **own).to(device), batches) for run in runs]
    return Evaluation(torch.cat([alone.probabilities for alone in found]), found[0].labels)
