"""What a run has come to, handed to whatever loggers of Lightning's it has.

A tracker is a class in `trackers/` that names Lightning's logger; an addition is a file there.
"""

from __future__ import annotations

import contextlib
import pkgutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.files import read_text, write_whole
from nas_lightning.runs.publication import Publication

_TRACKERS = "nas_lightning.runs.trackers"


class Tracker(ABC):
    """What one of Lightning's loggers is told of a run, besides the metrics that Lightning logs itself.

    Args:
        logger: an object of Lightning's class of the name `of`.
    """

    of: ClassVar[str]

    def __init__(self, logger: Any) -> None:
        self.logger = logger

    @abstractmethod
    def publish(self, publication: Publication) -> None:
        """Hand over what there is of a finished run."""

    @abstractmethod
    def close(self, *, failed: bool) -> None:
        """End the run there."""


def trackers_of(loggers: Iterable[Logger]) -> list[Tracker]:
    """The tracker of each logger that has one; a logger of a user's own derives from one of Lightning's."""
    known = {tracker.of: tracker for tracker in _known_trackers()}
    names = [(logger, [base.__name__ for base in type(logger).__mro__]) for logger in loggers]
    return [known[next(n for n in of if n in known)](logger) for logger, of in names if {*of} & {*known}]


def _known_trackers() -> Iterator[type[Tracker]]:
    for module in pkgutil.iter_modules(import_module(_TRACKERS).__path__):
        for value in vars(import_module(f"{_TRACKERS}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Tracker) and value is not Tracker:
                yield value


@contextmanager
def published(loggers: Iterable[Logger], run: Path) -> Iterator[None]:
    """Around a run's work: its loggers get what it has come to, or that it has failed."""
    trackers = [] if rank_zero_only.rank else trackers_of(loggers)  # type: ignore[attr-defined]
    try:
        yield
    except BaseException:
        for tracker in trackers:
            with contextlib.suppress(Exception):  # the run's own error counts
                tracker.close(failed=True)
        raise
    for tracker in trackers:
        tracker.publish(Publication(run))
        tracker.close(failed=False)


def stored_id(run: Path, tracker: str) -> str | None:
    """The name by which a tracker knows a run that has begun before."""
    try:
        return read_text(run / tracker / "id").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def store_id(run: Path, tracker: str, name: str) -> None:
    """Keep it, so that a run that is resumed goes on there, too."""
    write_whole(run / tracker / "id", name + "\n")


def store_address(run: Path, tracker: str, address: str | None) -> None:
    """Keep where the run is to be seen; a tracker that is offline has no such place."""
    if address:
        write_whole(run / tracker / "url", address + "\n")


def stored_address(run: Path, tracker: str) -> str:
    """Where the run is to be seen; empty where that is not known."""
    file = run / tracker / "url"
    try:
        return read_text(file).strip() if file.is_file() else ""
    except (OSError, UnicodeDecodeError):
        return ""


def new_id() -> str:
    """One that nobody else has."""
    return uuid.uuid4().hex[:12]
