"""One process at a time writes to a run's folder; who is dead holds nothing. Version 0.1 had no lock."""

import errno
import os
import signal
import time

import pytest

from nas_lightning.errors import InputError
from nas_lightning.runs.folder import RunFolder
from nas_lightning.utils import files as lock
from nas_lightning.utils.files import FILE_NAME, hold


def hold_in_child(folder) -> int:
    """The number of a process that holds the lock, until it is killed."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with hold(folder):
                os.write(tell, b"1")
                time.sleep(600)
        finally:
            os._exit(1)
    assert os.read(ready, 1) == b"1"
    return child


def end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_the_second_is_told_who_is_there(tmp_path):
    child = hold_in_child(tmp_path)
    try:
        with pytest.raises(InputError, match=f"that process {child} on .* has ceased"):
            hold(tmp_path).__enter__()
    finally:
        end(child)


def test_a_dead_holder_is_seen_through(tmp_path):
    end(hold_in_child(tmp_path))
    assert (tmp_path / FILE_NAME).is_file()
    with hold(tmp_path):
        pass
    assert not (tmp_path / FILE_NAME).exists()


def test_one_of_many_at_a_time(tmp_path):
    """Twenty processes take turns without a pause; none is in the folder while another is."""
    inside = tmp_path / "inside"

    def work(number: int) -> int:
        taken = 0
        while taken < 20:
            try:
                with hold(tmp_path):
                    inside.mkdir()  # fails where somebody is in
                    inside.rmdir()
                    taken += 1
            except InputError:
                pass
        return 0

    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = work(number)
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch, capsys):
    def refuse(*args):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with hold(tmp_path):
        pass
    assert "No locks available" in capsys.readouterr().out


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="expected a folder that can be locked"):
        hold(tmp_path).__enter__()
    assert (tmp_path / "elsewhere").read_text() == "mine"


def test_what_a_killed_process_has_not_completed_goes(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt.partial").write_text("half")
    (tmp_path / ".hydra.partial").mkdir()
    (tmp_path / "metrics.csv").write_text("step,epoch\n")
    with RunFolder(tmp_path).lock():
        names = {path.name for path in tmp_path.rglob("*")}
    assert names == {"checkpoints", "metrics.csv", FILE_NAME}
