"""A table over finished runs of train.py: error, size, and what search and training cost.

python -m nas_lightning.report.comparison outputs/train/* [--format md|csv|latex]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nas_lightning.errors import InputError
from nas_lightning.flags import FlagParser, command
from nas_lightning.report.front_table import compare_fronts, read_fronts
from nas_lightning.report.summaries import check_values, job_folders, read_start, read_summary
from nas_lightning.runs.folder import SUMMARY
from nas_lightning.runs.record import look_up
from nas_lightning.runs.repetitions import (
    Job,
    differing_settings,
    group_by_settings,
    mean_and_deviation,
    mean_with_deviation,
)
from nas_lightning.tables import Entry, Table
from nas_lightning.text import duration

_METRIC = "test_error"
_COSTS = ("search_seconds", "seconds")


def read_runs(folders: Sequence[str | Path], *, needed: bool = True) -> tuple[list[Job], list[str]]:
    """The summaries of the trained runs in those folders, and what was left out; a sweep stands for its jobs.

    A run is told apart by what was typed for it, by its architecture and by its images; the cost of a search
    is known where the folder of its run is still there. What is `needed` is an error where there is none.
    """
    runs, left_out = [], []
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise InputError("expected the folder of a run", got=str(folder))
        for run in job_folders(folder) or [folder]:
            try:
                runs.append(read_training(run))
            except InputError as error:
                left_out.append(f"{run} ({error})")
    if not runs and needed:
        raise InputError("expected a finished run of train.py", got=", ".join(left_out) or "none")
    return runs, left_out


def read_training(run: Path) -> Job:
    """What a training's summary says, its architecture's name, and the seconds of the search for it."""
    job = read_summary(run)
    if "error" in job:
        raise InputError("expected a run that has not failed", where=run)
    error = job["metrics"].get(_METRIC)
    if error is None:
        raise InputError("expected a run of train.py", where=run)
    if not 0 <= error <= 1:
        raise InputError(f"expected `{_METRIC}` from 0 to 1", got=error, where=run / SUMMARY)
    check_values(job, run, numbers=["params", "macs"], texts=["dataset"])
    typed = [  # the images and the place of the genotype stand in columns, or say nothing
        line for line in job["overrides"] if not line.startswith(("dataset=", "dataset.root=", "logger"))
    ]
    return {**job, **_origin(run), "overrides": [f"dataset={job['dataset']}", *typed]}


def compare(runs: Sequence[Job], *, plain: bool = False) -> Table:
    """One row for the runs that differ in their seed only.

    Args:
        runs: of `read_runs`.
        plain: numbers alone, means and deviations in columns of their own, costs in seconds.
    """
    groups = group_by_settings(runs)
    rows: list[list[Entry]] = []
    for group, settings in zip(groups, differing_settings(groups), strict=True):
        first = group[0]
        errors = [100 * run["metrics"][_METRIC] for run in group]
        costs = [[run[cost] for run in group if run[cost] is not None] for cost in _COSTS]
        error: list[Entry] = [*mean_and_deviation(errors)] if plain else [mean_with_deviation(errors, 2)]
        means = [mean_and_deviation(cost)[0] if cost else None for cost in costs]
        times: list[Entry] = [*means] if plain else ["" if m is None else duration(m) for m in means]
        sizes = [first["params"], first["macs"]]
        rows.append([first["architecture"], first["dataset"], settings, len(group), *error, *sizes, *times])
    units = (" (s)", "± (%)") if plain else ("", "")
    columns = ["architecture", "data", "settings", "runs", "error (%)", *filter(None, units[1:])]
    columns += ["parameters", "multiply-adds", f"search{units[0]}", f"training{units[0]}"]
    return Table("runs", "Test error, mean ± standard deviation over seeds", columns, rows)


def _origin(run: Path) -> dict[str, Any]:
    """The architecture's name and the seconds of its search, where they are known."""
    start = read_start(run)
    config, name = start.config, start.choices.get("genotype")
    if start.choices.get("network"):
        notation = read_summary(run).get("notation", [start.choices["network"]])
        return {"architecture": str(notation[0]), "search_seconds": None}
    source = look_up(config, "genotype", "path") if name == "file" else None
    if not config:
        return {"architecture": "", "search_seconds": None}
    if not isinstance(source, str):
        first = config.get("init")
        return {"architecture": str(name or (f"of {first}" if first else "several")), "search_seconds": None}
    try:
        search = read_summary(Path(source))
    except (InputError, ValueError):  # a file of one genotype, or a folder that has gone
        return {"architecture": Path(source).name, "search_seconds": None}
    return {"architecture": str(search.get("strategy", source)), "search_seconds": search.get("seconds")}


def _format(table: Table, form: str) -> str:
    return {"md": table.markdown, "csv": table.csv, "latex": table.latex}[form]().rstrip()


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """The command; prints the table, and on stderr what was left out."""
    lines = (__doc__ or "").splitlines()
    parser = FlagParser(prog="nas-table", description=lines[0])
    parser.add_argument("runs", nargs="+", help="folders of trainings, of searches for a front, of sweeps")
    parser.add_argument("--format", choices=("md", "csv", "latex"), default="md")
    options = parser.parse_args(arguments)
    fronts, others = read_fronts(options.runs)
    if fronts:
        print(_format(compare_fronts(fronts), options.format))
    runs, left_out = read_runs(others, needed=not fronts)
    if runs:
        print(_format(compare(runs, plain=options.format == "csv"), options.format))
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
