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
from nas_lightning.genotype import FILE_NAME, Genotype, read_genotypes
from nas_lightning.models.prediction import PAGE, TEST
from nas_lightning.plots.curves import by_epoch, by_panel, save_curves, save_genotypes, save_weights
from nas_lightning.plots.style import theme_svg
from nas_lightning.report.charts import (
    Line,
    Point,
    Timeline,
    common_edges,
    draw_chart,
    draw_scatter,
    draw_weight_charts,
    kinds_in,
    read_timeline,
    shape_genotype,
)
from nas_lightning.report.record import RunRecord
from nas_lightning.runs.facts import FIGURES, HISTORY_FILE, METRICS_FILE, TABLES, read_metrics
from nas_lightning.runs.folder import CANDIDATES, FRONT, RunFolder
from nas_lightning.runs.record import look_up, read_config_text
from nas_lightning.utils.files import read_text
from nas_lightning.utils.tables import format_cell
from nas_lightning.utils.text import format_number, format_share, split_score

if TYPE_CHECKING:
    from nas_lightning.runs.facts import Findings


# The pool of a search that scores architectures untrained: two scores against each other, and a table.

POOL_FILE = "pool.csv"
MOST_ROWS = 200  # of the table; all are in the file


def read_pool(path: Path, chosen: Sequence[str]) -> Mapping[str, Any]:
    """What the page shows of a pool.

    Args:
        path: the CSV file: `arch`, then the metrics.
        chosen: the notations of what the search ended in.
    """
    names, scores = _read(path)
    metrics = list(scores)
    scatter = None
    if len(metrics) > 1:
        x, y = (places(scores[metric]) for metric in metrics[:2])
        points = [
            Point(name, 100 * a, 100 * b, name in chosen) for name, a, b in zip(names, x, y, strict=True)
        ]
        note = f"{len(names)} architectures by their places; 100 is the largest score"
        scatter = draw_scatter(
            f"{metrics[1]} against {metrics[0]}", metrics[0], points, note=note, limits=(0, 100)
        )
    order = sorted(range(len(names)), key=lambda index: names[index] not in chosen)
    rows = [[names[i], *(format_number(scores[m][i]) for m in metrics)] for i in order[:MOST_ROWS]]
    return {
        "metrics": metrics,
        "scatter": scatter,
        "rows": rows,
        "chosen": list(chosen),
        "count": len(names),
    }


def places(values: Sequence[float]) -> list[float]:
    """The share of the others that a value is above, from 0 to 1; equal values share their mean place.

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
        raise InputError(f"expected a table of scores: {error}", where=path.name) from None
    if not names or not scores:
        raise InputError("expected at least one scored architecture", where=path.name)
    return names, scores


# Tables that a run has left, as its page shows them.


def stored_table(path: Path) -> Mapping[str, Any]:
    """A CSV file with the title that stands in the Markdown beside it."""
    columns, *rows = _read_stored_tables(path)
    texts = [[short_number(cell) for cell in row] for row in rows[:MOST_ROWS]]
    note = f"The first {MOST_ROWS} of {len(rows):,} rows." if len(rows) > MOST_ROWS else ""
    title = _stored_title(path.with_suffix(".md")) or path.stem.replace("_", " ")
    return {"title": title, "note": note, "columns": columns, "rows": texts}


def count_classes(run: Path) -> int:
    """How many classes a training's test images have; 0 where that is not known."""
    table = run / TEST / TABLES / "classes.csv"
    try:
        return len(_read_stored_tables(table)) - 2  # its head, and the mean of the classes
    except (InputError, OSError):
        return 0


def _read_stored_tables(path: Path) -> list[list[str]]:
    """The rows with the head, of which there is one at least."""
    try:
        rows = [*csv.reader(read_text(path).splitlines())]
    except (ValueError, csv.Error) as error:
        raise InputError(f"expected a table: {error}", where=path.name) from None
    if not rows:
        raise InputError("expected a table", got="an empty file", where=path.name)
    return rows


def _stored_title(markdown: Path) -> str:
    """What the table's Markdown has in bold above it; empty where it has not."""
    try:
        first = read_text(markdown).partition("\n")[0]
    except (OSError, ValueError):
        return ""
    return first[2:-2] if first.startswith("**") and first.endswith("**") else ""


def short_number(text: str) -> str:
    """A cell of a CSV file as a reader gets it.

    >>> short_number("0.123456"), short_number("1234"), short_number("a")
    ('0.1235', '1,234', 'a')
    """
    try:
        return format_number(int(text) if text.isdecimal() else float(text))
    except ValueError:
        return text


# A front on the page of its search.

_AROUND = ("index", "knee", "genotype")
"""The columns of `front.csv` beside the objectives."""


def read_front(path: Path) -> Mapping[str, Any] | None:
    """What the page shows of a front; None for a search of one objective."""
    run = RunFolder(path)
    if not run.front.is_file():
        return None
    try:
        return _read_sound(run)
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"expected tables of a front: {error}", where=f"{FRONT}, {CANDIDATES}") from None


def _read_sound(run: RunFolder) -> Mapping[str, Any]:
    from nas_lightning.plots.curves import draw_front
    from nas_lightning.plots.style import theme_svg

    header, rows = _read_front(run.front)
    names = [name for name in header if name not in _AROUND]
    front, looked_at = _numbers(header, rows, names), _numbers(*_read_front(run.candidates), names)
    if not front or not all(math.isfinite(value) for values in front.values() for value in values):
        raise ValueError("a number of each objective is missing")
    knee = [row[header.index("knee")] for row in rows].index("knee")
    svg = Markup(theme_svg(draw_front(looked_at, front, knee), "front"))
    shown = [name for name in header if name != "genotype"]
    texts = [[short_number(row[header.index(name)]) for name in shown] for row in rows]
    note = f"{FRONT} has the genotypes, too."
    table = {"title": "The front", "note": note, "columns": shown, "rows": texts}
    return {"tables": [table], "figures": [{"title": "front", "svg": svg}]}


def _numbers(
    header: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]
) -> dict[str, list[float]]:
    return {name: [float(row[header.index(name)]) for row in rows] for name in names}


def _read_front(path: Path) -> tuple[list[str], list[list[str]]]:
    header, *rows = csv.reader(read_text(path).splitlines())
    if not rows or any(len(row) != len(header) for row in rows):
        raise ValueError(f"{path.name} is no table")
    return header, rows


# What a run's page shows, section by section: values read from the run's folder, for the templates.
#
# A section whose files are missing or broken says so in its place; the others are there all the same. A
# section that a kind of run cannot have is no section of its page.

Values = Mapping[str, Any]
Series = Mapping[str, Mapping[int, float]]


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Args:
        title: its heading.
        template: the file in `templates` that shows it.
        values: what the template is given.
        missing: why there is nothing to show, instead.

    >>> read_section("Pool", "pool.html", lambda: None) is None
    True
    """

    title: str
    template: str
    values: Values = field(default_factory=dict)
    missing: str = ""


def read_section(title: str, template: str, gather: Callable[[], Values | None]) -> Section | None:
    """The section with what `gather` returns; None where it returns None."""
    try:
        values = gather()
    except InputError as error:
        return Section(title, template, missing=str(error))
    return None if values is None else Section(title, template, values)


def read_architecture(record: RunRecord) -> Values:
    """The genotypes, and for a search of one genotype an epoch the way that led to it."""
    run, is_over = record.run, (record.run / FILE_NAME).is_file()
    timeline = _timeline(run)
    genotypes = read_genotypes(run) if is_over else timeline.genotypes[-1:] if timeline else []
    knee = record.facts.get("knee")
    if isinstance(knee, int) and 0 <= knee < len(genotypes):
        return _knee(record, genotypes[knee], record.notations[knee:][:1])
    if not genotypes:
        raise InputError(f"expected {FILE_NAME}, which a run writes at its end")
    save_genotypes(genotypes, run / FIGURES)
    notations = record.notations or [str(genotype) for genotype in genotypes]
    timeline = timeline if len(genotypes) == 1 else None
    rows = timeline.rows if timeline else {}
    common = common_edges(genotypes)
    members = [
        {"number": number, "cells": shape_genotype(genotype, rows, common), "notation": str(notation)}
        for number, (genotype, notation) in enumerate(zip(genotypes, notations, strict=False), 1)
    ]
    note = record.facts.get("note", "") if is_over else "As it is so far: the run has not ended."
    values: dict[str, Any] = {"members": members, "kinds": kinds_in(genotypes), "frames": [], "note": note}
    if timeline and timeline.genotypes:
        frames, order = timeline.frames(genotypes[0])
        values |= {"frames": frames, "numbers": timeline.numbers(order)}
        values["kinds"] = kinds_in([*genotypes, *timeline.genotypes])
    return values


def _knee(record: RunRecord, genotype: Genotype, notations: Sequence[str]) -> Values:
    """The architecture of a front that is drawn."""
    save_genotypes([genotype], record.run / FIGURES)
    notation = next(iter(notations), str(genotype))
    member = {
        "number": 1,
        "cells": shape_genotype(genotype, {}, common_edges([genotype])),
        "notation": notation,
    }
    note = " ".join(["The knee of the front; the others stand below.", record.facts.get("note", "")]).strip()
    return {"members": [member], "kinds": kinds_in([genotype]), "frames": [], "note": note}


def read_results(record: RunRecord) -> Values:
    """Losses, accuracies, errors and the task's scores first; the rest but for weights folded away."""
    last = record.metrics
    if not last:
        last = {name: [*values.values()][-1] for name, values in by_epoch(_metrics(record.run)).items()}
    listed = {name: format_number(last[name]) for name in sorted(last) if not name.startswith("weights/")}
    ends = ("_loss", "_accuracy", "_error")
    first = {name: text for name, text in listed.items() if name.endswith(ends) or split_score(name)}
    first |= _best_epoch(record)
    return {"first": first, "rest": {name: text for name, text in listed.items() if name not in first}}


def _best_epoch(record: RunRecord) -> dict[str, str]:
    """When a training was best on images that were held out; nothing where there were none, or one epoch."""
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


def read_curves(record: RunRecord) -> Values | None:
    """A chart each of losses, accuracies and entropies; None for a search that trains nothing."""
    run = record.run
    if (run / POOL_FILE).is_file() or "num_scored" in record.metrics or _trains_nothing(record):
        return None  # also where the pool is kept in no file
    rows = list(_metrics(run))
    save_curves(rows, run / FIGURES)
    charts = {
        title: _lines(series) + (_chance(run, series) if title == "accuracy" else [])
        for title, series in by_panel(rows).items()
    }
    return {"charts": [draw_chart(title.capitalize(), lines) for title, lines in charts.items()]}


def read_weights(record: RunRecord) -> Values | None:
    """A chart for each decision of each group; None where the strategy has no scores."""
    run = record.run
    source = run / HISTORY_FILE
    if _trains_nothing(record):
        return None
    if not source.is_file():
        raise InputError(f"expected {HISTORY_FILE}, which callbacks.history writes")
    timeline = read_timeline(source)
    if not timeline.groups:
        return None
    files = [run / FIGURES / f"weights_{group}.svg" for group in timeline.groups]
    if not all(svg.is_file() and svg.stat().st_mtime_ns >= source.stat().st_mtime_ns for svg in files):
        save_weights(timeline.entries, run / FIGURES)  # the callback draws them at the search's end
    return {"groups": [draw_weight_charts(timeline, name) for name in timeline.groups]}


def read_findings(findings: Findings) -> Values:
    """Tables as text, figures as SVG in the colors of the page."""
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
    """A training's results class by class, and where its mistakes are shown; None where there are none."""
    table = run / TEST / TABLES / "classes.csv"
    if not table.is_file():
        return None
    return {"tables": [stored_table(table)], "figures": [], "page": f"{TEST}/{PAGE}"}


def read_configuration(run: Path) -> Values:
    """All settings, as they were composed."""
    return {"text": read_config_text(run)}


def read_stored_findings(run: Path) -> Values:
    """The tables and figures that the run's folder has; the figures are its PNG files."""
    tables = [stored_table(path) for path in sorted((run / TABLES).glob("*.csv"))]
    figures = [
        {"title": path.stem.replace("_", " "), "png": base64.b64encode(path.read_bytes()).decode()}
        for path in sorted((run / FIGURES).glob("*.png"))
        if not path.stem.startswith("genotype")
    ]
    if not tables and not figures:
        raise InputError("expected tables or figures, which a run writes at its end")
    return {"tables": tables, "figures": figures}


def _trains_nothing(record: RunRecord) -> bool:
    return look_up(record.config, "trainer", "max_epochs") == 0


def _timeline(run: Path) -> Timeline | None:
    try:
        return read_timeline(run / HISTORY_FILE) if (run / HISTORY_FILE).is_file() else None
    except InputError:  # the section of the weights says it
        return None


def _metrics(run: Path) -> Iterable[Mapping[str, float]]:
    if not (run / METRICS_FILE).is_file():
        raise InputError(f"expected {METRICS_FILE}, which logger=csv writes")
    return read_metrics(run / METRICS_FILE)


def _lines(series: Series) -> list[Line]:
    return [
        Line(name, {epoch + 1: value for epoch, value in values.items()}, f"series-{number % 6}")
        for number, (name, values) in enumerate(series.items())
    ]


def _chance(run: Path, series: Series) -> list[Line]:
    """The accuracy of guesses, over the epochs of a training whose classes are known: 1/k."""
    classes = count_classes(run)
    if classes < 1:
        return []
    epochs = sorted({epoch + 1 for values in series.values() for epoch in values})
    return [Line("chance", dict.fromkeys((epochs[0], epochs[-1]), 1 / classes), "chance", "2 4")]
