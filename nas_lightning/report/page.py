"""A run's page: `report.html` in its folder, one file that needs no other and no network.

What it shows is gathered here and in `sections`; how it looks is in `templates`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas_lightning.errors import InputError
from nas_lightning.files import check_contents, write_whole
from nas_lightning.report.front import read_front
from nas_lightning.report.pool import POOL_FILE, read_pool
from nas_lightning.report.record import ACCURACIES, RunRecord
from nas_lightning.report.relatives import read_relatives
from nas_lightning.report.rendering import render
from nas_lightning.report.sections import (
    Section,
    read_architecture,
    read_configuration,
    read_curves,
    read_findings,
    read_results,
    read_section,
    read_stored_findings,
    read_test_images,
    read_weights,
)
from nas_lightning.report.stored_tables import count_classes
from nas_lightning.report.summaries import MOST_SECONDS, is_number
from nas_lightning.runs.findings import TABLES
from nas_lightning.runs.folder import REPORT as REPORT_FILE
from nas_lightning.runs.programs import from_anywhere
from nas_lightning.text import duration, format_number, format_share

if TYPE_CHECKING:
    from nas_lightning.runs.findings import Findings

ERROR = "error"  # of a run that failed, among its facts


def write_report(
    run: Path,
    seconds: float | None = None,
    following: Mapping[str, str] | None = None,
    findings: Findings | None = None,
    reload: int | None = None,
) -> Path:
    """Describe a run by what its folder holds, and draw its figures; what is missing is named.

    Args:
        run: the folder.
        seconds: what it took, where no file has them yet.
        following: what to type here, by what it is for; None: what suits every run of its kind.
        findings: tables and figures; None: those in the folder.
        reload: of a run that goes on, the seconds after which a browser looks for a newer page.
    """
    if not run.is_dir():
        raise InputError("expected a run's folder", got=str(run))
    check_contents(run)
    record = RunRecord(run)
    made_anew = following is None or not record.facts
    commands = dict(record.commands()) if made_anew else from_anywhere(following or {})
    facts = dict(read_facts(record, seconds))
    page = render(
        "page.html",
        title=record.title,
        tiles=facts if reload is None else {**facts, "as of": f"{datetime.now():%H:%M:%S}"},
        relatives=read_relatives(record),
        reload=reload,
        sections=[section for section in _sections(record, commands, findings) if section is not None],
    )
    return write_whole(run / REPORT_FILE, page)


def _sections(
    record: RunRecord, commands: Mapping[str, str], findings: Findings | None
) -> Iterator[Section | None]:
    """Those that this kind of run has, in their order."""
    run, is_study = record.run, record.kind == "study"
    results = read_section("Results", "results.html", lambda: read_results(record))
    is_ensemble = len(record.notations) > 1  # whose numbers say more than the first member's cell
    if is_ensemble:
        yield results
    if not is_study:
        yield read_section("Architecture", "architecture.html", lambda: read_architecture(record))
    yield read_section("Front", "findings.html", lambda: read_front(run))
    if commands:
        yield Section("What to type next", "commands.html", {"commands": commands})
    if not is_ensemble and (not is_study or record.metrics):
        yield results
    if findings is not None:
        yield read_section("Tables and figures", "findings.html", lambda: read_findings(findings))
    elif is_study or (run / TABLES).is_dir():
        yield read_section("Tables and figures", "findings.html", lambda: read_stored_findings(run))
    else:
        if (run / POOL_FILE).is_file():
            yield read_section("Pool", "pool.html", lambda: read_pool(run / POOL_FILE, record.notations))
        yield read_section("Class by class", "test_images.html", lambda: read_test_images(run))
        yield read_section("Curves", "curves.html", lambda: read_curves(record))
        if record.kind == "search":
            yield read_section("Weights over time", "weights.html", lambda: read_weights(record))
    yield read_section("Configuration", "configuration.html", lambda: read_configuration(run))


def read_facts(record: RunRecord, seconds: float | None = None) -> Iterator[tuple[str, Any]]:
    """What stands at the top of a page, by name."""
    values = {**record.choices, **record.facts}
    names = ("study", "seed") if record.kind == "study" else ("strategy", "space", "dataset", "seed")
    for key in names:
        if key in values:
            yield key, values[key]
    for name in [name for name in ACCURACIES if name in record.metrics][:1]:
        yield name.replace("_", " "), format_share(record.metrics[name])
    if record.kind == "training" and (classes := count_classes(record.run)) > 0:
        yield "classes", classes
    for name, key in (("members", "members"), ("parameters", "params"), ("multiply-adds", "macs")):
        if is_number(record.facts.get(key)):
            yield name, format_number(record.facts[key])
    spent: Any = record.facts.get("seconds") if seconds is None else seconds
    if is_number(spent) and 0 <= spent < MOST_SECONDS:
        yield "took", duration(spent)
    if ERROR in record.facts:
        yield ERROR, record.facts[ERROR]
    if record.end_time:
        yield "finished", record.end_time
    yield from record.versions.items()
