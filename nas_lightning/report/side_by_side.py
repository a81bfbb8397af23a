"""Several runs on one page: what they came to, settings that differ, cells side by side, curves together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nas_lightning.errors import InputError
from nas_lightning.files import write_whole
from nas_lightning.genotype import FILE_NAME, read_genotypes
from nas_lightning.plots.curves import by_panel
from nas_lightning.plots.style import DASHES, SERIES
from nas_lightning.report.cell_shapes import common_edges, kinds_in, shape_genotype
from nas_lightning.report.charts import Line, draw_chart
from nas_lightning.report.page import ERROR, REPORT_FILE, read_facts
from nas_lightning.report.record import RunRecord
from nas_lightning.report.relatives import link_between
from nas_lightning.report.rendering import render
from nas_lightning.report.scatter import Point, draw_scatter
from nas_lightning.report.sections import read_section
from nas_lightning.report.summaries import is_number
from nas_lightning.runs.metrics_csv import METRICS_FILE, read_metrics

_OF_THE_RUN = ("run", "resume", "hydra")
_MISSING = "–"
MOST_PICTURES = 50  # runs whose cells and curves a page shows: more are no picture
COSTS = {"parameters": "params", "multiply-adds": "macs"}


def write_side_by_side(runs: Sequence[Path], path: Path) -> Path:
    """Compare runs on a page.

    Args:
        runs: their folders.
        path: of the page.
    """
    for run in runs:
        if not run.is_dir():
            raise InputError("expected a run's folder", got=str(run))
    records = dict(zip(distinct_names(runs), map(RunRecord, runs), strict=True))
    sections = [
        read_section("Runs", "runs.html", lambda: _tabulate(records, path)),
        read_section("Runs that failed", "failures.html", lambda: _failures(records)),
        read_section("Accuracy against cost", "costs.html", lambda: _costs(records)),
        read_section("Settings that differ", "findings.html", lambda: _differences(records)),
        read_section("Architectures", "side_by_side.html", lambda: _architectures(records)),
        read_section("Curves", "curves.html", lambda: _curves(records)),
    ]
    found = [section for section in sections if section is not None]
    page = render(
        "page.html", title=f"{len(runs)} run{'s' * (len(runs) != 1)} side by side", tiles={}, sections=found
    )
    return write_whole(path, page)


def distinct_names(runs: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as few as tell them apart.

    >>> distinct_names([Path("/a/x/1"), Path("/a/y/1")]), distinct_names([Path("/a/x"), Path("/a/y")])
    (['x/1', 'y/1'], ['x', 'y'])
    """
    parts = [run.absolute().parts for run in runs]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise InputError("expected different runs", got=", ".join(map(str, runs)))


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Settings by their dotted names.

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
    """A row a run, with all facts that one of them has."""
    facts = {name: dict(read_facts(record)) for name, record in records.items()}
    columns = list(dict.fromkeys(key for values in facts.values() for key in values if key != ERROR))
    rows = []
    for name, record in records.items():
        page = record.run / REPORT_FILE
        link = link_between(path.absolute().parent, page.absolute()) if page.is_file() else ""
        cells = [facts[name].get(key, _MISSING) for key in columns]
        rows.append({"name": name, "link": link, "cells": cells})
    return {"columns": columns, "rows": rows}


def _failures(records: Mapping[str, RunRecord]) -> Mapping[str, Any] | None:
    """Why each of those failed that did."""
    reasons = {name: str(record.facts[ERROR]) for name, record in records.items() if ERROR in record.facts}
    return {"reasons": reasons} if reasons else None


def _differences(records: Mapping[str, RunRecord]) -> Mapping[str, Any] | None:
    """Options that were chosen, then settings that all runs have; None where there is no difference."""
    records = {name: record for name, record in records.items() if record.config}
    choices = [{k: str(v) for k, v in record.choices.items() if "/" not in k} for record in records.values()]
    settings = [dict(flatten(record.config)) for record in records.values()]
    everywhere = [{k: v for k, v in one.items() if all(k in other for other in settings)} for one in settings]
    rows = [*_differing_rows(choices), *_differing_rows(everywhere)]
    table = {"title": "", "note": "", "columns": ["setting", *records], "rows": rows}
    return {"tables": [table], "figures": []} if rows else None


def _differing_rows(runs: Sequence[Mapping[str, str]]) -> Iterator[list[str]]:
    for key in dict.fromkeys(key for values in runs for key in values):
        cells = [values.get(key, _MISSING) for values in runs]
        if len(set(cells)) > 1 and key.split(".")[0] not in _OF_THE_RUN:
            yield [key, *cells]


def _architectures(records: Mapping[str, RunRecord]) -> Mapping[str, Any] | None:
    """The (first) architecture of each run; edges are marked where not all of the same space have them."""
    _check_count(records)
    genotypes_of = {
        name: read_genotypes(record.run)[0]
        for name, record in records.items()
        if (record.run / FILE_NAME).is_file()
    }
    if not genotypes_of:
        return None
    spaces: dict[Any, list[Any]] = {}
    for genotype in genotypes_of.values():
        spaces.setdefault((genotype.space, *(name for name, _ in genotype)), []).append(genotype)
    plain = {key: common_edges(genotypes) for key, genotypes in spaces.items()}
    shapes = {
        name: shape_genotype(genotype, plain=plain[(genotype.space, *(cell for cell, _ in genotype))])
        for name, genotype in genotypes_of.items()
    }
    anchors = _anchors(records)
    return {"shapes": shapes, "kinds": kinds_in(list(genotypes_of.values())), "anchors": anchors}


def _check_count(records: Mapping[str, RunRecord]) -> None:
    if len(records) > MOST_PICTURES:
        raise InputError(f"expected at most {MOST_PICTURES} runs for pictures of each", got=len(records))


def _anchors(records: Mapping[str, RunRecord]) -> dict[str, str]:
    """Where on the page each run's architecture is."""
    return {name: f"run-{number}" for number, name in enumerate(records)}


def _costs(records: Mapping[str, RunRecord]) -> Mapping[str, Any] | None:
    """Accuracy against each cost of at least two trained networks; a dot leads to its architecture."""
    anchors = _anchors(records)
    scatters = []
    for title, key in COSTS.items():
        points = [
            Point(name, float(record.facts[key]), 100 * record.accuracy, link=f"#{anchors[name]}")
            for name, record in records.items()
            if record.kind != "search" and record.accuracy is not None and is_number(record.facts.get(key))
        ]
        if len(points) > 1:
            scatters.append(draw_scatter(f"Accuracy (%) against {title}", title, points, least_x=True))
    return {"scatters": scatters} if scatters else None


def _curves(records: Mapping[str, RunRecord]) -> Mapping[str, Any] | None:
    """A colour a run; the lines of a run differ in their dashes."""
    _check_count(records)
    panels: dict[str, list[Line]] = {}
    for number, (name, record) in enumerate(records.items()):
        for title, lines in _panels(record.run).items():
            for place, (line, values) in enumerate(lines.items()):
                points = {epoch + 1: value for epoch, value in values.items()}
                dashes = " ".join(map(str, DASHES[place % len(DASHES)]))
                style = f"series-{number % len(SERIES)}"
                panels.setdefault(title, []).append(Line(f"{name}: {line}", points, style, dashes))
    charts = [draw_chart(title.capitalize(), lines) for title, lines in panels.items()]
    return {"charts": charts} if charts else None


def _panels(run: Path) -> Mapping[str, Mapping[str, Mapping[int, float]]]:
    """None where the run has no curves."""
    try:
        return by_panel(read_metrics(run / METRICS_FILE))
    except (InputError, OSError):
        return {}
