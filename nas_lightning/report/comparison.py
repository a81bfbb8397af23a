"""A table over finished runs of train.py: error, size, and what search and training cost.

python -m nas_lightning.report.comparison outputs/train/* [--format md|csv|latex]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from nas_lightning.errors import InputError
from nas_lightning.runs.repetitions import Job, by_settings, mean_and_deviation, varied, with_deviation
from nas_lightning.tables import Cell, Table
from nas_lightning.text import duration

_FILE = "summary.json"
_METRIC = "test_error"
_COSTS = ("search_seconds", "seconds")


def read_runs(folders: Sequence[str | Path]) -> tuple[list[Job], list[str]]:
    """The summaries of the trained runs in those folders, and what was left out; a sweep stands for its jobs.

    A run is told apart by what was typed for it, by its architecture and by its images; the cost of a search
    is known where the folder of its run is still there.
    """
    runs, left_out = [], []
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise InputError("expected the folder of a run", got=str(folder))
        jobs = sorted(path for path in folder.iterdir() if path.name.isdigit())
        for run in sorted(jobs, key=lambda path: int(path.name)) or [folder]:
            found = _read(run)
            if isinstance(found, str):
                left_out.append(f"{run} ({found})")
            else:
                runs.append(found)
    if not runs:
        raise InputError("expected a finished run of train.py", got=", ".join(left_out) or "none")
    return runs, left_out


def table(runs: Sequence[Job], *, plain: bool = False) -> Table:
    """One row for the runs that differ in their seed only.

    Args:
        runs: of `read_runs`.
        plain: numbers alone, means and deviations in columns of their own, costs in seconds.
    """
    groups = by_settings(runs)
    rows: list[list[Cell]] = []
    for group, settings in zip(groups, varied(groups), strict=True):
        first = group[0]
        errors = [100 * run["metrics"][_METRIC] for run in group]
        costs = [[run[cost] for run in group if run[cost] is not None] for cost in _COSTS]
        error: list[Cell] = [*mean_and_deviation(errors)] if plain else [with_deviation(errors, ".2f")]
        means = [mean_and_deviation(cost)[0] if cost else None for cost in costs]
        said: list[Cell] = [*means] if plain else ["" if m is None else duration(m) for m in means]
        sizes = [first["params"], first["macs"]]
        rows.append([first["architecture"], first["dataset"], settings, len(group), *error, *sizes, *said])
    units = (" (s)", "± (%)") if plain else ("", "")
    columns = ["architecture", "data", "settings", "runs", "error (%)", *filter(None, units[1:])]
    columns += ["parameters", "multiply-adds", f"search{units[0]}", f"training{units[0]}"]
    return Table("runs", "Test error, mean ± standard deviation over seeds", columns, rows)


def _read(run: Path) -> Job | str:
    """What a run's summary says and where its architecture comes from; or why it has no place in a table."""
    try:
        job = json.loads((run / _FILE).read_text(encoding="utf-8"))
    except OSError:
        return "not finished"
    except ValueError:
        return "a broken summary"
    if "error" in job:
        return "failed"
    if _METRIC not in job.get("metrics", {}):
        return "not of train.py"
    return {**job, **_origin(run), "overrides": [f"dataset={job['dataset']}", *_typed(job)]}


def _typed(job: Job) -> list[str]:
    """The images and the place of the genotype stand in columns, or say nothing."""
    return [line for line in job["overrides"] if not line.startswith(("dataset=", "dataset.root=", "logger"))]


def _origin(run: Path) -> dict[str, Any]:
    """The architecture's name and the seconds of its search, where they are known."""
    hydra = run / ".hydra"
    try:
        config = yaml.safe_load((hydra / "config.yaml").read_text(encoding="utf-8"))
        choices = yaml.safe_load((hydra / "hydra.yaml").read_text(encoding="utf-8"))["hydra"]["runtime"]
    except OSError:
        return {"architecture": "", "search_seconds": None}
    name = choices["choices"].get("genotype")
    source = (config.get("genotype") or {}).get("path") if name == "file" else None
    if source is None:
        origin = f"of {config['init']}" if config["init"] else "several"  # of an ensemble
        return {"architecture": name or origin, "search_seconds": None}
    try:
        search = json.loads((Path(source) / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a file of one genotype, or a folder that has gone
        return {"architecture": Path(source).name, "search_seconds": None}
    return {"architecture": search.get("strategy", source), "search_seconds": search.get("seconds")}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command; prints the table, and on stderr what was left out."""
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(prog="python -m nas_lightning.report.comparison", description=lines[0])
    parser.add_argument("runs", nargs="+", help="folders of runs and sweeps of train.py")
    parser.add_argument("--format", choices=("md", "csv", "latex"), default="md")
    options = parser.parse_args(arguments)
    try:
        runs, left_out = read_runs(options.runs)
    except InputError as error:
        sys.exit(f"error: {error}")
    found = table(runs, plain=options.format == "csv")
    print({"md": found.markdown, "csv": found.csv, "latex": found.latex}[options.format]().rstrip())
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
