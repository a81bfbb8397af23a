"""A run that is killed before any change of its folder is finished by one command, bit for bit."""

import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import pytest
from matplotlib.figure import Figure

from nas_lightning.plots.files import save
from tests.cli.conftest import run_script
from tests.reliability.commands import COMMANDS, LONG, assert_same_folder, finish
from tests.reliability.faults import changes_of, command_in_child, work_in_child
from tests.studies.conftest import write_table

KILLED = -9


class Whole(NamedTuple):
    """An undisturbed run: its folder, its command, and the changes in its folder."""

    folder: Path
    words: tuple[str, ...]
    changes: list[str]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Callable[[str], Whole]:
    @cache
    def run(kind: str) -> Whole:
        words = (*{**COMMANDS, **LONG}[kind], "run=run")
        folder = tmp_path_factory.mktemp("whole").resolve() / "run"
        write_table(folder.parent)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder.parent)
            assert run_script(*words[:-1], "run=warm") == 0  # children import nothing then
        return Whole(folder, words, changes_of(folder, partial(run_script, *words)))

    return run


def killed_at(number: int, whole: Whole, tmp_path: Path) -> None:
    folder = tmp_path.resolve() / "run"
    shutil.copy(whole.folder.parent / "table.csv", folder.parent)
    assert command_in_child(folder, *whole.words, at=number) == KILLED
    assert finish(folder, whole.words) != "dead end"
    assert_same_folder(whole.folder, folder)


@pytest.mark.parametrize("kind", COMMANDS)
def test_some_of_them(kind, whole, tmp_path):
    """Kill while the record is written, in the middle, and at the end."""
    run = whole(kind)
    count = len(run.changes)
    assert count > 20
    for number in (3, count // 2, count - 3):
        killed_at(number, run, tmp_path)
        shutil.rmtree(tmp_path / "run")


def test_a_picture_is_there_twice_where_its_svg_is(tmp_path):
    """A resumed run looks only for the SVG."""
    folder = tmp_path.resolve() / "figures"

    def draw() -> int:
        save(Figure(), folder / "weights")
        return 0

    for number in range(len(changes_of(folder, draw))):
        shutil.rmtree(folder, ignore_errors=True)
        assert work_in_child(folder, draw, at=number) == KILLED
        whole = {path.suffix for path in folder.glob("weights.???")}
        assert ".svg" not in whole or ".png" in whole


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*COMMANDS, *LONG])
def test_each_of_them(kind, whole, tmp_path):
    run, dead_ends = whole(kind), {}
    for number, name in enumerate(run.changes):
        try:
            killed_at(number, run, tmp_path)
        except AssertionError as error:
            dead_ends[f"{number} {name}"] = str(error).splitlines()[0]
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
    assert not dead_ends
