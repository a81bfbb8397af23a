"""Ctrl-C, twice, and SIGTERM at any change of a run's folder: no traceback, and the run can be resumed."""

import os
import shutil
import signal

import pytest

from nas_lightning.flags import FlagParser, command
from nas_lightning.utils.files import replacing
from tests.reliability.bad_runs import run_entry
from tests.reliability.commands import assert_same_folder, finish
from tests.reliability.faults import command_in_child, said_by
from tests.reliability.test_kill_everywhere import whole

__all__ = ["whole"]  # the fixture


class Signals:
    """Return a fault that sends this process a signal at several successive changes."""

    def __init__(self, number: int, times: int) -> None:
        self.number, self.times = number, times

    def __call__(self, event: str, path: str) -> None:
        if self.times:
            self.times -= 1
            os.kill(os.getpid(), self.number)


def told_at(number: int, fault: Signals, kind: str, whole, tmp_path) -> None:
    run, folder = whole(kind), tmp_path.resolve() / "run"
    shutil.copy(run.folder.parent / "table.csv", folder.parent)
    once = fault.times == 1
    expected = {128 + fault.number, *([1] if fault.number == signal.SIGINT else [])}  # Lightning's own code
    code = command_in_child(folder, *run.words, at=number, fault=fault)
    said = said_by(folder).read_text()
    assert code in expected, said
    assert "Traceback" not in said
    if (folder / ".hydra").exists():
        assert "resume=run" in said
        assert not once or not [*folder.rglob("*.partial")]  # the second may come while they are removed
    assert finish(folder, run.words) != "dead end"
    assert_same_folder(run.folder, folder)


FAULTS = {
    "ctrl_c": (signal.SIGINT, 1),
    "ctrl_c_twice": (signal.SIGINT, 2),
    "told_to_end": (signal.SIGTERM, 1),
}


def place(run, part: str) -> int:
    return next(number for number, name in enumerate(run.changes) if part in name)


SOME = [
    pytest.param("ctrl_c", "checkpoints/last.ckpt", marks=pytest.mark.slow),
    pytest.param("ctrl_c_twice", "metrics.csv", marks=pytest.mark.slow),
    ("told_to_end", "report.html"),
]


@pytest.mark.parametrize(("fault", "part"), SOME)
def test_a_search_that_is_told_to_end(fault, part, whole, tmp_path):
    told_at(place(whole("search"), part), Signals(*FAULTS[fault]), "search", whole, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["search", "study"])
@pytest.mark.parametrize("fault", FAULTS)
def test_at_every_change(fault, kind, whole, tmp_path):
    failures = {}
    for number, name in enumerate(whole(kind).changes):
        (tmp_path / str(number)).mkdir()
        try:
            told_at(number, Signals(*FAULTS[fault]), kind, whole, tmp_path / str(number))
        except AssertionError as error:
            failures[f"{number} {name}"] = str(error)[:500]
        shutil.rmtree(tmp_path / str(number))
    assert not failures


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_small_command_that_is_told_to_end_says_so_and_leaves_nothing_half_written(
    number, tmp_path, capsys
):
    @command
    def write() -> None:
        with replacing(tmp_path / "page.html") as partial:
            partial.write_text("half of it")
            signal.raise_signal(number)  # to this thread, whichever others there are
            raise AssertionError("goes on")

    with pytest.raises(SystemExit) as end:
        write()
    assert end.value.code == 128 + number
    assert capsys.readouterr().err == "\nStopped. The same command starts over.\n"
    assert not [*tmp_path.iterdir()]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("entry", ["nas-predict", "nas-export", "nas-table", "nas-compare", "nas-report"])
def test_every_small_command_ends_so(entry, monkeypatch, capsys):
    def tell(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("goes on")

    monkeypatch.setattr(FlagParser, "parse_args", tell)
    assert run_entry(entry) == 128 + signal.SIGTERM
    assert capsys.readouterr().err == "\nStopped. The same command starts over.\n"
