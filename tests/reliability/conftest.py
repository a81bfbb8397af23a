"""Tests of faults: killed processes, full disks, damaged and malicious files."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.conftest import command, finished, images, run_script, runs
from tests.reliability.commands import COMMANDS, LONG
from tests.reliability.faults import record_changes
from tests.studies.conftest import write_table

__all__ = ["command", "finished", "images", "runs"]


class CompleteRun(NamedTuple):
    """An undisturbed run: its folder, its command, and the changes in its folder."""

    folder: Path
    argv: tuple[str, ...]
    changes: list[str]

    def first_change(self, part: str) -> int:
        """Return the number of the first change of a file whose path contains `part`."""
        return next(number for number, name in enumerate(self.changes) if part in name)


@pytest.fixture(scope="session")
def complete_run(tmp_path_factory) -> Callable[[str], CompleteRun]:
    """`complete_run("search")`: a finished run of that kind of command."""

    @cache
    def run(kind: str) -> CompleteRun:
        argv = (*{**COMMANDS, **LONG}[kind], "run=run")
        folder = tmp_path_factory.mktemp("complete").resolve() / "run"
        write_table(folder.parent)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder.parent)
            return CompleteRun(folder, argv, record_changes(folder, partial(run_script, *argv)))

    return run
