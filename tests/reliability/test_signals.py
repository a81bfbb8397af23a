"""Ctrl-C, twice, and SIGTERM at any change of a run's folder: no traceback, and the run can be resumed."""

import os
import shutil
import signal

import pytest

from nas_lightning.flags import FlagParser, command
from nas_lightning.utils.files import replacing
from tests.cli.conftest import run_entry_point
from tests.reliability.commands import assert_same_folder, finish
from tests.reliability.faults import command_in_child, output_file


class Signals:
    """Return a fault that sends this process a signal at several successive changes."""

    def __init__(self, number: int, times: int) -> None:
        self.number, self.times = number, times

    def __call__(self, event: str, path: str) -> None:
        if self.times:
            self.times -= 1
            os.kill(os.getpid(), self.number)


def check_signal_at(number: int, fault: Signals, kind: str, complete_run, tmp_path) -> None:
    run, folder = complete_run(kind), tmp_path.resolve() / "run"
    shutil.copy(run.folder.parent / "table.csv", folder.parent)
    once = fault.times == 1
    expected = {128 + fault.number, *([1] if fault.number == signal.SIGINT else [])}  # Lightning's own code
    code = command_in_child(folder, *run.argv, at=number, fault=fault)
    output = output_file(folder).read_text()
    assert code in expected, output
    assert "Traceback" not in output
    if (folder / ".hydra").exists():
        assert "resume=run" in output
        assert not once or not [*folder.rglob("*.partial")]  # the second may come while they are removed
    assert finish(folder, run.argv) != "dead end"
    assert_same_folder(run.folder, folder)


FAULTS = {
    "ctrl_c": (signal.SIGINT, 1),
    "ctrl_c_twice": (signal.SIGINT, 2),
    "sigterm": (signal.SIGTERM, 1),
}


CASES = [
    pytest.param("ctrl_c", "checkpoints/last.ckpt", marks=pytest.mark.slow),
    pytest.param("ctrl_c_twice", "metrics.csv", marks=pytest.mark.slow),
    ("sigterm", "report.html"),
]


@pytest.mark.parametrize(("fault", "part"), CASES)
def test_signal_during_search(fault, part, complete_run, tmp_path):
    number = complete_run("search").first_change(part)
    check_signal_at(number, Signals(*FAULTS[fault]), "search", complete_run, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["search", "study"])
@pytest.mark.parametrize("fault", FAULTS)
def test_signal_at_each_change(fault, kind, complete_run, tmp_path):
    failures = {}
    for number, name in enumerate(complete_run(kind).changes):
        (tmp_path / str(number)).mkdir()
        try:
            check_signal_at(number, Signals(*FAULTS[fault]), kind, complete_run, tmp_path / str(number))
        except AssertionError as error:
            failures[f"{number} {name}"] = str(error)[:500]
        shutil.rmtree(tmp_path / str(number))
    assert not failures


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_during_a_small_command_leaves_no_partial_file(number, tmp_path, capsys):
    if number == signal.SIGINT:
        signal.signal(number, signal.default_int_handler)  # a background process ignores it

    @command
    def write() -> None:
        with replacing(tmp_path / "page.html") as partial:
            partial.write_text("half of it")
            signal.raise_signal(number)  # to this thread, whichever others there are
            raise AssertionError("not stopped")

    with pytest.raises(SystemExit) as end:
        write()
    assert end.value.code == 128 + number
    assert capsys.readouterr().err == "\nStopped. The same command starts over.\n"
    assert not [*tmp_path.iterdir()]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_signal_during_each_small_command(monkeypatch, capsys):
    def terminate(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("not stopped")

    monkeypatch.setattr(FlagParser, "parse_args", terminate)
    for name in ("nas-predict", "nas-export", "nas-table", "nas-compare", "nas-report"):
        assert run_entry_point(name) == 128 + signal.SIGTERM
        assert capsys.readouterr().err == "\nStopped. The same command starts over.\n"
