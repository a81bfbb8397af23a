"""Tables and figures of the study of temperatures, from the numbers of its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from nas_lightning.runs.findings import Findings
from nas_lightning.studies import figures
from nas_lightning.studies.posteriors import SAMPLERS, WITHOUT_POSTERIOR, Numbers
from nas_lightning.studies.statistics import mean_estimate
from nas_lightning.tables import Entry, Estimate, Table

COLUMNS = {"error": "error", "nll": "NLL", "ate": "ATE", "ppd": "PPD"}
Points = Mapping[str, Mapping[str, Estimate]]


def trial_name(name: str, tau: float, trial: int) -> str:
    """What a trial of a sampler, or of a δ, is stored under.

    >>> trial_name("SVGD-RD", 0.1, 0), trial_name("URS", 0.1, 0)
    ('SVGD-RD, τ 0.1, trial 1', 'URS, trial 1')
    """
    of_all = SAMPLERS.get(name) in WITHOUT_POSTERIOR
    return f"{name}, trial {trial + 1}" if of_all else f"{name}, τ {tau:g}, trial {trial + 1}"


@dataclass(frozen=True)
class TrialNumbers:
    """The numbers of all trials.

    Args:
        numbers: of each trial by its name, one entry for every round that it may try.
        taus: the temperatures.
        deltas: of SVGD-RD, one set tried.
        size: members of a set.
        rounds: sets that a sampler tried.
        trials: repetitions.
    """

    numbers: Mapping[str, Sequence[Numbers]]
    taus: Sequence[float]
    deltas: Sequence[float]
    size: int
    rounds: int
    trials: int

    def findings(self, images: str) -> Findings:
        """Figures 5.6 and 5.7, and their numbers."""
        by_sampler = {tau: {name: self._estimates(name, tau) for name in SAMPLERS} for tau in self.taus}
        by_delta = {
            tau: {f"{delta:g}": self._estimates(f"δ {delta:g}", tau)[0] for delta in self.deltas}
            for tau in self.taus
        }
        at_the_end = {
            tau: {name: budgets[-1] for name, budgets in names.items()} for tau, names in by_sampler.items()
        }
        title = f"Ensembles of {self.size} with inherited weights, test images of {images}"
        tables = [
            self._table("samplers", f"{title}: {self.rounds} sets tried", "", at_the_end),
            self._table("deltas", f"{title}: SVGD-RD, one set tried", "δ", by_delta),
        ]
        errors = {
            f"{name}/{tau:g}/error": point["error"].value
            for tau, points in at_the_end.items()
            for name, point in points.items()
        }
        drawings = {"samplers": self._draw_samplers(by_sampler), "deltas": _draw_deltas(by_delta)}
        return Findings(tables, drawings, errors)

    def _estimates(self, name: str, tau: float) -> list[dict[str, Estimate]]:
        """Mean and standard error over the trials, for every budget."""
        trials = [self.numbers[trial_name(name, tau, trial)] for trial in range(self.trials)]
        return [
            {column: mean_estimate([numbers[column] for numbers in same]) for column in COLUMNS}
            for same in zip(*trials, strict=True)
        ]

    def _table(self, name: str, title: str, what: str, points: Mapping[float, Points]) -> Table:
        rows: list[list[Entry]] = [
            [f"{tau:g}", key, *point.values()]
            for tau, of_tau in points.items()
            for key, point in of_tau.items()
        ]
        note = (
            f"Mean ± standard error over {self.trials} trials; ATE: mean error of the members; PPD: share of "
            "images on which two of them disagree"
        )
        return Table(name, title, ["τ", what, *COLUMNS.values()], rows, note)

    def _draw_samplers(
        self, points: Mapping[float, Mapping[str, Sequence[Mapping[str, Estimate]]]]
    ) -> Figure:
        """The ensemble's error over the budget, a panel a temperature."""
        panels = {
            f"τ = {tau:g}": {
                name: {str(self.size * count): point["error"] for count, point in enumerate(budgets, 1)}
                for name, budgets in names.items()
            }
            for tau, names in points.items()
        }
        return figures.lines(panels, "test error of the ensemble", "architectures that were judged")


def _draw_deltas(points: Mapping[float, Points]) -> Figure:
    """Errors and disagreement over δ, a line a temperature."""
    panels = {
        COLUMNS[column]: {
            f"τ = {tau:g}": {delta: point[column] for delta, point in of_tau.items()}
            for tau, of_tau in points.items()
        }
        for column in ("error", "ate", "ppd")
    }
    return figures.lines(panels, "share of the test images", "δ")
