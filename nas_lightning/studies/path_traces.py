"""t(A) of random paths at initialisation, of whose size NASI's ν is (Shu et al. 2022, arXiv:2109.00817).

    ν = N⁻¹ Σ_i t(A_i) over random architectures                                          (thesis, 6.14)

is a mean of numbers with a long tail; beside it stand the median and what the largest makes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import Tensor

from nas_lightning.checks import PositiveFloat, PositiveInt, Seed, checked
from nas_lightning.data import SearchData
from nas_lightning.progress import follow
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies import Nasi
from nas_lightning.studies.base import Study
from nas_lightning.studies.statistics import mean_estimate
from nas_lightning.studies.theory.trace_samples import draw_samples
from nas_lightning.tables import Entry, Table

_NOTE = (
    "Mean ± standard error over draws of weights, each of as many paths; a path has a fresh mini-batch. "
    "Last: the mean of all draws' paths but the largest of all"
)
_COLUMNS = ("mean", "median", "largest", "share above ν")


@checked
class PathTraces(Study):
    """What t(A) is in a space, and how often it is above a ν.

    Args:
        paths: of a draw of weights.
        draws: of weights.
        nu: ν.
        seed: of all that is drawn.

    >>> PathTraces(paths=3).draws
    5
    """

    def __init__(
        self,
        *,
        paths: PositiveInt = 12,
        draws: PositiveInt = 5,
        nu: PositiveFloat = 100.0,
        seed: Seed = 0,
    ) -> None:
        self.paths, self.draws, self.nu, self.seed = paths, draws, nu, seed

    def run(
        self, space: SearchSpace, supernet: Callable[[], Supernet], data: SearchData, folder: Path
    ) -> Findings:
        """Draw weights and paths; those of an earlier run are not drawn again."""
        numbers = follow(range(self.draws), "draws of weights")
        found = [self._traces(space, supernet(), data, folder, number).numpy() for number in numbers]
        each = [
            [float(t.mean()), float(np.median(t)), float(t.max()), float((t > self.nu).mean())] for t in found
        ]
        rest = np.sort(np.concatenate(found))[:-1]
        row: list[Entry] = [space.name, *(mean_estimate(values) for values in zip(*each, strict=True))]
        row.append(float(rest.mean()) if len(rest) else None)
        what = (
            f"{self.draws} times {self.paths} paths, {data.batch_size} images of {data.name}, ν = {self.nu:g}"
        )
        columns = ["space", *_COLUMNS, "mean without the largest"]
        table = Table("traces", f"t(A) at initialisation: {what}", columns, [row], _NOTE)
        return Findings([table])

    def _traces(
        self, space: SearchSpace, net: Supernet, data: SearchData, folder: Path, number: int
    ) -> Tensor:
        strategy = Nasi(space, net, data, nu=self.nu, computed="sampled", seed=self.seed + number)
        path = folder / "samples" / f"{number}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        settings = {"space": space.name, "parameters": sum(p.numel() for p in net.parameters())}
        samples = draw_samples(
            strategy, data, path, steps=self.paths, batch_size=data.batch_size, settings=settings
        )
        return samples.traces
