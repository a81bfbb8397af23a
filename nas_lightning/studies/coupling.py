"""What batch norm and the batch's mean change in scores (Y. Shu's thesis, 2022, equations 7.1 to 7.3).

Θ = J Jᵀ takes an image's row of J through the norms of the whole batch, and so through the other images'
activations; by default a row here is of what flows through the image's own. M_GraSP in equation 7.3 has every
sample's Hessian and gradient; by default, as in the public code, it has the batch's, and weights alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
from torch import nn

from nas_lightning.backends import Backend
from nas_lightning.checks import PositiveInt, Seed, at_least, checked
from nas_lightning.data import SearchData
from nas_lightning.machine import Processes
from nas_lightning.metrics import Grasp, NTKCondition, NTKTrace
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.sample_gradients import SampleGrasp
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.studies import figures
from nas_lightning.studies.base import Study
from nas_lightning.studies.pools import Scorer, Setting, draw_genotypes
from nas_lightning.studies.statistics import Values, estimate, mean_estimate, spearman
from nas_lightning.tables import Entry, Table

PAIRS: Mapping[str, tuple[Metric, Metric]] = {
    "M_Trace": (NTKTrace(), NTKTrace(coupled=True)),
    "κ": (NTKCondition(), NTKCondition(coupled=True)),
    "M_GraSP": (Grasp(), SampleGrasp()),
}
"""As they are by default, and as the equations have them."""

_NOTE = (
    "Medians over architectures whose two scores are finite and positive; the logarithm's mean ± standard "
    "error; Spearman's ρ ± the bootstrap's"
)


@checked
class Coupling(Study):
    """Random architectures' scores by default beside those of the equations to the letter.

    Args:
        architectures: how many.
        resamples: of the bootstrap.
        workers: processes that score.
        backend: whose processes, see `nas_lightning.backends.spread`.
        seed: of the architectures.

    >>> Coupling(architectures=5).architectures
    5
    """

    def __init__(
        self,
        *,
        architectures: Annotated[int, at_least(4)] = 20,
        resamples: PositiveInt = 200,
        workers: Processes = 1,
        backend: Backend = "processes",
        seed: Seed = 0,
    ) -> None:
        self.architectures, self.resamples, self.seed = architectures, resamples, seed
        metrics = {_column(name, place): pair[place] for name, pair in PAIRS.items() for place in (0, 1)}
        self.scorer = Scorer(metrics, workers, backend)

    def run(
        self, space: SearchSpace, network: Callable[..., nn.Module], data: SearchData, folder: Path
    ) -> Findings:
        """Score the architectures in both ways on one batch."""
        genotypes = draw_genotypes(space, self.architectures, self.seed)
        setting = Setting(network, data.train_batches(1)[0])
        values = self.scorer.pool(space, genotypes, folder).score_main(setting)
        pairs = {name: (values[_column(name, 0)], values[_column(name, 1)]) for name in PAIRS}
        rows: list[list[Entry]] = [[name, *self._row(*pair)] for name, pair in pairs.items()]
        columns = ["metric", "architectures", "by default", "equation", "log₁₀ of default over equation", "ρ"]
        what = f"{self.architectures} of {space.name}, {data.batch_size} images of {data.name}"
        table = Table("forms", f"Scores by default and to the letter: {what}", columns, rows, _NOTE)
        return Findings([table], {"forms": figures.against(pairs, "by default", "equation")})

    def _row(self, ours: Values, theirs: Values) -> list[Entry]:
        sound = np.isfinite(ours) & np.isfinite(theirs) & (ours > 0) & (theirs > 0)
        x, y = ours[sound], theirs[sound]
        if not len(x):
            return [0, None, None, None, None]
        order = estimate(spearman, x, y, resamples=self.resamples, seed=self.seed)
        return [
            len(x),
            float(np.median(x)),
            float(np.median(y)),
            mean_estimate(np.log10(x) - np.log10(y)),
            order,
        ]


def _column(name: str, place: int) -> str:
    return f"{name}, {('by default', 'equation')[place]}"
