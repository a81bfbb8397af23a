"""PR-DARTS' theorems 1, 2 and 4 on the cell that they are about (Zhou et al. 2020, arXiv:2006.16537)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch

from nas_lightning.checks import PositiveFloat, PositiveInt, Seed, at_least, checked
from nas_lightning.errors import InputError
from nas_lightning.progress import follow
from nas_lightning.randomness import generator, seed_of
from nas_lightning.runs.findings import Findings
from nas_lightning.studies.base import Study
from nas_lightning.studies.figures import against
from nas_lightning.studies.statistics import estimate, mean_estimate, spearman
from nas_lightning.studies.theory.gated_cell import GatedCell, Gates, draw_gates, losses, rate
from nas_lightning.tables import Entry, Table

_NOTE = (
    "Shares of the draws, ± the standard error. Speed is the slope of −log F over the steps, fitted by a "
    "line; the theorems bound it from below, for wide enough cells and small enough steps"
)
RAISED = {"skip": "a skip into the second node", "conv": "a convolution into the last node"}


@checked
class GateTheorems(Study):
    """Random gates: does a larger λ train faster, does a larger gate lower the loss, does a shallow cell win?

    Args:
        draws: of gates and weights.
        nodes: h, of a cell; an even number, for the shallow cell has two halves.
        channels: m, of a node.
        positions: p, of an image.
        images: n, of norm 1, with labels of N(0, 1).
        steps: of gradient descent.
        eta: η, its step size.
        raise_by: ε, by which a gate is raised.
        seed: of all that is drawn.

    >>> findings = GateTheorems(draws=3, channels=4, positions=4, images=3, steps=5).run()
    >>> [table.name for table in findings.tables]
    ['theorems']
    """

    def __init__(
        self,
        *,
        draws: Annotated[int, at_least(3)] = 40,
        nodes: Annotated[int, at_least(4)] = 4,
        channels: PositiveInt = 64,
        positions: PositiveInt = 8,
        images: Annotated[int, at_least(2)] = 8,
        steps: PositiveInt = 100,
        eta: PositiveFloat = 0.01,
        raise_by: PositiveFloat = 0.2,
        seed: Seed = 0,
    ) -> None:
        if nodes % 2:
            raise InputError("expected an even number of nodes", got=nodes, where="study.nodes")
        self.draws, self.nodes, self.steps, self.eta = draws, nodes, steps, eta
        self.raise_by, self.seed = raise_by, seed
        self.sizes = {"channels": channels, "positions": positions, "inputs": 2}
        random = generator(seed)
        x = torch.randn(images, 2, positions, dtype=torch.float64, generator=random)
        self.x = x / x.flatten(1).norm(dim=1)[:, None, None]
        self.y = torch.randn(images, dtype=torch.float64, generator=random)

    def run(self) -> Findings:
        """Train every drawn cell, its shallow form, and itself with a gate raised."""
        rows = [self._draw(number) for number in follow(range(self.draws), "draws")]
        rates, speeds, shallow_rates, shallow_speeds, *smaller = map(np.array, zip(*rows, strict=True))
        found: list[list[Entry]] = [
            ["1", "ρ of λ and speed", estimate(spearman, rates, speeds, seed=self.seed)]
        ]
        for place, what in zip(smaller, RAISED.values(), strict=True):
            found.append(["2", f"{what} raised: a smaller loss", mean_estimate(place)])
        found.append(["4", "λ of the shallow cell is larger", mean_estimate(shallow_rates > rates)])
        found.append(["4", "the shallow cell is faster", mean_estimate(shallow_speeds > speeds)])
        what = f"{self.draws} cells of {self.nodes} nodes, {self.steps} steps of η = {self.eta:g}"
        table = Table("theorems", f"PR-DARTS' theorems: {what}", ["theorem", "what", "found"], found, _NOTE)
        figure = against({"theorem 1": (rates, speeds)}, "λ", "speed of convergence")
        return Findings([table], {"rates": figure})

    def _draw(self, number: int) -> list[float]:
        """λ and speed of a cell and of its shallow form; whether a raised gate makes the loss smaller."""
        gates = draw_gates(self.nodes, generator(self.seed, number))
        shallow = gates.shallow()
        deep_losses = self._train(gates, number)
        half = self.nodes // 2
        numbers = [rate(gates), _speed(deep_losses), rate(shallow, half)]
        numbers.append(_speed(self._train(shallow, number, branches=2)))
        last = self.nodes - 1
        for kind, place in {"skip": (0, 1), "conv": (last - 1, last)}.items():
            raised = getattr(gates, kind).clone()
            raised[place] += self.raise_by
            numbers.append(self._train(gates._replace(**{kind: raised}), number)[-1] < deep_losses[-1])
        return numbers

    def _train(self, gates: Gates, number: int, branches: int = 1) -> list[float]:
        cell = GatedCell(gates, **self.sizes, seed=seed_of(self.seed, number), branches=branches)
        return losses(cell, self.x, self.y, steps=self.steps, eta=self.eta)


def _speed(found: Sequence[float]) -> float:
    return -float(np.polyfit(np.arange(len(found)), np.log(found), 1)[0])
