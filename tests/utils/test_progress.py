"""Loops say what is done and what is left: a bar on a terminal, lines elsewhere."""

import pytest

from nas_lightning.utils import progress
from nas_lightning.utils.progress import follow


class Clock:
    """Of which every look takes the same time."""

    def __init__(self, seconds):
        self.now, self.seconds = 0.0, seconds

    def monotonic(self):
        self.now += self.seconds
        return self.now


@pytest.fixture
def seconds(monkeypatch):
    return lambda each: monkeypatch.setattr(progress, "time", Clock(each))


def test_lines_come_after_ten_seconds_and_a_minute_apart(seconds, capsys):
    seconds(1.0)
    assert list(follow(range(200), "images")) == list(range(200))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "images: 10 of 200, 60 a minute, about 3 min 10 s to go"
    assert [int(line.split()[1]) for line in lines] == [10, 70, 130, 190]


def test_short_loops_print_nothing(seconds, capsys):
    seconds(0.01)
    assert sum(follow(range(100), "images")) == 4950
    assert capsys.readouterr().err == ""


def test_what_was_done_before_counts_and_is_no_part_of_the_rate(seconds, capsys):
    seconds(1.0)
    list(follow(range(20), "architectures", total=100, done=80))
    assert capsys.readouterr().err == "architectures: 90 of 100, 60 a minute, about 10 s to go\n"


def test_progress_can_be_disabled(seconds, capsys):
    seconds(100.0)
    assert list(follow("abc", "letters", shown=False)) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert list(follow(iter("abc"), "letters", total=3)) == ["a", "b", "c"]
    assert "letters" in capsys.readouterr().err


def test_error_in_the_loop_is_raised(seconds):
    seconds(1.0)

    def broken():
        yield 1
        raise ValueError("of the loop")

    with pytest.raises(ValueError, match="of the loop"):
        list(follow(broken(), "things"))
