"""Tables and pages that compare runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nas_lightning.errors import InputError, near_match
from nas_lightning.flags import FlagParser, command
from nas_lightning.genotype import FILE_NAME, read_genotypes
from nas_lightning.plots.cells import kinds_in, legend_entries
from nas_lightning.plots.charts import Dot, Dots, Series, by_panel, line_chart, pareto_front, scatter
from nas_lightning.plots.style import DASHES, SERIES
from nas_lightning.report.page import ERROR, link_between, read_facts, refresh_all, render
from nas_lightning.report.record import RunRecord, check_values, is_number, read_summary
from nas_lightning.report.sections import draw_together, read_section
from nas_lightning.runs.facts import SIZES as RUN_COSTS
from nas_lightning.runs.facts import (
    Job,
    differing_settings,
    group_by_settings,
    mean_and_deviation,
    mean_with_deviation,
)
from nas_lightning.runs.folder import REPORT as REPORT_FILE
from nas_lightning.runs.folder import SUMMARY, job_folders
from nas_lightning.runs.metrics_csv import METRICS_FILE, read_metrics
from nas_lightning.runs.record import has_record, look_up, read_start
from nas_lightning.utils.files import hold, write_whole
from nas_lightning.utils.tables import Entry, Table
from nas_lightning.utils.text import duration, format_decimals

# Hypervolumes of searches for fronts

HYPERVOLUME = "hypervolume"


def read_fronts(folders: Iterable[str | Path]) -> tuple[list[Job], list[Path]]:
    """Return the summaries of searches with a front, and the other folders; a sweep counts as its jobs."""
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
    """Return the summary of a search with a front; None for other folders."""
    try:
        job = read_summary(run)
    except (InputError, ValueError):  # ValueError: a name that no file can have
        return None
    notation = job.get("notation")
    if "error" in job or HYPERVOLUME not in job["metrics"] or not isinstance(notation, list):
        return None
    return job


def compare_fronts(jobs: Sequence[Job]) -> Table:
    """Return a table with a row for searches that differ in their seeds only.

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


# A table over finished trainings: error, size, and the cost of search and training

_METRIC = "test_error"
_COSTS = ("search_seconds", "seconds")


def read_runs(folders: Sequence[str | Path], *, needed: bool = True) -> tuple[list[Job], list[str]]:
    """Return the summaries of trainings, and omitted folders with reasons; a sweep counts as its jobs.

    Args:
        folders: of runs and sweeps.
        needed: whether to raise an `InputError` without any training.
    """
    runs, left_out = [], []
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise InputError("The path must be the folder of a run", got=str(folder))
        for run in job_folders(folder) or [folder]:
            try:
                runs.append(read_training(run))
            except InputError as error:
                left_out.append(f"{run} ({error})")
    if not runs and needed:
        raise InputError("There must be a finished run of nas-train", got=", ".join(left_out) or "none")
    return runs, left_out


def read_training(run: Path) -> Job:
    """Return the summary of a training with the name of its architecture and the seconds of its search."""
    job = read_summary(run)
    if "error" in job:
        raise InputError("The run has failed", where=run)
    error = job["metrics"].get(_METRIC)
    if error is None:
        raise InputError("The run must be one of nas-train", where=run)
    if not 0 <= error <= 1:
        raise InputError(f"`{_METRIC}` must be from 0 to 1", got=error, where=run / SUMMARY)
    check_values(job, run, numbers=["params", "macs"], texts=["dataset"])
    typed = [  # the images and the place of the genotype stand in columns, or say nothing
        line for line in job["overrides"] if not line.startswith(("dataset=", "dataset.root=", "logger"))
    ]
    return {**job, **_origin(run), "overrides": [f"dataset={job['dataset']}", *typed]}


def compare(runs: Sequence[Job], *, plain: bool = False) -> Table:
    """Return a table with a row for runs that differ in their seeds only.

    Args:
        runs: of `read_runs`.
        plain: numbers only: means and deviations in separate columns, costs in seconds.
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
    """Return the name of the architecture and the seconds of its search, if they are known."""
    start = read_start(run)
    config, name = start.config, start.choices.get("genotype")
    if start.choices.get("network"):
        notation = read_summary(run).get("notation", [start.choices["network"]])
        return {"architecture": str(notation[0]), "search_seconds": None}
    source = look_up(config, "genotype", "path") if name == "file" else None
    if not config:
        return {"architecture": "", "search_seconds": None}
    if not isinstance(source, str):
        first = config.get("pretrained")
        return {"architecture": str(name or (f"of {first}" if first else "several")), "search_seconds": None}
    try:
        search = read_summary(Path(source))
    except (InputError, ValueError):  # a file of one genotype, or a folder that has gone
        return {"architecture": Path(source).name, "search_seconds": None}
    return {"architecture": str(search.get("strategy", source)), "search_seconds": search.get("seconds")}


def _format(table: Table, form: str) -> str:
    return {"md": table.markdown, "csv": table.csv, "latex": table.latex}[form]().rstrip()


# Several runs on one page: results, settings that differ, cells side by side, and curves

_OF_THE_RUN = ("run", "resume", "hydra")
_MISSING = "–"
_VERSIONS = ("nas_lightning", "torch")
MOST_PICTURES = 50  # maximum number of runs with cells and curves
COSTS = {"parameters": "params", "multiply-adds": "macs"}


def write_side_by_side(runs: Sequence[Path], path: Path) -> Path:
    """Compare runs on a page.

    Args:
        runs: their folders.
        path: of the page.
    """
    for run in runs:
        if not run.is_dir():
            raise InputError("The path must be the folder of a run", got=str(run))
    records = dict(zip(name_runs(runs), map(RunRecord, runs), strict=True))
    sections = [
        read_section("Runs", "runs.html", lambda: _tabulate(records, path)),
        read_section("Runs that failed", "failures.html", lambda: _failures(records)),
        read_section("Accuracy against cost", "curves.html", lambda: _costs(records)),
        read_section("Settings that differ", "findings.html", lambda: _differences(records)),
        read_section("Architectures", "side_by_side.html", lambda: _architectures(records)),
        read_section("Curves", "curves.html", lambda: _curves(records)),
    ]
    found = [section for section in sections if section is not None]
    page = render(
        "page.html", title=f"{len(runs)} run{'s' * (len(runs) != 1)} side by side", tiles={}, sections=found
    )
    return write_whole(path, page)


def name_runs(runs: Sequence[Path]) -> list[str]:
    """Return the names of folders; of the numbered jobs of a sweep, the settings in which they differ."""
    names = distinct_names(runs)
    if not all(run.name.isdecimal() for run in runs):
        return names
    typed = [_read_job_sweep(run)["overrides"] for run in runs]
    shared = set(typed[0]).intersection(*typed[1:]) if len(typed) > 1 else set()
    texts = [" ".join(line for line in lines if line not in shared) for lines in typed]
    pairs = zip(names, texts, strict=True)
    return [text if text and texts.count(text) == 1 else f"{name} {text}".rstrip() for name, text in pairs]


def distinct_names(runs: Sequence[Path]) -> list[str]:
    """Return the last parts of paths, as few as distinguish them.

    >>> distinct_names([Path("/a/x/1"), Path("/a/y/1")]), distinct_names([Path("/a/x"), Path("/a/y")])
    (['x/1', 'y/1'], ['x', 'y'])
    """
    parts = [run.absolute().parts for run in runs]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise InputError("The runs must differ", got=", ".join(map(str, runs)))


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield settings by their dotted names.

    >>> dict(flatten({"a": {"b": 1}, "c": [2]}))
    {'a.b': '1', 'c': '[2]'}
    """
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        else:
            yield name, str(value)


def _tabulate(records: Mapping[str, RunRecord], path: Path) -> Mapping[str, Any]:
    """Return a row for each run, with all known facts."""
    facts = {name: dict(read_facts(record)) for name, record in records.items()}
    columns = list(dict.fromkeys(key for values in facts.values() for key in values if key != ERROR))
    same = {key for key in _VERSIONS if len({values.get(key) for values in facts.values()}) == 1}
    columns = [key for key in columns if key not in same]
    rows = []
    for name, record in records.items():
        page = record.run / REPORT_FILE
        link = link_between(path.absolute().parent, page.absolute()) if page.is_file() else ""
        cells = [facts[name].get(key, _MISSING) for key in columns]
        rows.append({"name": name, "link": link, "cells": cells})
    return {"columns": columns, "rows": rows}


def _failures(records: Mapping[str, RunRecord]) -> Mapping[str, Any] | None:
    """Return the errors of failed runs."""
    reasons = {name: str(record.facts[ERROR]) for name, record in records.items() if ERROR in record.facts}
    return {"reasons": reasons} if reasons else None


def _differences(records: Mapping[str, RunRecord]) -> Mapping[str, Any] | None:
    """Return differing options, then differing settings that all runs have; None without differences."""
    records = {name: record for name, record in records.items() if record.config}
    choices = [
        {k: _MISSING if v is None else str(v) for k, v in record.choices.items() if "/" not in k}
        for record in records.values()
    ]
    settings = [resolve(dict(flatten(record.config))) for record in records.values()]
    everywhere = [{k: v for k, v in one.items() if all(k in other for other in settings)} for one in settings]
    rows = [*_differing_rows(choices), *_differing_rows(everywhere)]
    table = {"title": "", "note": "", "columns": ["setting", *records], "rows": rows}
    return {"tables": [table], "figures": []} if rows else None


def resolve(settings: Mapping[str, str]) -> dict[str, str]:
    """Replace references such as `${task.score}` by the settings that they name; without one, by a dash.

    >>> resolve({"task.score": "accuracy", "objective": "test_${task.score}", "lr": "${oc.env:LR}"})
    {'task.score': 'accuracy', 'objective': 'test_accuracy', 'lr': '–'}
    """
    found = {k: _REFERENCE.sub(lambda m: settings.get(m[1], m[0]), v) for k, v in settings.items()}
    return {key: _MISSING if "${" in value else value for key, value in found.items()}


_REFERENCE = re.compile(r"\$\{([\w.]+)\}")


def _differing_rows(runs: Sequence[Mapping[str, str]]) -> Iterator[list[str]]:
    for key in dict.fromkeys(key for values in runs for key in values):
        cells = [values.get(key, _MISSING) for values in runs]
        of_choice = key.endswith("._target_")  # the option that was chosen says it
        if len(set(cells)) > 1 and key.split(".")[0] not in _OF_THE_RUN and not of_choice:
            yield [key, *cells]


def _architectures(records: Mapping[str, RunRecord]) -> Mapping[str, Any] | None:
    """Draw the first cells of each run; edges that not all of the same space have are bold."""
    _check_count(records)
    genotypes_of = {
        name: read_genotypes(record.run)[0]
        for name, record in records.items()
        if (record.run / FILE_NAME).is_file()
    }
    genotypes_of = {name: genotype for name, genotype in genotypes_of.items() if genotype.cells}
    if not genotypes_of:
        return None
    spaces: dict[Any, list[str]] = {}
    for run, genotype in genotypes_of.items():
        spaces.setdefault((genotype.space, *(name for name, _ in genotype)), []).append(run)
    cells = {
        run: pictures
        for runs in spaces.values()
        for run, pictures in zip(runs, draw_together([genotypes_of[run] for run in runs]), strict=True)
    }
    legend = legend_entries(kinds_in([*genotypes_of.values()]))
    ordered = {run: cells[run] for run in genotypes_of}
    return {"cells": ordered, "legend": legend, "anchors": _anchors(records)}


def _check_count(records: Mapping[str, RunRecord]) -> None:
    if len(records) > MOST_PICTURES:
        raise InputError(f"There can be at most {MOST_PICTURES} runs with a picture each", got=len(records))


def _anchors(records: Mapping[str, RunRecord]) -> dict[str, str]:
    """Return the anchors of the architectures on the page."""
    return {name: f"run-{number}" for number, name in enumerate(records)}


def _costs(records: Mapping[str, RunRecord]) -> Mapping[str, Any] | None:
    """Draw accuracy against each cost of at least two trainings; a dot leads to its architecture."""
    anchors = _anchors(records)
    charts = []
    for title, key in COSTS.items():
        dots = [
            Dot(name, float(record.facts[key]), 100 * record.accuracy, f"#{anchors[name]}")
            for name, record in records.items()
            if record.kind != "search" and record.accuracy is not None and is_number(record.facts.get(key))
        ]
        if len(dots) > 1:
            best = [dots[index] for index in pareto_front([(-dot.x, dot.y) for dot in dots])]
            line = "best in both", [(dot.x, dot.y) for dot in best]
            groups = [Dots("runs", dots, "series-0", 5)]
            charts.append(scatter(f"Accuracy (%) against {title}", title, groups, line=line, named=True))
    return {"charts": charts, "kind": ""} if charts else None


def _curves(records: Mapping[str, RunRecord]) -> Mapping[str, Any] | None:
    """Draw the curves of all runs; a run has a color, and its lines have different dashes."""
    _check_count(records)
    panels: dict[str, list[Series]] = {}
    for number, (name, record) in enumerate(records.items()):
        for title, lines in _panels(record.run).items():
            for place, (line, values) in enumerate(lines.items()):
                points = [(epoch + 1.0, value) for epoch, value in values.items()]
                color, dashes = f"series-{number % len(SERIES)}", DASHES[place % len(DASHES)]
                panels.setdefault(title, []).append(Series(f"{name}: {line}", points, color, dashes))
    charts = [line_chart(title.capitalize(), lines) for title, lines in panels.items()]
    return {"charts": charts, "kind": ""} if charts else None


def _panels(run: Path) -> Mapping[str, Mapping[str, Mapping[int, float]]]:
    """Return the curves of a run; empty without them."""
    try:
        return by_panel(read_metrics(run / METRICS_FILE))
    except (InputError, OSError):
        return {}


# The end of a sweep: a table of its jobs and one of their seeds, printed and as Markdown

COLUMNS = (
    *("valid_accuracy", "valid_loss", "val_accuracy", "test_accuracy"),
    *("true_accuracy", "true_rank", "hypervolume"),
)
SIZES = {"parameters": "params", "multiply-adds": "macs"}


def write_sweep(folder: Path, objective: str | None) -> bool:
    """Print and write the tables of a sweep, and write its page; return whether every job finished.

    Raises:
        InputError: no job was started.
    """
    jobs = read_jobs(folder)
    if not jobs:
        raise InputError("At least one job must have a summary", got="none", where=folder)
    tables = [tabulate_jobs(jobs, objective), *tabulate_seeds(jobs, objective)]
    text = "\n\n".join([*(table.markdown() for table in tables), *unknown_objective(jobs, objective)])
    write_whole(folder / "table.md", text + "\n")
    print(f"\n{text}\n\n{folder / 'table.md'}")
    ended = [path for path in job_folders(folder) if (path / SUMMARY).is_file()]
    if ended:
        print(write_side_by_side(ended, folder / REPORT_FILE))
        refresh_all(ended)
    return not any("error" in job for job in jobs)


def read_jobs(sweep: Path) -> list[Job]:
    """Return the summaries of started jobs with their folders; a job without one has failed."""
    folders = job_folders(sweep) if sweep.is_dir() else []
    begun = [folder for folder in folders if (folder / SUMMARY).is_file() or has_record(folder)]
    return [{**_read_job_sweep(folder), "folder": folder.relative_to(sweep).as_posix()} for folder in begun]


def _read_job_sweep(folder: Path) -> Job:
    try:
        if (folder / SUMMARY).is_file():
            return read_summary(folder)
        return {
            "error": _why_unfinished(folder),
            "overrides": [w.lstrip("+") for w in read_start(folder).overrides],
        }
    except InputError as error:
        return {"error": str(error), "overrides": []}


def _why_unfinished(folder: Path) -> str:
    try:
        with hold(folder):
            return "not finished: stopped or killed"
    except InputError:
        return "running"


def tabulate_jobs(jobs: Sequence[Job], objective: str | None = None) -> Table:
    """Return a table of jobs: settings that differ, and results."""
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
        values = [job["metrics"].get(name) for name in metrics]
        texts = [None if value is None else format_decimals(value) for value in values]
        rows.append([number, settings, *texts, *map(job.get, sizes.values()), round(job["seconds"])])
    return Table("jobs", "", columns, rows)


def tabulate_seeds(jobs: Sequence[Job], objective: str | None = None) -> Iterable[Table]:
    """Yield a table of means and standard deviations over seeds, if jobs differ in seeds only."""
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
    """Yield a line if jobs do not have the objective."""
    named = ((name, job) for name, job in zip(_names(jobs), jobs, strict=True) if "error" not in job)
    finished = [
        (name, {*job["metrics"], *(size for size in RUN_COSTS if size in job)}) for name, job in named
    ]
    without = [str(number) for number, known in finished if objective not in known]
    typed = any(line.startswith("objective=") for job in jobs for line in job["overrides"])
    names = {name for _, known in finished for name in known}
    if objective is None or not without or (not typed and any(map(OF_TABLE, names))):
        return
    if not typed and len(without) < len(finished):
        yield f"{objective}: not measured by job {', '.join(without)}"
    else:
        hint = f" ({near_match(objective, names)})" if len(without) == len(finished) and names else ""
        yield f"objective={objective}: not among the metrics of job {', '.join(without)}{hint}"


def _names(jobs: Sequence[Job]) -> list[str | int]:
    """Return the names of jobs: of their folders, or numbers."""
    names = [str(job.get("folder", place)) for place, job in enumerate(jobs)]
    return [int(name) if name.isdecimal() else name for name in names]


def _metrics(jobs: Sequence[Job], objective: str | None) -> list[str]:
    """Return the metrics of any job, including the objective."""
    found = dict.fromkeys(name for job in jobs for name in job.get("metrics", {}))
    names = dict.fromkeys([*COLUMNS, *filter(OF_TABLE, found), *filter(None, [objective])])
    return [name for name in names if name in found]


OF_TABLE = re.compile("table/.").match
"""Values of a table of one's own."""


# The command `nas-table`

_DESCRIPTION = "Print a table over finished runs: test error, size, and the cost of search and training."


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command: print the tables, and the omitted runs to stderr."""
    parser = FlagParser(prog="nas-table", description=_DESCRIPTION)
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
