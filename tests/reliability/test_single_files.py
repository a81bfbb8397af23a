"""Exports and converted tables: after a kill, on a full disk, and with concurrent commands."""

from functools import partial
from pathlib import Path

import pytest

from nas_lightning.cli.export import main as export
from nas_lightning.objectives.convert import main as convert
from nas_lightning.utils.files import hold_file
from tests.reliability.faults import fill_disk, kill, output_file, record_changes, work_in_child
from tests.studies.conftest import write_table

LONG = [pytest.param(name, marks=pytest.mark.slow) for name in ("x.pt2", "x.onnx")]


@pytest.fixture(params=["x.parquet", *LONG])
def written(request, tmp_path):
    """The path of the file, the command that writes it, and its size after an undisturbed command."""
    if request.param == "x.parquet":
        write_table(tmp_path)
        argv, command = (str(tmp_path / "table.csv"),), convert
    else:
        trained = request.getfixturevalue("finished") / "trained"
        argv, command = (str(trained),), export
    command([*argv, str(tmp_path / "whole" / request.param)])

    def call(target: Path) -> int:
        try:
            command([*argv, str(target)])
        except SystemExit as end:
            print(end.code)
            return 1
        return 0

    file = tmp_path / "out" / request.param
    return file, partial(call, file), (tmp_path / "whole" / request.param).stat().st_size


def test_kill_or_full_disk_at_each_change(written):
    file, call, size = written
    folder = file.parent
    names = record_changes(folder, call)
    file.unlink()
    assert len(names) >= 4
    for number in range(len(names)):
        assert work_in_child(folder, call, at=number, fault=kill) == -9
        assert call() == 0
        assert [path.name for path in folder.iterdir()] == [file.name]
        assert abs(file.stat().st_size - size) < 200  # which may say when it was written
        file.unlink()
    for number in range(len(names) - 1):  # the last one removes the lock
        assert work_in_child(folder, call, at=number, fault=fill_disk) == 1
        (line,) = output_file(folder).read_text().splitlines()[-1:]
        assert line.startswith("error: ")
        assert "No space left on device" in line
        assert str(folder) in line
        assert not [*folder.glob("*")]


def test_concurrent_commands_with_one_output_file(written, capsys):
    file, call, _ = written
    with hold_file(file):
        assert call() == 1
    assert f"another process is writing here, wait until it has ended (in {file})" in capsys.readouterr().out
    assert not file.exists()


def test_a_link_is_replaced_and_not_followed(written, tmp_path):
    file, call, _ = written
    file.parent.mkdir()
    (tmp_path / "mine").write_text("mine")
    file.symlink_to(tmp_path / "mine")
    assert call() == 0
    assert (tmp_path / "mine").read_text() == "mine"
    assert not file.is_symlink()
