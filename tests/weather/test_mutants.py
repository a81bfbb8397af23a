"""What a mutation run rests on: code changed in place, forks that end, reasons that are of today's lines."""

import importlib.util
import time

import pytest

from tests.weather.mutants import (
    REPOSITORY,
    ROOMS,
    fork,
    functions_of,
    mutants,
    path_of,
    plain,
    reasons,
    replace_code,
)

TEXT = """
from functools import cache

LEAST = 1

@cache
def double(x):
    return 2 * x

class Box:
    sides = [side for side in range(4)]

    @property
    def size(self):
        return sum(double(side) for side in self.sides)
"""


@pytest.fixture
def box(tmp_path):
    """A module, its file and its functions."""
    file = tmp_path / "box.py"
    file.write_text(TEXT)
    spec = importlib.util.spec_from_file_location("box", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, file, functions_of(file)


def test_functions_get_the_code_of_another_text(box):
    module, file, living = box
    assert module.Box().size == 12
    module.double.cache_clear()
    assert replace_code(
        living, file, TEXT, TEXT.replace("2 * x", "3 * x").replace("return sum", "return -sum")
    )
    assert module.Box().size == -18


@pytest.mark.parametrize("change", [("LEAST = 1", "LEAST = 2"), ("@cache\n", ""), ("range(4)", "range(5)")])
def test_what_runs_at_import_is_left_to_another_process(box, change):
    module, file, living = box
    assert not replace_code(living, file, TEXT, TEXT.replace(*change))
    assert module.Box().size == 12


def test_a_fork_answers_or_is_ended(tmp_path):
    log = tmp_path / "log"
    assert [fork(lambda code=code: code, 20, log) for code in (0, 1, 71)] == [0, 1, 71]
    assert fork(lambda: 1 // 0, 20, log) == 70
    assert fork(lambda: time.sleep(60) or 0, 0.2, log) is None


def test_a_reason_is_for_a_line_that_is_there():
    known = {module for room in ROOMS.values() for module in room.modules}
    lines = {name: {plain(line) for line in path_of(name).read_text().splitlines()} for name in known}
    for module, was, now in reasons():
        assert was in lines[module], f"{module}: {was}"
        assert was != now


def test_mutants_are_changes_of_what_runs():
    pytest.importorskip("cosmic_ray")
    text = "def half(x: int | None = 3) -> float | None:\n    return x / 2\n"
    found = list(mutants(text))
    assert len({mutant.text for mutant in found}) == len(found) > 10
    assert all("int | None" in mutant.text and "float | None" in mutant.text for mutant in found)
    assert "return x * 2" in {mutant.now for mutant in found}


def test_the_modules_and_tests_of_every_room_are_there():
    for room in ROOMS.values():
        assert all(path_of(name).is_file() for name in room.modules)
        assert all((REPOSITORY / file).is_file() for file in room.tests)
