"""The end of a sweep: a table over its jobs and one over their seeds, on the screen and as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from nas_lightning.errors import InputError, describe_system_error, near_match
from nas_lightning.files import write_whole
from nas_lightning.lock import hold
from nas_lightning.report.summaries import job_folders, read_start, read_summary
from nas_lightning.runs.facts import SIZES as COSTS
from nas_lightning.runs.folder import SUMMARY
from nas_lightning.runs.record import has_record
from nas_lightning.runs.repetitions import Job, differing_settings, group_by_settings, mean_with_deviation
from nas_lightning.tables import Entry, Table
from nas_lightning.text import format_decimals

COLUMNS = (
    *("valid_accuracy", "valid_loss", "val_accuracy", "test_accuracy"),
    *("true_accuracy", "true_rank", "hypervolume"),
)
SIZES = {"parameters": "params", "multiply-adds": "macs"}


class SweepTable(Callback):
    """Hydra calls it when all jobs of a sweep have ended.

    >>> from omegaconf import OmegaConf
    >>> callback = SweepTable()  # in a configuration of Hydra's, `_target_: nas_lightning.report.SweepTable`
    >>> callback.on_multirun_end(OmegaConf.create({"hydra": {"sweep": {"dir": "no_such_sweep"}}}))
    Traceback (most recent call last):
        ...
    SystemExit: error: expected the summary of at least one job, got none (in no_such_sweep)
    """

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        try:
            self._write(config)
        except OSError as error:  # of which Hydra would make a warning
            sys.exit(f"error: {describe_system_error(error) or error}")

    def _write(self, config: DictConfig) -> None:
        folder = Path(config.hydra.sweep.dir)
        jobs = read_jobs(folder)
        if not jobs:
            sys.exit(f"error: expected the summary of at least one job, got none (in {folder})")
        objective = config.get("objective")
        tables = [tabulate_jobs(jobs, objective), *tabulate_seeds(jobs, objective)]
        text = "\n\n".join([*(table.markdown() for table in tables), *unknown_objective(jobs, objective)])
        write_whole(folder / "table.md", text + "\n")
        print(f"\n{text}\n\n{folder / 'table.md'}")
        self._write_page(folder)
        if any("error" in job for job in jobs):
            sys.exit(1)

    def _write_page(self, folder: Path) -> None:
        from nas_lightning.report.page import REPORT_FILE  # drawing is imported when all is over
        from nas_lightning.report.relatives import refresh_all
        from nas_lightning.report.side_by_side import write_side_by_side

        ended = [path for path in job_folders(folder) if (path / SUMMARY).is_file()]
        if ended:
            print(write_side_by_side(ended, folder / REPORT_FILE))
            refresh_all(ended)


def read_jobs(sweep: Path) -> list[Job]:
    """The summaries of the jobs that have begun, with their folders; without one a job has failed."""
    folders = job_folders(sweep) if sweep.is_dir() else []
    begun = [folder for folder in folders if (folder / SUMMARY).is_file() or has_record(folder)]
    return [{**_read_job(folder), "folder": folder.relative_to(sweep).as_posix()} for folder in begun]


def _read_job(folder: Path) -> Job:
    try:
        if (folder / SUMMARY).is_file():
            return read_summary(folder)
        return {
            "error": _why_unfinished(folder),
            "overrides": [w.lstrip("+") for w in read_start(folder).words],
        }
    except InputError as error:
        return {"error": str(error), "overrides": []}


def _why_unfinished(folder: Path) -> str:
    try:
        with hold(folder):
            return "did not come to its end: stopped or killed"
    except InputError:
        return "at work"


def tabulate_jobs(jobs: Sequence[Job], objective: str | None = None) -> Table:
    """One row a job: what was varied, what came out."""
    typed = sorted({line for job in jobs for line in job["overrides"]})
    shared = {line for line in typed if all(line in job["overrides"] for job in jobs)}
    metrics = _metrics(jobs, objective)
    sizes = {name: key for name, key in SIZES.items() if any(key in job for job in jobs)}
    columns = ["job", "settings", *metrics, *sizes, "seconds"]
    rows: list[list[Entry]] = []
    for number, job in zip(_names(jobs), jobs, strict=True):
        settings = " ".join(line for line in job["overrides"] if line not in shared) or "–"
        if "error" in job:
            rows.append([number, settings, str(job["error"]), *[None] * (len(columns) - 3)])
            continue
        values = [_value(job["metrics"].get(name), name == objective) for name in metrics]
        rows.append([number, settings, *values, *map(job.get, sizes.values()), round(job["seconds"])])
    return Table("jobs", "", columns, rows)


def tabulate_seeds(jobs: Sequence[Job], objective: str | None = None) -> Iterable[Table]:
    """The means and standard deviations of the jobs that differ in their seed only, where there are such."""
    finished = [job for job in jobs if "error" not in job]
    groups = group_by_settings(finished)
    if len(groups) == len(finished):
        return
    metrics = _metrics(finished, objective)
    rows: list[list[Entry]] = []
    for group, settings in zip(groups, differing_settings(groups), strict=True):
        values = ([job["metrics"][name] for job in group if name in job["metrics"]] for name in metrics)
        rows.append([settings, len(group), *(mean_with_deviation(one, 4) for one in values)])
    yield Table("seeds", "", ["settings", "seeds", *metrics], rows)


def unknown_objective(jobs: Sequence[Job], objective: str | None) -> Iterable[str]:
    """One line where jobs have no objective."""
    named = ((name, job) for name, job in zip(_names(jobs), jobs, strict=True) if "error" not in job)
    finished = [(name, {*job["metrics"], *(size for size in COSTS if size in job)}) for name, job in named]
    without = [str(number) for number, known in finished if objective not in known]
    if objective is not None and without:
        names = {name for _, known in finished for name in known}
        hint = f" ({near_match(objective, names)})" if len(without) == len(finished) and names else ""
        yield f"objective={objective}: not among the metrics of job {', '.join(without)}{hint}"


def _names(jobs: Sequence[Job]) -> list[str | int]:
    """What the jobs are called: by their folders, or by their place."""
    names = [str(job.get("folder", place)) for place, job in enumerate(jobs)]
    return [int(name) if name.isdecimal() else name for name in names]


def _metrics(jobs: Sequence[Job], objective: str | None) -> list[str]:
    """The columns: what any job has, the objective among them."""
    names = dict.fromkeys([*COLUMNS, *filter(None, [objective])])
    return [name for name in names if any(name in job.get("metrics", {}) for job in jobs)]


def _value(value: float | None, objective: bool) -> str | None:
    if value is None:
        return "not measured" if objective else None
    return format_decimals(value)
