"""What a run's page shows, section by section: values read from the run's folder, for the templates.

A section whose files are missing or broken says so in its place; the others are there all the same. A section
that a kind of run cannot have is no section of its page.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from nas_lightning.errors import InputError
from nas_lightning.genotype import FILE_NAME, Genotype, read_genotypes
from nas_lightning.plots.curves import by_epoch, by_panel
from nas_lightning.plots.files import save_curves, save_genotypes, save_weights
from nas_lightning.plots.style import theme_svg
from nas_lightning.predictions.findings import PAGE, TEST
from nas_lightning.report.cell_shapes import common_edges, kinds_in, shape_genotype
from nas_lightning.report.charts import Line, draw_chart
from nas_lightning.report.pool import POOL_FILE
from nas_lightning.report.record import RunRecord
from nas_lightning.report.stored_tables import count_classes, stored_table
from nas_lightning.report.timeline import Timeline, draw_weight_charts, read_timeline
from nas_lightning.runs.findings import TABLES
from nas_lightning.runs.history import FIGURES, HISTORY_FILE
from nas_lightning.runs.metrics_csv import METRICS_FILE, read_metrics
from nas_lightning.runs.record import look_up, read_config_text
from nas_lightning.tables import format_cell
from nas_lightning.text import format_number, format_share, split_score

if TYPE_CHECKING:
    from nas_lightning.runs.findings import Findings

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
    if (run / POOL_FILE).is_file() or "scored" in record.metrics or _trains_nothing(record):
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
    """Tables as text, figures as SVG in the colours of the page."""
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
