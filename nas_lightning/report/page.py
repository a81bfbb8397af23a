"""The page of a run."""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pytorch_lightning as pl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pytorch_lightning.utilities import rank_zero_only, rank_zero_warn

from nas_lightning.errors import InputError
from nas_lightning.plots.style import PALETTE
from nas_lightning.report.record import ACCURACIES, MOST_SECONDS, RunRecord, is_number
from nas_lightning.report.sections import (
    POOL_FILE,
    Section,
    count_classes,
    read_architecture,
    read_configuration,
    read_curves,
    read_findings,
    read_front,
    read_pool,
    read_results,
    read_section,
    read_stored_findings,
    read_test_images,
    read_weights,
)
from nas_lightning.runs.facts import TABLES
from nas_lightning.runs.folder import DEEPEST, REPORT, SWEEP
from nas_lightning.runs.programs import from_anywhere
from nas_lightning.runs.record import look_up
from nas_lightning.runs.trackers import stored_address
from nas_lightning.training.run_length import deadline_of, is_last_epoch
from nas_lightning.utils.files import check_contents, read_text, write_whole
from nas_lightning.utils.text import duration, format_number, format_share
from nas_lightning.validation import PositiveFloat, checked

if TYPE_CHECKING:
    from nas_lightning.runs.facts import Findings


# Templates: every value is escaped, and no other script than that of the page runs.


def render(template: str, **values: Any) -> str:
    """Return the page of a template and its values."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("nas_lightning.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _source(environment, "page.js")
    digest = hashlib.sha256(script.encode()).digest()
    environment.globals.update(
        reload=None,
        relatives=(),
        palette=PALETTE,
        style=Markup(_source(environment, "page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(digest).decode(),
    )
    return environment


def _source(environment: Environment, name: str) -> str:
    """Return a file in the folder of templates."""
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


# Links from the page of a run to those of its sources, its sweep or ensemble, and the runs that used it.

FOLLOWERS = "followed_by.txt"  # the folders of runs that used this one, one per line
START, END = "<!-- relatives -->", "<!-- end of relatives -->"
_MOST_FOLLOWERS, _MOST_BYTES = 50, 50_000_000
_SETTINGS = (("genotype", "path"), ("pretrained",), ("study", "ensemble"), ("ensemble", "runs"))


class Relative(NamedTuple):
    """A link to another run.

    Args:
        what: the relation of the other run.
        name: of its folder.
        href: relative to the page of the run.

    >>> Relative("from the search", "first", "../first/report.html").name
    'first'
    """

    what: str
    name: str
    href: str


def read_relatives(record: RunRecord) -> list[Relative]:
    """Return the related runs that have a page."""
    run = record.run.absolute()
    pages = [
        *(("from the {}", source) for source in sources(record)),
        *(("part of", whole) for whole in _wholes(run)),
        *(("member", member) for member in sorted(run.glob("member_*"), key=_number)),
        *(("then the {}", follower) for follower in _followers(run)),
    ]
    found = [
        Relative(what.format(RunRecord(other).kind), short_name(other), link_between(run, other / REPORT))
        for what, other in pages
        if other != run and os.path.isfile(other / REPORT)
    ]
    return [*dict.fromkeys(found), *_tracked(run)]


def sources(record: RunRecord) -> Iterator[Path]:
    """Yield the runs whose results this one used, by its settings."""
    run, start = record.run.absolute(), record.start_record
    typed_in = Path(str(look_up(start.hydra, "runtime", "cwd") or "."))
    for names in _SETTINGS:
        value = look_up(start.config, *names)
        for text in value if isinstance(value, list) else [value]:
            path = typed_in / text if isinstance(text, str) else None
            if path is not None and os.path.exists(path):
                folder = Path(os.path.abspath(path if path.is_dir() else path.parent))
                if not folder.is_relative_to(run):
                    yield folder


def link_sources(run: Path) -> None:
    """Add links to this run to the pages of its sources; pages that cannot be written stay as they are."""
    for source in sources(RunRecord(run)):
        if (source / REPORT).is_file():
            with suppress(OSError, InputError, ValueError):
                check_contents(source)
                _add_follower(source / FOLLOWERS, os.path.relpath(run.absolute(), source))
                refresh(source)


def _add_follower(file: Path, follower: str) -> None:
    if file.exists() and not file.is_file():
        return  # a pipe would block
    with file.open("a", encoding="utf-8") as lines:
        lines.write(follower + "\n")


def refresh(run: Path) -> None:
    """Update the links on the page of a run, and nothing else."""
    page = run / REPORT
    if page.stat().st_size > _MOST_BYTES:
        return
    before, start, rest = read_text(page).partition(START)
    _, end, after = rest.partition(END)
    if start and end:
        write_whole(page, before + render("relatives.html", relatives=read_relatives(RunRecord(run))) + after)


def refresh_all(runs: Iterable[Path]) -> None:
    """Update the links on the pages of runs, if they can be written."""
    for run in runs:
        with suppress(OSError, InputError, ValueError):
            refresh(run)


def link_between(folder: Path, page: Path) -> str:
    """Return the relative address of a page from a folder, escaped.

    >>> link_between(Path("/a/b"), Path("/a/50 %/report.html"))
    '../50%20%25/report.html'
    """
    return quote(os.fsencode(os.path.relpath(page, folder)))


def short_name(run: Path) -> str:
    """Return the name of a folder; for a job or a member with that of its parent.

    >>> short_name(Path("/runs/sweep/3")), short_name(Path("/runs/first"))
    ('sweep/3', 'first')
    """
    within = run.name.isdecimal() or run.name.startswith("member_")
    return os.path.join(run.parent.name, run.name) if within else run.name


def _wholes(run: Path) -> Iterator[Path]:
    """Yield the sweep or ensemble that a run is part of."""
    if run.name.startswith("member_"):
        yield run.parent
    yield from (folder for folder in list(run.parents)[:DEEPEST] if (folder / SWEEP).is_file())


def _followers(run: Path) -> Iterator[Path]:
    file = run / FOLLOWERS
    try:
        lines = read_text(file).splitlines() if file.is_file() else []
    except (OSError, ValueError):
        return
    for line in dict.fromkeys(lines[-_MOST_FOLLOWERS:]):
        yield Path(os.path.normpath(run / line))


def _tracked(run: Path) -> Iterator[Relative]:
    """Yield the page of the run at Weights & Biases."""
    address = stored_address(run, "wandb")
    if address.startswith("https://") and not set(address) & set(" \n\t"):
        yield Relative("numbers at", "Weights & Biases", address)


def _number(folder: Path) -> tuple[int, str]:
    end = folder.name.rpartition("_")[2]
    return int(end) if end.isdecimal() else 0, folder.name


# The page of a run: `report.html` in its folder, one file without external resources

ERROR = "error"  # in the facts of a failed run


def write_report(
    run: Path,
    seconds: float | None = None,
    following: Mapping[str, str] | None = None,
    findings: Findings | None = None,
    reload: int | None = None,
) -> Path:
    """Write the page of a run from the files in its folder, and its figures; the page names missing files.

    Args:
        run: the folder.
        seconds: the duration of the run, if no file has it yet.
        following: commands to type next, by purpose; None: those for this kind of run.
        findings: tables and figures; None: those in the folder.
        reload: for a running job, the seconds after which a browser reloads the page; no figures are saved.
    """
    if not run.is_dir():
        raise InputError("The path must be the folder of a run", got=str(run))
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
        sections=[
            section
            for section in _sections(record, commands, findings, save_figures=reload is None)
            if section is not None
        ],
    )
    return write_whole(run / REPORT, page)


def _sections(
    record: RunRecord, commands: Mapping[str, str], findings: Findings | None, save_figures: bool
) -> Iterator[Section | None]:
    """Yield the sections of this kind of run."""
    run, is_study = record.run, record.kind == "study"
    results = read_section("Results", "results.html", lambda: read_results(record))
    is_ensemble = len(record.notations) > 1  # its numbers are more important than the first cell
    if is_ensemble:
        yield results
    if not is_study:
        yield read_section(
            "Architecture", "architecture.html", lambda: read_architecture(record, save_figures)
        )
    yield read_section("Front", "findings.html", lambda: read_front(run))
    if commands:
        yield Section("Next commands", "commands.html", {"commands": commands})
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
        yield read_section("Curves", "curves.html", lambda: read_curves(record, save_figures))
        if record.kind == "search":
            yield read_section(
                "Weights over time", "weights.html", lambda: read_weights(record, save_figures)
            )
    yield read_section("Configuration", "configuration.html", lambda: read_configuration(run))


def read_facts(record: RunRecord, seconds: float | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the facts at the top of a page, by name."""
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


# The page of a running search or training: it is rewritten after epochs, and an open browser reloads it.

_SHARE = 0.02
"""Maximum share of the time that pages take."""
_FIRST = 2.0
"""Seconds of processor time that the first page takes; about 0.5 in `darts`."""


class LivePage(pl.Callback):
    """Writes `report.html` after epochs; a page that cannot be written is one warning.

    Pages take at most 2 % of the time. If a deadline ends the run, no page starts that might take more than
    half of the remaining time.

    Args:
        folder: of the run.
        seconds: minimum time before the first page and between two.

    >>> LivePage("my_run", seconds=60).seconds
    60
    """

    @checked
    def __init__(self, folder: str | Path, seconds: PositiveFloat = 30.0) -> None:
        self.folder, self.seconds = Path(folder), seconds
        self._due = seconds
        self._took: float | None = None  # the last page
        self._is_broken = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._due = time.monotonic() + self.seconds

    @rank_zero_only
    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        is_early = time.monotonic() < self._due
        if self._is_broken or is_early or is_last_epoch(trainer):  # the job writes the last page
            return
        if self._is_in_time(trainer):
            self._write(trainer)

    def _is_in_time(self, trainer: pl.Trainer) -> bool:
        deadline = deadline_of(trainer)
        if deadline is None:
            return True
        expected = deadline.stretch(_FIRST) if self._took is None else self._took
        return deadline.time_remaining() > 2 * expected

    def _write(self, trainer: pl.Trainer) -> None:
        start = time.monotonic()
        try:
            write_report(self.folder, reload=max(1, round(self.seconds)))
        except (InputError, OSError) as error:
            self._is_broken = True
            rank_zero_warn(f"report.html is written at the end only: {error}")
        now = time.monotonic()
        self._took = now - start
        self._due = now + max(self.seconds, (1 / _SHARE - 1) * self._took)
        if (deadline := deadline_of(trainer)) is not None:
            deadline.leave_out(self._took)
