"""Whether skip connections speed up training (PR-DARTS, Zhou et al. 2020, arXiv:2006.16537, figure 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from nas_lightning.checks import DISTINCT, PositiveFloat, PositiveInt, Seed, at_least, checked, entries
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Genotype
from nas_lightning.randomness import generator
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.spaces.ops import SKIP
from nas_lightning.studies.base import Study
from nas_lightning.studies.figures import overlay
from nas_lightning.studies.statistics import Values, mean_estimate
from nas_lightning.studies.theory.convergence import Case, Curve, train_cases
from nas_lightning.tables import Entry, Table
from nas_lightning.tasks.multi_class import task_of

FILE = "curves.csv"
_NOTE = (
    "Means over the draws ± their standard errors; `less than` is the loss of the row above less this one's, "
    "draw by draw, averaged over the epochs: above 0 the skips were faster"
)


@checked
class SkipConvergence(Study):
    """Cells of convolutions, a share of them replaced by skips at random, trained alike.

    Args:
        shares: of the operations that are skips.
        operation: of the others.
        draws: random cells for each share; the skips of a larger share include those of a smaller one.
        lr: learning rate of the first epoch.
        epochs: of each training.
        seed: of cells, weights and order.

    >>> study = SkipConvergence(shares=[0.0, 0.5], draws=1)
    >>> from nas_lightning.spaces import DartsSpace
    >>> [genotype.ops.count("skip_connect") for genotype in study.cells(DartsSpace(), 0).values()]
    [0, 8]
    """

    def __init__(
        self,
        *,
        shares: Annotated[Sequence[Annotated[float, at_least(0)]], entries(2), DISTINCT] = (
            0.0,
            0.375,
            0.625,
        ),
        operation: str = "sep_conv_3x3",
        draws: PositiveInt = 3,
        lr: PositiveFloat = 0.025,
        epochs: PositiveInt = 10,
        seed: Seed = 0,
    ) -> None:
        if max(shares) > 1:
            raise InputError("expected shares up to 1", got=list(shares), where="study.shares")
        self.shares, self.operation, self.draws = sorted(shares), operation, draws
        self.lr, self.epochs, self.seed = lr, epochs, seed

    def cells(self, space: SearchSpace, draw: int) -> dict[float, Genotype]:
        """Of one topology that is drawn, a genotype a share."""
        random = generator(self.seed, draw)
        topology = space.sample(random)
        order = torch.randperm(len(topology.ops), generator=random).tolist()
        rank = {place: number for number, place in enumerate(order)}

        def replaced(share: float) -> Genotype:
            most, place, cells = round(share * len(order)), iter(range(len(order))), {}
            for name, cell in topology:
                ops = [SKIP if rank[next(place)] < most else self.operation for _ in cell.edges]
                edges = [(op, e.source, e.target) for op, e in zip(ops, cell.edges, strict=True)]
                cells[name] = Cell(edges, cell.inputs, cell.output)
            genotype = space.genotype_of(cells)
            space.check(genotype)
            return genotype

        return {share: replaced(share) for share in self.shares}

    def run(self, space: SearchSpace, network: NetworkFactory, data: SearchData, folder: Path) -> Findings:
        """Train what is not in the file yet; loss curves, and how far they are apart."""
        cases = {
            (draw, share): Case(f"draw {draw}, {share:.1%} skips", genotype, self.lr)
            for draw in range(self.draws)
            for share, genotype in self.cells(space, draw).items()
        }
        all_cases, options = list(cases.values()), {"epochs": self.epochs, "seed": self.seed}
        found = train_cases(all_cases, network, data, folder / FILE, **options)
        curves = {
            share: [found[cases[draw, share].name] for draw in range(self.draws)] for share in self.shares
        }
        what = f"{self.draws} draws in {space.name}, {self.epochs} epochs on {data.name}"
        return Findings(
            [_table(curves, what, task_of(data).score)], {"losses": overlay(_panels(curves), "loss", "epoch")}
        )


def _table(curves: Mapping[float, Sequence[Curve]], what: str, score: str) -> Table:
    rows: list[list[Entry]] = []
    before: Values | None = None
    for share, some in curves.items():
        losses = np.array([curve.train_loss.mean() for curve in some])
        gain = None if before is None else mean_estimate(before - losses)
        ends = [mean_estimate([getattr(c, kind)[-1] for c in some]) for kind in ("train_loss", "score")]
        rows.append([f"{share:.1%}", *ends, mean_estimate(losses), gain])
        before = losses
    columns = ["skips", "last training loss", f"last {score}", "training loss", "less than"]
    return Table("skips", f"Skips and the speed of convergence: {what}", columns, rows, _NOTE)


def _panels(curves: Mapping[float, Sequence[Curve]]) -> dict[str, dict[str, Values]]:
    kinds = {"training loss": "train_loss", "loss of other images": "loss"}
    return {
        title: {
            f"{s:.1%} skips": np.mean([getattr(c, kind) for c in some], axis=0) for s, some in curves.items()
        }
        for title, kind in kinds.items()
    }
