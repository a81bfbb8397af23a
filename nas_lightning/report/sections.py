"""The sections of a run's page."""

from __future__ import annotations

import base64
import csv
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from nas_lightning.errors import InputError
from nas_lightning.genotype import FILE_NAME, Edge, Genotype, read_genotypes
from nas_lightning.models.prediction import PAGE, TEST
from nas_lightning.plots.cells import cell_text, cell_title, draw_cell, kinds_in, legend_entries
from nas_lightning.plots.charts import (
    Dot,
    Dots,
    by_epoch,
    curve_charts,
    front_charts,
    pareto_front,
    scatter,
    weight_charts,
)
from nas_lightning.plots.files import save_curves, save_genotypes, save_weights, theme_svg
from nas_lightning.plots.picture import Picture
from nas_lightning.report.record import RunRecord
from nas_lightning.report.timeline import Timeline
from nas_lightning.runs.facts import FIGURES, HISTORY_FILE, TABLES, RunFacts
from nas_lightning.runs.folder import CANDIDATES, FRONT, RunFolder
from nas_lightning.runs.metrics_csv import METRICS_FILE, read_metrics
from nas_lightning.runs.record import look_up, read_config_text
from nas_lightning.spaces.topology import topology_text
from nas_lightning.utils.files import read_text
from nas_lightning.utils.tables import format_cell, thin
from nas_lightning.utils.text import format_number, format_share, split_score

if TYPE_CHECKING:
    from nas_lightning.runs.facts import Findings


# The pool of a training-free search: two scores against each other, and a table

POOL_FILE = "pool.csv"
MOST_ROWS = 200  # of a table on a page; the file has all
MOST_DOTS = 2000


def read_pool(path: Path, chosen: Sequence[str]) -> Mapping[str, Any]:
    """Read and draw a pool.

    Args:
        path: a CSV file with the columns `arch` and the metrics.
        chosen: the notations of the result.
    """
    names, scores = _read(path)
    metrics = list(scores)
    chart = None
    if len(metrics) > 1:
        x, y = (places(scores[metric]) for metric in metrics[:2])
        dots = [Dot(name, 100 * a, 100 * b) for name, a, b in zip(names, x, y, strict=True)]
        groups = [
            Dots("scored", thin([dot for dot in dots if dot.name not in chosen], MOST_DOTS), "series-0"),
            Dots("chosen", [dot for dot in dots if dot.name in chosen], "series-1", 6),
        ]
        best = [dots[index] for index in pareto_front([(dot.x, dot.y) for dot in dots])]
        line = "best in both", [(dot.x, dot.y) for dot in best]
        note = f"Ranks of {len(names)} architectures; 100 is the largest score"
        title = f"{metrics[1]} against {metrics[0]}"
        chart = scatter(title, metrics[0], groups, line=line, note=note, limits=(-3, 103))
    order = sorted(range(len(names)), key=lambda index: names[index] not in chosen)
    rows = [[names[i], *(format_number(scores[m][i]) for m in metrics)] for i in order[:MOST_ROWS]]
    return {
        "metrics": metrics,
        "scatter": chart,
        "rows": rows,
        "chosen": list(chosen),
        "count": len(names),
    }


def places(values: Sequence[float]) -> list[float]:
    """Return ranks from 0 to 1, the largest value; equal values share their mean rank.

    >>> places([10.0, 5.0, 1e30, 5.0])
    [0.6666666666666666, 0.16666666666666666, 1.0, 0.16666666666666666]
    """
    order = sorted(-math.inf if math.isnan(value) else value for value in values)
    last = max(len(order) - 1, 1)
    sound = [-math.inf if math.isnan(value) else value for value in values]
    return [(bisect_left(order, value) + bisect_right(order, value) - 1) / 2 / last for value in sound]


def _read(path: Path) -> tuple[list[str], dict[str, list[float]]]:
    try:
        text = read_text(path)
        header, *rows = csv.reader(text[: text.rfind("\n") + 1].splitlines())
        names = [row[0] for row in rows]
        scores = {metric: [float(row[i]) for row in rows] for i, metric in enumerate(header[1:], 1)}
    except (ValueError, IndexError, csv.Error) as error:
        raise InputError(f"Cannot read the table of scores: {error}", where=path.name) from None
    if not names or not scores:
        raise InputError("At least one architecture must have a score", where=path.name)
    return names, scores


# Tables of a run


def stored_table(path: Path) -> Mapping[str, Any]:
    """Read a CSV file, with the title in its Markdown file."""
    columns, *rows = _read_stored_tables(path)
    texts = [[short_number(cell) for cell in row] for row in rows[:MOST_ROWS]]
    note = f"The first {MOST_ROWS} of {len(rows):,} rows." if len(rows) > MOST_ROWS else ""
    title = _stored_title(path.with_suffix(".md")) or path.stem.replace("_", " ")
    return {"title": title, "note": note, "columns": columns, "rows": texts}


def count_classes(run: Path) -> int:
    """Return the number of classes of the test images; 0 if it is unknown."""
    table = run / TEST / TABLES / "classes.csv"
    try:
        return len(_read_stored_tables(table)) - 2  # its head, and the mean of the classes
    except (InputError, OSError):
        return 0


def _read_stored_tables(path: Path) -> list[list[str]]:
    """Read the rows with the header; at least one."""
    try:
        rows = [*csv.reader(read_text(path).splitlines())]
    except (ValueError, csv.Error) as error:
        raise InputError(f"Cannot read the table: {error}", where=path.name) from None
    if not rows:
        raise InputError("The table is empty", where=path.name)
    return rows


def _stored_title(markdown: Path) -> str:
    """Return the bold first line of a Markdown file; empty if there is none."""
    try:
        first = read_text(markdown).partition("\n")[0]
    except (OSError, ValueError):
        return ""
    return first[2:-2] if first.startswith("**") and first.endswith("**") else ""


def short_number(text: str) -> str:
    """Format a cell of a CSV file.

    >>> short_number("0.123456"), short_number("1234"), short_number("a")
    ('0.1235', '1,234', 'a')
    """
    try:
        return format_number(int(text) if text.isdecimal() else float(text))
    except ValueError:
        return text


# The front of a search

_AROUND = ("index", "knee", "genotype")
"""The columns of `front.csv` other than objectives."""


def read_front(path: Path) -> Mapping[str, Any] | None:
    """Read and draw a front; None for a search with one objective."""
    run = RunFolder(path)
    if not run.front.is_file():
        return None
    try:
        return _read_sound(run)
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(
            f"Cannot read the tables of the front: {error}", where=f"{FRONT}, {CANDIDATES}"
        ) from None


def _read_sound(run: RunFolder) -> Mapping[str, Any]:
    header, rows = _read_front(run.front)
    names = [name for name in header if name not in _AROUND]
    front, looked_at = _numbers(header, rows, names), _numbers(*_read_front(run.candidates), names)
    if not front or not all(math.isfinite(value) for values in front.values() for value in values):
        raise ValueError("a number of each objective is missing")
    knee = [row[header.index("knee")] for row in rows].index("knee")
    shown = [name for name in header if name != "genotype"]
    texts = [[short_number(row[header.index(name)]) for name in shown] for row in rows]
    note = f"{FRONT} has the genotypes, too."
    table = {"title": "The front", "note": note, "columns": shown, "rows": texts}
    return {"tables": [table], "figures": [], "charts": front_charts(looked_at, front, knee)}


def _numbers(
    header: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]
) -> dict[str, list[float]]:
    return {name: [float(row[header.index(name)]) for row in rows] for name in names}


def _read_front(path: Path) -> tuple[list[str], list[list[str]]]:
    header, *rows = csv.reader(read_text(path).splitlines())
    if not rows or any(len(row) != len(header) for row in rows):
        raise ValueError(f"{path.name} is no table")
    return header, rows


# Sections: values for the templates, read from the folder of the run. A section with missing or damaged files
# shows why. A section that a kind of run cannot have is omitted.

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Args:
        title: its heading.
        template: its file in `templates`.
        values: of the template.
        missing: why there are none, instead.

    >>> read_section("Pool", "pool.html", lambda: None) is None
    True
    """

    title: str
    template: str
    values: Values = field(default_factory=dict)
    missing: str = ""


def read_section(title: str, template: str, gather: Callable[[], Values | None]) -> Section | None:
    """Return the section with the values of `gather`; None if they are None."""
    try:
        values = gather()
    except InputError as error:
        return Section(title, template, missing=str(error))
    return None if values is None else Section(title, template, values)


def read_architecture(record: RunRecord, figures: bool = True) -> Values:
    """Draw the genotypes, and for a search of one genotype those of all epochs."""
    run, is_over = record.run, (record.run / FILE_NAME).is_file()
    timeline = _timeline(record)
    genotypes = read_genotypes(run) if is_over else timeline.genotypes[-1:] if timeline else []
    notations = record.notations or [str(genotype) for genotype in genotypes]
    note = record.facts.get("note", "") if is_over else "The current state: the run has not finished."
    knee = record.facts.get("knee")
    if isinstance(knee, int) and 0 <= knee < len(genotypes):
        genotypes, notations, timeline = genotypes[knee : knee + 1], notations[knee : knee + 1], None
        note = f"The knee of the front. {note}".strip()
    if not genotypes:
        raise InputError(f"There is no {FILE_NAME}, which a run writes at its end")
    if figures:
        save_genotypes(genotypes, run / FIGURES)
    timeline = timeline if len(genotypes) == 1 else None
    members = [
        {
            "number": number,
            "cells": cells,
            "notation": notation,
            "topology": topology_text(genotype),
            "texts": _texts(genotype),
        }
        for number, (genotype, notation, cells) in enumerate(
            zip(genotypes, notations, draw_together(genotypes, timeline), strict=False), 1
        )
    ]
    values: dict[str, Any] = {"members": members, "drawn": [], "note": note}
    if timeline and timeline.genotypes:
        values["drawn"], frames = timeline.draw(genotypes[0])
        values["numbers"] = timeline.numbers(frames)
        genotypes = [*genotypes, *timeline.genotypes]
    return {**values, "legend": legend_entries(kinds_in(genotypes))}


def draw_together(
    genotypes: Sequence[Genotype], timeline: Timeline | None = None
) -> list[dict[str, Picture]]:
    """Draw the cells of genotypes by their titles; edges that not all of them have are bold."""
    common: dict[str, set[Edge]] = {}
    for name, cell in (named for genotype in genotypes for named in genotype):
        common[name] = common.get(name, {*cell.edges}) & {*cell.edges}
    rows = timeline.rows if timeline else {}
    return [
        {
            cell_title(name): draw_cell(cell, cell_title(name), rows.get(name), {*cell.edges} - common[name])
            for name, cell in genotype
        }
        for genotype in genotypes
    ]


def _texts(genotype: Genotype) -> dict[str, str]:
    return {cell_title(name): cell_text(cell) for name, cell in genotype}


def read_results(record: RunRecord) -> Values:
    """Read losses, accuracies, errors, and scores of the task; the rest is collapsed."""
    last, costs = record.metrics, RunFacts.from_dict(record.facts).costs if record.facts else {}
    if not last and not costs:
        last = {name: [*values.values()][-1] for name, values in by_epoch(_metrics(record.run)).items()}
    listed = {name: format_number(last[name]) for name in sorted(last)}
    ends = ("_loss", "_accuracy", "_error")
    first = {name: text for name, text in listed.items() if name.endswith(ends) or split_score(name)}
    first |= _best_epoch(record)
    first |= costs
    return {"first": first, "rest": {name: text for name, text in listed.items() if name not in first}}


def _best_epoch(record: RunRecord) -> dict[str, str]:
    """Return the best epoch on validation images; empty without them, or with one epoch."""
    if record.kind != "training" or not (record.run / METRICS_FILE).is_file():
        return {}
    series = by_epoch(_metrics(record.run))
    names = f"valid_{record.score}", f"val_{record.score}"
    values = next((series[name] for name in names if name in series), {})
    if len(values) < 2:
        return {}
    best = max(values, key=lambda epoch: values[epoch])
    form = format_share if record.score == "accuracy" else format_number
    return {"best epoch": f"{best + 1} of {max(values) + 1}, {form(values[best])}"}


def read_curves(record: RunRecord, figures: bool = True) -> Values | None:
    """Draw losses, accuracies, and entropies; None for a search that trains nothing."""
    run = record.run
    if (run / POOL_FILE).is_file() or "num_scored" in record.metrics or _trains_nothing(record):
        return None  # also where the pool is kept in no file
    rows = list(_metrics(run))
    if figures:
        save_curves(rows, run / FIGURES)
    classes = count_classes(run)
    return {"charts": curve_charts(rows, 1 / classes if classes > 0 else None), "kind": ""}


def read_weights(record: RunRecord, figures: bool = True) -> Values | None:
    """Draw the weights of all groups; None if the strategy has no scores."""
    run = record.run
    if _trains_nothing(record):
        return None
    timeline = record.timeline
    if timeline is None:
        raise InputError(f"There is no {HISTORY_FILE}, which callbacks.history writes")
    if not timeline.groups:
        return None
    files = [run / FIGURES / f"weights_{group}.svg" for group in timeline.groups]
    written = (run / HISTORY_FILE).stat().st_mtime_ns
    if figures and not all(svg.is_file() and svg.stat().st_mtime_ns >= written for svg in files):
        save_weights(timeline.entries, run / FIGURES)  # unless the callback has drawn them
    groups = {group: weight_charts(timeline.entries, group) for group in timeline.groups}
    return {
        "groups": [
            {"name": name, "charts": drawn.charts, "legend": drawn.legend, "note": drawn.note}
            for name, drawn in groups.items()
        ]
    }


def read_findings(findings: Findings) -> Values:
    """Return tables as text and figures as SVG in the colors of the page."""
    tables = [
        {
            "title": table.title,
            "note": table.note,
            "columns": table.columns,
            "rows": [[format_cell(cell) for cell in row] for row in table.rows],
        }
        for table in findings.tables
    ]
    figures = [
        {"title": name.replace("_", " "), "svg": Markup(theme_svg(figure, name))}
        for name, figure in findings.figures.items()
    ]
    return {"tables": tables, "figures": figures}


def read_test_images(run: Path) -> Values | None:
    """Read the results of a training for each class; None without them."""
    table = run / TEST / TABLES / "classes.csv"
    if not table.is_file():
        return None
    return {"tables": [stored_table(table)], "figures": [], "page": f"{TEST}/{PAGE}"}


def read_configuration(run: Path) -> Values:
    """Read the composed configuration."""
    return {"text": read_config_text(run)}


def read_stored_findings(run: Path) -> Values:
    """Read the tables and the PNG figures in the folder of a run."""
    tables = [stored_table(path) for path in sorted((run / TABLES).glob("*.csv"))]
    figures = [
        {"title": path.stem.replace("_", " "), "png": base64.b64encode(path.read_bytes()).decode()}
        for path in sorted((run / FIGURES).glob("*.png"))
        if not path.stem.startswith("genotype")
    ]
    if not tables and not figures:
        raise InputError("There are no tables or figures, which a run writes at its end")
    return {"tables": tables, "figures": figures}


def _trains_nothing(record: RunRecord) -> bool:
    return look_up(record.config, "trainer", "max_epochs") == 0


def _timeline(record: RunRecord) -> Timeline | None:
    try:
        return record.timeline
    except InputError:  # shown in the section of the weights
        return None


def _metrics(run: Path) -> Iterable[Mapping[str, float]]:
    if not (run / METRICS_FILE).is_file():
        raise InputError(f"There is no {METRICS_FILE}, which logger=csv writes")
    return read_metrics(run / METRICS_FILE)
