"""The page of the papers: its numbers are of kept tables, its commands compose, its studies run small."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from reproductions.make_papers import (
    COLUMNS,
    PAGE,
    RESULTS,
    commands,
    durations,
    filled,
    in_minutes,
    number,
    page,
    papers,
    result,
)
from tests.reproductions.conftest import CONF
from tests.yamls import composed, options

COMMANDS = sorted(set(commands()))
SEARCHPATH = f"hydra.searchpath=[file://{CONF}]"
ROOT = Path(__file__).parents[2]


def test_page_is_up_to_date():
    """`python -m reproductions.make_papers` writes it anew."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_bars_in_cells_are_escaped():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert rows
    of_durations = 3
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {len(COLUMNS) + 1, of_durations}


def test_papers_have_commands():
    assert len(papers()) >= 5
    assert len(COMMANDS) >= 15


def is_a_test(word):
    """Whether a test function exists in its file, or a module has examples."""
    path, _, name = word.partition("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    return f"\ndef {name}(" in text if name else ">>> " in text


def test_missing_tests_are_found():
    assert is_a_test("tests/reproductions/test_make_papers.py::test_missing_tests_are_found")
    assert not is_a_test("tests/reproductions/test_make_papers.py::test_that_is_not_there")


@pytest.mark.parametrize("paper", sorted({paper for paper, _ in COMMANDS}))
def test_commands_can_be_typed(paper):
    for command in sorted({command for name, command in COMMANDS if name == paper}):
        check_command(command)


def check_command(command):
    words = shlex.split(command.replace("~/", "/home/me/"))  # which the command line reads as a folder
    if words[1] == "-m":
        assert importlib.util.find_spec(words[2]) is not None
        tests = [word for word in words[3:] if word[:2] != "--"] if words[2] == "pytest" else []
        assert all(map(is_a_test, tests)), tests
        return
    script, overrides = words[0].removeprefix("nas-"), words[1:]
    if overrides[0] == "--config-dir":
        overrides = [*overrides[2:], SEARCHPATH]
    assert composed(script, *overrides)


def test_results_are_of_existing_studies():
    assert {folder.name for folder in (RESULTS).iterdir()} <= {
        *options("study"),
        *(path.stem for path in (CONF / "study").glob("[!_]*.yaml")),
    }


def test_numbers_are_read_from_tables():
    """Every entry that has a result says it with numbers of its tables alone."""
    for paper in papers().values():
        for entry in paper["entries"]:
            if "ours" in entry:
                assert result(entry).is_dir()
                assert "{" not in filled(entry)
                assert re.search(r"\{[^{}|]+\|", entry["ours"])


def test_number_is_a_cell_or_a_difference(tmp_path):
    (tmp_path / "kept.csv").write_text("metric,alone,with κ\ngrasp,0.25,1.0\n", encoding="utf-8")
    assert number(tmp_path, "kept", "grasp", "with κ", ".2f") == "1.00"
    assert number(tmp_path, "kept", "grasp", "with κ - alone", "+.2f") == "+0.75"


def test_results_took_half_an_hour_at_most():
    """On two cores, every command that has numbers."""
    found = [float(minutes.split()[0]) for _, minutes in durations()]
    assert len(found) >= 30
    assert max(found) <= 30


def test_minutes_are_of_the_clock_or_of_a_processor():
    assert in_minutes("seconds\n90.0\n") == "1.5"
    assert in_minutes("processor seconds\n90.0\n") == "1.5 of a processor"


def test_missing_row_is_an_error():
    with pytest.raises(ValueError, match="not enough values"):
        number(RESULTS / "gates", "theorems", "5", "found", ".2f")
