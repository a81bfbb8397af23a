"""A run that is killed before any change of its folder is finished by one command, bit for bit."""

import shutil
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from nas_lightning.plots.files import save
from tests.reliability.commands import COMMANDS, LONG, assert_same_folder, finish
from tests.reliability.conftest import CompleteRun
from tests.reliability.faults import command_in_child, record_changes, work_in_child

KILLED = -9
SLOW = pytest.mark.slow


def check_killed_at(number: int, complete: CompleteRun, tmp_path: Path) -> None:
    folder = tmp_path.resolve() / "run"
    shutil.copy(complete.folder.parent / "table.csv", folder.parent)
    assert command_in_child(folder, *complete.argv, at=number) == KILLED
    assert finish(folder, complete.argv) != "dead end"
    assert_same_folder(complete.folder, folder)


@pytest.mark.parametrize(
    ("kind", "shares"),
    [
        ("search", (0.05, 0.5, 0.95)),  # while its record is written, in the middle, and at the end
        ("train", (0.5,)),
        ("study", (0.5,)),
        ("sweep", (0.5,)),
        pytest.param("ensemble", (0.5,), marks=SLOW),
    ],
)
def test_resume_after_kill(kind, shares, complete_run, tmp_path):
    run = complete_run(kind)
    assert len(run.changes) > 20
    for share in shares:
        check_killed_at(int(share * len(run.changes)), run, tmp_path)
        shutil.rmtree(tmp_path / "run")


def test_an_svg_implies_its_png(tmp_path):
    """A resumed run looks only for the SVG."""
    folder = tmp_path.resolve() / "figures"

    def draw() -> int:
        save(Figure(), folder / "weights")
        return 0

    for number in range(len(record_changes(folder, draw))):
        shutil.rmtree(folder, ignore_errors=True)
        assert work_in_child(folder, draw, at=number) == KILLED
        complete = {path.suffix for path in folder.glob("weights.???")}
        assert ".svg" not in complete or ".png" in complete


@SLOW
@pytest.mark.parametrize("kind", [*COMMANDS, *LONG])
def test_resume_after_kill_at_each_change(kind, complete_run, tmp_path):
    run, failures = complete_run(kind), {}
    for number, name in enumerate(run.changes):
        try:
            check_killed_at(number, run, tmp_path)
        except AssertionError as error:
            failures[f"{number} {name}"] = str(error).splitlines()[0]
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
    assert not failures
