"""What searches have come to: trainings are joined to the searches whose architectures they have trained."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nas_lightning.errors import InputError, near_match
from nas_lightning.report.paired.joins import Joined, search_of, setting_of
from nas_lightning.report.paired.settings import check_alike
from nas_lightning.report.record import RunRecord
from nas_lightning.report.summaries import job_folders, read_summary
from nas_lightning.runs.record import look_up
from nas_lightning.text import short_path

FROM_TABLE = "true_accuracy"


@dataclass(frozen=True)
class Question:
    """What is compared.

    Args:
        by: settings or groups of the search, or else of the training, whose values are the arms.
        over: the setting that tells data sets apart; None: the images, or a table's data set.
        metric: None: the task's score of test images, or what a table says of the architecture.
    """

    by: tuple[str, ...] = ("strategy",)
    over: str | None = None
    metric: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What one search has come to, on one data set.

    Args:
        arm: what is compared, such as the strategy.
        data: the data set.
        seed: of the search.
        value: the metric, as the mean over trainings.
        trainings: how many; 0 where the search's own metric is compared.
    """

    arm: str
    data: str
    seed: int
    value: float
    trainings: int


def read_outcomes(folders: Sequence[str | Path], question: Question) -> tuple[list[Outcome], str, list[str]]:
    """The outcomes in those runs and sweeps, the metric's name, and what was left out with the reason."""
    records, left_out = _finished(folders)
    searches = [record for record in records if record.kind == "search"]
    trainings = [record for record in records if record.kind == "training"]
    left_out += [
        f"{r.run} (neither a search nor a training)" for r in records if r.kind in ("study", "ensemble")
    ]
    pairs: list[tuple[RunRecord, RunRecord | None]] = []
    for training in trainings:
        try:
            pairs.append((search_of(training, searches), training))
        except InputError as error:
            left_out.append(f"{training.run} ({error})")
    if trainings:
        judged = {search.run.resolve() for search, _ in pairs}
        untrained = [search for search in searches if search.run.resolve() not in judged]
        left_out += [f"{search.run} (none of the trainings is of its architecture)" for search in untrained]
    else:
        pairs = [(search, None) for search in searches]
    if not pairs:
        raise InputError(
            "expected finished searches, or trainings of what they found", got=_several(left_out)
        )
    joined = [Joined(*pair, _arm(question.by, *pair), _data(question.over, *pair)) for pair in pairs]
    check_alike(joined, question.by)
    metric = _usual_metric(joined[0]) if question.metric is None else question.metric
    return _mean_over_trainings(joined, metric), metric, left_out


def _finished(folders: Sequence[str | Path]) -> tuple[list[RunRecord], list[str]]:
    runs: dict[Path, Path] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise InputError("expected the folder of a sweep or a run", got=str(folder))
        runs.update({run.resolve(): run for run in job_folders(folder) or [folder]})
    found, left_out = [], []
    for run in runs.values():
        try:
            summary = read_summary(run)
        except InputError as error:
            left_out.append(f"{run} ({error})")
            continue
        if "error" in summary:
            left_out.append(f"{run} (failed: {summary['error']})")
        else:
            found.append(RunRecord(run))
    return found, left_out


def _arm(by: Sequence[str], search: RunRecord, training: RunRecord | None) -> str:
    return " ".join(setting_of(key, search, training) for key in by)


def _data(over: str | None, search: RunRecord, training: RunRecord | None) -> str:
    if over is not None:
        return setting_of(over, *((training, search) if training else (search, None)))
    table = look_up(search.config, "benchmark", "dataset") if training is None else None
    return str(table or (training or search).facts.get("dataset", ""))


def _usual_metric(joined: Joined) -> str:
    if joined.training is None:
        if FROM_TABLE not in joined.search.metrics:
            raise InputError(
                "expected trainings of what was found, a table (benchmark=…) or --metric NAME: the numbers "
                "that searches end in are not measured alike",
                where=joined.search.run,
            )
        return FROM_TABLE
    return f"test_{joined.training.score}"


def _mean_over_trainings(joined: Sequence[Joined], metric: str) -> list[Outcome]:
    """One outcome a search: its trainings are no more than repetitions of one measurement."""
    groups: dict[tuple[str, str, int], list[Joined]] = {}
    for one in joined:
        groups.setdefault((one.arm, one.data, _seed(one.search)), []).append(one)
    return list(_outcomes(groups, metric))


def _outcomes(groups: Mapping[tuple[str, str, int], Sequence[Joined]], metric: str) -> Iterator[Outcome]:
    for (arm, data, seed), group in groups.items():
        runs = list(dict.fromkeys(one.search.run.resolve() for one in group))
        if len(runs) > 1:
            got = " and ".join(map(short_path, runs[:2]))
            raise InputError(f"expected one search of {arm} on {data} with seed {seed}", got=got)
        trainings = sum(one.training is not None for one in group)
        yield Outcome(
            arm, data, seed, statistics.fmean(_value(one.judged, metric) for one in group), trainings
        )


def _seed(search: RunRecord) -> int:
    seed = search.facts.get("seed", 0)
    if not isinstance(seed, int):
        raise InputError("expected a whole number `seed`", got=seed, where=search.run)
    return seed


def _value(run: RunRecord, metric: str) -> float:
    if metric not in run.metrics:
        hint = near_match(metric, run.metrics) if run.metrics else "it has none"
        raise InputError(f"expected a metric of the run ({hint})", got=metric, where=run.run)
    value = float(run.metrics[metric])
    if value - value != 0:
        raise InputError(f"expected a finite {metric}", got=value, where=run.run)
    return value


def _several(reasons: Sequence[str]) -> str:
    return f"{reasons[0]} and {len(reasons) - 1} more" if len(reasons) > 1 else "".join(reasons) or "none"
