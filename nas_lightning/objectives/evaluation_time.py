"""What an evaluation costs: the seconds that a table knows of a training, or those that it took here."""

from __future__ import annotations

from time import monotonic

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.short_training import AccuracyObjective, ShortTraining
from nas_lightning.progress import OutOfTimeError


def evaluate_timed(objective: AccuracyObjective, genotype: Genotype) -> tuple[float, float] | None:
    """The value of an architecture, and the seconds of its evaluation; None where time was over before."""
    start = monotonic()
    try:
        value = objective(genotype)
    except OutOfTimeError:
        return None
    known = objective.seconds(genotype)
    return value, monotonic() - start if known is None else known


def check_timed(objective: AccuracyObjective | None, genotype: Genotype) -> None:
    """Raise unless evaluations have seconds that a limit could hold for."""
    where = "strategy.seconds"
    if objective is None:
        raise InputError("expected an evaluation, whose seconds have a limit", got="none", where=where)
    if not isinstance(objective, ShortTraining) and objective.seconds(genotype) is None:
        raise InputError("expected a table with a column of seconds", got=objective.name, where=where)
