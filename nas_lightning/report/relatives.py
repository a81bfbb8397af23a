"""The way from a run's page to others: what it came from, what it is part of, what followed from it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from nas_lightning.errors import InputError
from nas_lightning.files import check_contents, read_text, write_whole
from nas_lightning.report.record import RunRecord
from nas_lightning.report.rendering import render
from nas_lightning.runs.folder import DEEPEST, REPORT, SWEEP
from nas_lightning.runs.record import look_up
from nas_lightning.runs.tracking import stored_address

FOLLOWERS = "followed_by.txt"  # the folders of runs that came from this one, a line each
START, END = "<!-- relatives -->", "<!-- end of relatives -->"
_MOST_FOLLOWERS, _MOST_BYTES = 50, 50_000_000
_SETTINGS = (("genotype", "path"), ("init",), ("study", "ensemble"), ("ensemble", "runs"))


class Relative(NamedTuple):
    """Where a link leads.

    Args:
        what: what the other is to the run.
        name: of its folder.
        href: from the run's page on.

    >>> Relative("from the search", "first", "../first/report.html").name
    'first'
    """

    what: str
    name: str
    href: str


def read_relatives(record: RunRecord) -> list[Relative]:
    """Those that have a page now."""
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
    """The runs whose results this one began with, by its settings."""
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


def tell_sources(run: Path) -> None:
    """Have the pages of what this run came from lead to it; one that cannot be written stays as it is."""
    for source in sources(RunRecord(run)):
        if (source / REPORT).is_file():
            with suppress(OSError, InputError, ValueError):
                check_contents(source)
                _add_follower(source / FOLLOWERS, os.path.relpath(run.absolute(), source))
                refresh(source)


def _add_follower(file: Path, follower: str) -> None:
    if file.exists() and not file.is_file():
        return  # a pipe of somebody's would wait for ever
    with file.open("a", encoding="utf-8") as lines:
        lines.write(follower + "\n")


def refresh(run: Path) -> None:
    """Write the links on a run's page anew, and nothing else of it."""
    page = run / REPORT
    if page.stat().st_size > _MOST_BYTES:
        return
    before, start, rest = read_text(page).partition(START)
    _, end, after = rest.partition(END)
    if start and end:
        write_whole(page, before + render("relatives.html", relatives=read_relatives(RunRecord(run))) + after)


def refresh_all(runs: Iterable[Path]) -> None:
    """Those of runs that have a page which can be written."""
    for run in runs:
        with suppress(OSError, InputError, ValueError):
            refresh(run)


def link_between(folder: Path, page: Path) -> str:
    """The address of a page from a folder on, whatever characters its path has.

    >>> link_between(Path("/a/b"), Path("/a/50 %/report.html"))
    '../50%20%25/report.html'
    """
    return quote(os.fsencode(os.path.relpath(page, folder)))


def short_name(run: Path) -> str:
    """The folder's name; of a job or a member its parent's, too.

    >>> short_name(Path("/runs/sweep/3")), short_name(Path("/runs/first"))
    ('sweep/3', 'first')
    """
    within = run.name.isdecimal() or run.name.startswith("member_")
    return os.path.join(run.parent.name, run.name) if within else run.name


def _wholes(run: Path) -> Iterator[Path]:
    """The sweep or ensemble that a run is part of."""
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
    """The run's page at Weights & Biases."""
    address = stored_address(run, "wandb")
    if address.startswith("https://") and not set(address) & set(" \n\t"):
        yield Relative("numbers at", "Weights & Biases", address)


def _number(folder: Path) -> tuple[int, str]:
    end = folder.name.rpartition("_")[2]
    return int(end) if end.isdecimal() else 0, folder.name
