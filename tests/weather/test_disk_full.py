"""A disk that is full from some change of the run's folder on: one line, and one command afterwards."""

import shutil

import pytest

from tests.weather.commands import COMMANDS, assert_same_folder, finish
from tests.weather.faults import command_in_child, fill_disk, said_by
from tests.weather.test_kill_everywhere import Whole, whole

__all__ = ["whole"]  # the fixture


def full_from(number: int, whole: Whole, tmp_path) -> None:
    folder = tmp_path.resolve() / "run"
    assert command_in_child(folder, *whole.words, at=number, fault=fill_disk) == 1
    said = said_by(folder).read_text()
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert 1 <= len(errors) <= (2 if "-m" in whole.words else 1), said  # each job of a sweep has its own
    assert all("No space left on device" in error for error in errors), said
    assert all(str(folder) in error or "got 'run'" in error for error in errors), said
    assert "Traceback" not in said
    assert not [*folder.rglob("*.partial")]
    assert finish(folder, whole.words) != "dead end"
    assert_same_folder(whole.folder, folder)


@pytest.mark.parametrize("part", ["search.log", ".hydra", "checkpoints/last.ckpt", "metrics.csv", "summary"])
def test_some_of_a_search(part, whole, tmp_path):
    run = whole("search")
    full_from(min(place for place, name in enumerate(run.changes) if part in name), run, tmp_path)


@pytest.mark.parametrize("kind", ["train", "ensemble", "study", "sweep"])
def test_in_the_middle_of_the_others(kind, whole, tmp_path):
    run = whole(kind)
    full_from(len(run.changes) // 2, run, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", COMMANDS)
def test_from_each_of_them(kind, whole, tmp_path):
    run, failures = whole(kind), {}
    for number, name in enumerate(run.changes[:-1]):  # the last one takes the lock away
        (tmp_path / str(number)).mkdir()
        try:
            full_from(number, run, tmp_path / str(number))
        except AssertionError as error:
            failures[f"{number} {name}"] = str(error).splitlines()[0]
        shutil.rmtree(tmp_path / str(number))
    assert not failures
