"""The hypervolumes of searches for fronts as a table: mean ± standard deviation over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from nas_lightning.errors import InputError
from nas_lightning.report.summaries import job_folders, read_summary
from nas_lightning.runs.repetitions import Job, differing_settings, group_by_settings, mean_with_deviation
from nas_lightning.tables import Entry, Table

HYPERVOLUME = "hypervolume"


def read_fronts(folders: Iterable[str | Path]) -> tuple[list[Job], list[Path]]:
    """The summaries of the searches that ended in a front, and the other folders; a sweep is its jobs."""
    fronts, others = [], []
    for folder in map(Path, folders):
        for run in (job_folders(folder) or [folder]) if folder.is_dir() else [folder]:
            job = _read_job(run)
            if job is not None:
                fronts.append(job)
            else:
                others.append(run)
    return fronts, others


def _read_job(run: Path) -> Job | None:
    """The summary of a search for a front; what is wrong with another is said where trainings are read."""
    try:
        job = read_summary(run)
    except (InputError, ValueError):  # ValueError: a name that no file can have
        return None
    notation = job.get("notation")
    if "error" in job or HYPERVOLUME not in job["metrics"] or not isinstance(notation, list):
        return None
    return job


def compare_fronts(jobs: Sequence[Job]) -> Table:
    """One row for the searches that differ in their seed only.

    >>> jobs = [{"overrides": [f"seed={n}"], "metrics": {"hypervolume": n}, "strategy": "A"} for n in (1, 2)]
    >>> compare_fronts(jobs).rows
    [['A', '–', 2, '1.5000 ± 0.7071', 0.0]]
    """
    groups = group_by_settings(jobs)
    rows: list[list[Entry]] = []
    for group, typed in zip(groups, differing_settings(groups), strict=True):
        volume = mean_with_deviation([job["metrics"][HYPERVOLUME] for job in group], 4)
        size = sum(len(job.get("notation", ())) for job in group) / len(group)
        rows.append([str(group[0].get("strategy", "")), typed, len(group), volume, size])
    title = "Hypervolume of fronts, mean ± standard deviation over seeds"
    return Table("fronts", title, ["strategy", "settings", "runs", "hypervolume", "architectures"], rows)
