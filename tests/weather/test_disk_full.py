"""A disk that is full from some change of the run's folder on: one line, and one command afterwards."""

import pytest

from tests.weather.faults import command_in_child, fill_disk, said_by
from tests.weather.test_kill_everywhere import finish, same, whole

__all__ = ["whole"]  # the fixture


def full_from(number: int, whole, tmp_path) -> None:
    reference, words, files, _ = whole
    folder = tmp_path.resolve() / "run"
    assert command_in_child(folder, *words, at=number, fault=fill_disk) == 1
    said = said_by(folder).read_text()
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, said
    assert "No space left on device" in errors[0]
    assert str(folder) in errors[0] or "got 'run'" in errors[0]
    assert "Traceback" not in said
    assert finish(folder, words) != "dead end"
    same(reference, folder, files)


@pytest.mark.parametrize("part", ["search.log", ".hydra", "checkpoints/last.ckpt", "metrics.csv", "summary"])
def test_some_of_them(part, whole, tmp_path):
    names = [name.replace("train.log", "search.log") for name in whole[3]]
    full_from(min(place for place, name in enumerate(names) if part in name), whole, tmp_path)


@pytest.mark.slow
def test_from_each_of_them(whole, tmp_path):
    failures = {}
    for number, name in enumerate(whole[3][:-1]):  # the last one takes the lock away
        try:
            full_from(number, whole, tmp_path / str(number))
        except AssertionError as error:
            failures[f"{number} {name}"] = str(error).splitlines()[0]
    assert not failures
