"""How wide SVGD-RD's Gaussians are, and how probable its members (Y. Shu's thesis, 2022, equation 5.8).

    p̂(x) = Π_i Σ_o p_i(o) N(o_i | h_o, σ² I),   σ² = |O|                                         (5.8)

A node of DARTS' space chooses from every edge and operation at once. Gaussians as wide as it has candidates,
three to five times wider, flatten the posterior that the particles climb.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, get_args

import torch

from nas_lightning.checks import (
    DISTINCT,
    Finite,
    PositiveFloat,
    PositiveInt,
    Seed,
    at_least,
    checked,
    entries,
)
from nas_lightning.progress import follow
from nas_lightning.randomness import generator
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.strategies.nesbs.posterior import Architectures
from nas_lightning.strategies.nesbs.samplers import set_of_particles
from nas_lightning.strategies.nesbs.svgd import RelaxedArchitectures, Variance, svgd_rd
from nas_lightning.studies.base import Study
from nas_lightning.studies.statistics import mean_estimate
from nas_lightning.tables import Entry, Table

_NOTE = (
    "log p of the members, mean ± standard error over posteriors; most probable: of the posterior's mode. "
    "Each posterior has its own start of the particles, the same for every δ and width"
)


@checked
class ParticleWidths(Study):
    """The probability of the sets that SVGD-RD finds under random posteriors, by σ² and δ.

    Args:
        spreads: deviations of the posteriors' logits α/τ, which are normal.
        deltas: δ.
        size: n, particles.
        steps: L of SVGD-RD.
        posteriors: of each spread.
        seed: of the posteriors and the particles.

    >>> from nas_lightning.spaces import NasBench201
    >>> study = ParticleWidths(spreads=[2.0], deltas=[0.0], steps=20, posteriors=2)
    >>> [row[:2] for row in study.run(NasBench201()).tables[0].rows]
    [[2.0, 'operations'], [2.0, 'candidates']]
    """

    def __init__(
        self,
        *,
        spreads: Annotated[Sequence[PositiveFloat], entries(1), DISTINCT] = (2.0, 5.0),
        deltas: Annotated[Sequence[Finite], entries(1), DISTINCT] = (0.0, 1.0),
        size: PositiveInt = 5,
        steps: PositiveInt = 1000,
        posteriors: Annotated[int, at_least(2)] = 20,
        seed: Seed = 0,
    ) -> None:
        self.spreads, self.deltas = list(spreads), list(deltas)
        self.size, self.steps, self.posteriors, self.seed = size, steps, posteriors, seed

    def run(self, space: SearchSpace) -> Findings:
        """Draw posteriors, move particles by each width and δ, and look at their architectures."""
        rows: list[list[Entry]] = []
        for spread in self.spreads:
            found = [
                self._posterior(space, spread, number)
                for number in follow(range(self.posteriors), f"posteriors of deviation {spread:g}")
            ]
            modes, sets = torch.tensor([one[0] for one in found]), torch.stack([one[1] for one in found])
            for place, variance in enumerate(get_args(Variance)):
                means = [mean_estimate(sets[:, place, column]) for column in range(len(self.deltas))]
                fall = mean_estimate(sets[:, place, 0] - sets[:, place, -1])
                rows.append([spread, variance, mean_estimate(modes), *means, fall])
        columns = ["deviation of logits", "σ² counts", "most probable"]
        columns += [*(f"δ = {delta:g}" for delta in self.deltas), "first less last δ"]
        what = f"{self.posteriors} random posteriors, n = {self.size}, {self.steps:,} steps"
        return Findings(
            [Table("members", f"How probable SVGD-RD's members are: {what}", columns, rows, _NOTE)]
        )

    def _posterior(self, space: SearchSpace, spread: float, number: int) -> tuple[float, torch.Tensor]:
        """log p of its mode, and the mean log p of the members by width and δ: (widths, deltas)."""
        distribution, random = Architectures(space), generator(self.seed, number)
        logits = {
            name: spread * torch.randn(group.shape, generator=random) for name, group in space.groups.items()
        }
        mode = float(distribution.log_probability(logits, distribution.mode(logits)))
        values = [list(self._members(space, distribution, logits, v, number)) for v in get_args(Variance)]
        return mode, torch.tensor(values)

    def _members(
        self,
        space: SearchSpace,
        distribution: Architectures,
        logits: dict[str, torch.Tensor],
        variance: Variance,
        number: int,
    ) -> Iterator[float]:
        relaxed = RelaxedArchitectures(distribution.decisions, distribution.probabilities(logits), variance)
        start = relaxed.start(self.size, generator(self.seed, number, 1))
        for delta in self.deltas:
            particles = svgd_rd(start, relaxed.score, delta=delta, steps=self.steps)
            members = set_of_particles(space, relaxed, particles)
            log_p = [float(distribution.log_probability(logits, space.one_hot(one))) for one in members]
            yield sum(log_p) / len(log_p)
