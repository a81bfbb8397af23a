"""A disk that is full or becomes read-only during a run: a one-line error, and the run can be resumed.

The tests inject faults at changes of the run's folder, limit the size of files, and use small or read-only
file systems if this process may mount some.
"""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from pytorch_lightning.loggers import TensorBoardLogger

from nas_lightning.objectives.convert import main as convert
from tests.cli.conftest import run_entry_point, run_script
from tests.reliability.commands import COMMANDS, assert_same_folder, files_of, finish
from tests.reliability.conftest import CompleteRun
from tests.reliability.faults import (
    FaultInjector,
    command_in_child,
    fill_disk,
    in_child,
    make_read_only,
    output_file,
    work_in_child,
)
from tests.studies.conftest import write_table

FULL, READ_ONLY = "No space left on device", "Read-only file system"
LARGE = "size=256m"
SLOW = pytest.mark.slow


def check_error(output: str, message: str, folder: Path, jobs: int = 1) -> None:
    """Check for one line, or one per job of a sweep, with the system's message and the path."""
    errors = [line for line in output.splitlines() if line.startswith("error: ")]
    assert 1 <= len(errors) <= jobs, output
    assert all(message in error for error in errors), output
    places = (f"{folder.name}/", f"got '{folder.name}'")  # in there, or the folder itself
    assert all(any(place in error for place in places) for error in errors), output
    assert "Traceback" not in output


def count_errors(run: CompleteRun) -> int:
    return 3 if "-m" in run.argv else 1  # one per job, and that of the sweep


def check_resume_advice(output: str, folder: Path) -> None:
    """The command to resume is printed if there is something to resume."""
    begun = (folder / ".hydra").exists() or (folder / "multirun.yaml").exists()
    assert (f"resume={folder.name}" in output) == begun, output


def check_resume(run: CompleteRun, folder: Path) -> None:
    """One command finishes the run with the results of an undisturbed run."""
    assert finish(folder, run.argv) != "dead end"
    assert_same_folder(run.folder, folder)


def check_fault_from(number: int, run: CompleteRun, tmp_path: Path, fault: Callable = fill_disk) -> None:
    """Cause a fault at this change and all later ones."""
    folder = tmp_path.resolve() / "run"
    assert command_in_child(folder, *run.argv, at=number, fault=fault) == 1
    message = FULL if fault is fill_disk else READ_ONLY
    output = output_file(folder).read_text()
    check_error(output, message, folder, count_errors(run))
    check_resume_advice(output, folder)
    assert fault is make_read_only or not [*folder.rglob("*.partial")]
    check_resume(run, folder)


@pytest.mark.parametrize("part", [pytest.param(".hydra", marks=SLOW), "metrics.csv", "summary"])
def test_full_disk_during_search(part, complete_run, tmp_path):
    run = complete_run("search")
    check_fault_from(run.first_change(part), run, tmp_path)


def test_disk_becomes_read_only_during_search(complete_run, tmp_path):
    run = complete_run("search")
    check_fault_from(run.first_change("checkpoints/last.ckpt"), run, tmp_path, make_read_only)


def test_disk_becomes_read_only_before_first_checkpoint(complete_run, tmp_path):
    """The record of a run without results would be removed, but the folder is read-only."""
    run = complete_run("search")
    check_fault_from(run.first_change("history.jsonl"), run, tmp_path, make_read_only)


@pytest.mark.parametrize("kind", ["study", pytest.param("sweep", marks=SLOW)])
def test_full_disk_in_the_middle(kind, complete_run, tmp_path):
    run = complete_run(kind)
    check_fault_from(len(run.changes) // 2, run, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fill_disk, make_read_only])
@pytest.mark.parametrize("kind", COMMANDS)
def test_fault_at_each_change(kind, fault, complete_run, tmp_path):
    run, failures = complete_run(kind), {}
    for number, name in enumerate(run.changes[:-1]):  # the last one removes the lock
        (tmp_path / str(number)).mkdir()
        try:
            check_fault_from(number, run, tmp_path / str(number), fault)
        except AssertionError as error:
            failures[f"{number} {name}"] = str(error).splitlines()[0]
        shutil.rmtree(tmp_path / str(number))
    assert not failures


def run_limited(size: int, argv: tuple[str, ...]) -> int:
    """Return the exit code of a command in a process with a limited file size."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    return run_script(*argv)


CASES = [
    ("search", 0.5),
    *(pytest.param(kind, share, marks=SLOW) for kind in COMMANDS for share in (0.02, 0.999)),
]


@pytest.mark.parametrize(("kind", "share"), CASES)
def test_limited_file_size(kind, share, complete_run, tmp_path):
    run, folder = complete_run(kind), tmp_path.resolve() / "run"
    longest = max(path.stat().st_size for path in files_of(run.folder))
    assert work_in_child(folder, partial(run_limited, int(share * longest), run.argv)) == 1
    output = output_file(folder).read_text()
    check_error(output, "File too large", folder, count_errors(run))
    check_resume_advice(output, folder)
    assert not [*folder.rglob("*.partial")]
    check_resume(run, folder)


@pytest.fixture
def mount(tmp_path) -> Iterator[Callable[[str], Path]]:
    """`mount("size=1m")`: mount, or remount, a file system in memory with these options."""
    place = tmp_path.resolve() / "disk"
    place.mkdir()

    def mount_with(options: str) -> Path:
        again = ("remount," if place.is_mount() else "") + options
        command = ["mount", "-t", "tmpfs", "-o", again, "tests", str(place)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("no mount here")
        if done.returncode:
            pytest.skip(f"may not mount: {done.stderr.strip()}")
        return place

    yield mount_with
    if place.is_mount():
        subprocess.run(["umount", str(place)], check=True)


def run_on_disk(place: Path, *argv: str) -> tuple[int, str]:
    """Return the exit code and output of a command in that folder; the output is stored elsewhere."""
    output = place.parent / "output.txt"

    def work() -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place)
            return run_script(*argv)

    return in_child(work, output), output.read_text()


@pytest.mark.parametrize(("kind", "share"), CASES)
def test_small_disk(kind, share, complete_run, mount):
    run = complete_run(kind)
    needed = sum(path.stat().st_size for path in files_of(run.folder))
    place = mount(f"size={int(share * needed)}")
    code, output = run_on_disk(place, *run.argv)
    assert code == 1
    check_error(output, FULL, place / "run", count_errors(run))
    check_resume_advice(output, place / "run")
    assert not [*place.rglob("*.partial")]
    mount(LARGE)
    check_resume(run, place / "run")


def test_read_only_disk(complete_run, mount):
    """Runs neither start nor resume, and existing files do not change."""
    run, place = complete_run("search"), mount(LARGE)
    shutil.copytree(run.folder, place / "run")
    (place / "run" / "summary.json").unlink()
    mount("ro")
    before = {path: path.read_bytes() for path in files_of(place)}
    code, output = run_on_disk(place, "search", "resume=run")
    assert code == 1
    check_error(output, READ_ONLY, place / "run")
    code, output = run_on_disk(place, *run.argv[:-1], "run=new")
    assert (code, output) == (1, "error: Cannot write: Read-only file system (in new)\n")
    assert {path: path.read_bytes() for path in files_of(place)} == before


@pytest.mark.parametrize("call", [1, pytest.param(2, marks=SLOW)])
def test_tensorboard_on_a_full_disk(call, complete_run, mount, monkeypatch):
    """Errors in TensorBoard's thread add no output to that of the run."""
    place, log, count = mount("size=2m"), TensorBoardLogger.log_metrics, 0

    def fill_and_log(self, *args, **named):
        nonlocal count
        count += 1
        if count == call:
            with suppress(OSError), open(place / "other", "wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        return log(self, *args, **named)

    argv = (*complete_run("search").argv, "logger=tensorboard")
    with monkeypatch.context() as patch:
        patch.setattr(TensorBoardLogger, "log_metrics", fill_and_log)
        code, output = run_on_disk(place, *argv)
    assert code == 1
    assert output.count("error: ") == output.count(f"{FULL} (in {place / 'run'}") == 1, output
    assert "Traceback" not in output
    check_resume_advice(output, place / "run")
    assert not [*place.rglob("*.partial")]
    (place / "other").unlink()
    assert run_on_disk(place, "search", "resume=run")[0] == 0


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_convert_table_on_a_small_disk(share, mount):
    """The size is rounded to memory pages; with enough space the command succeeds."""
    place = mount(LARGE)
    write_table(place.parent)
    argv = (str(place.parent / "table.csv"), str(place / "out" / "x.parquet"))
    convert(argv)
    needed = (place / "out" / "x.parquet").stat().st_size
    shutil.rmtree(place / "out")
    (place / "other").write_bytes(b"")
    short = (needed - 1) // 4096 * 4096  # a page less than it takes
    mount(f"size={max(4096, min(int(share * needed), short))}")
    if share == 0:
        (place / "other").write_bytes(bytes(4096))
    with pytest.raises(SystemExit) as end:
        convert(argv)
    assert str(end.value).startswith(("error: Cannot write", "error: Cannot read or write"))
    assert FULL in str(end.value)
    assert "x.parquet" in str(end.value)
    del end  # its frames keep the file open
    assert not [*(place / "out").glob("*")]
    mount(LARGE)
    convert(argv)
    assert (place / "out" / "x.parquet").stat().st_size == needed


@pytest.mark.parametrize("name", ["out.pt2", pytest.param("out.onnx", marks=SLOW)])
def test_export_with_limited_file_size(name, runs):
    before = {path: path.read_bytes() for path in files_of(runs)}
    output = runs.parent / "output.txt"

    def work() -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
        return run_entry_point("nas-export", "trained", name)

    assert in_child(work, output) == 1
    (line,) = output.read_text().splitlines()
    assert line.startswith("error: Cannot read or write: File too large")
    assert name in line
    assert {path: path.read_bytes() for path in files_of(runs)} == before


@pytest.fixture
def ext4(tmp_path) -> Iterator[Path]:
    """A file system that becomes read-only after an error."""
    image, place = tmp_path / "image", tmp_path.resolve() / "disk"
    place.mkdir()
    image.write_bytes(b"")
    os.truncate(image, 2**26)
    for command in (["mkfs.ext4", "-q", image], ["mount", "-o", "loop,errors=remount-ro", image, place]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"may not mount: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def damage_file_system(event: str, path: str) -> None:
    """Let the driver of the file system detect a disk error."""
    device = os.stat(path if os.path.exists(path) else os.path.dirname(path)).st_dev
    name = os.path.basename(os.readlink(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
    Path(f"/sys/fs/ext4/{name}/trigger_fs_error").write_text("an error")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["checkpoints/last.ckpt", "metrics.csv", "summary"])
def test_ext4_becomes_read_only(part, complete_run, ext4):
    run, folder = complete_run("search"), ext4 / "run"
    output = ext4.parent / "output.txt"

    def work() -> int:
        os.chdir(ext4)
        sys.addaudithook(FaultInjector(folder, run.first_change(part), damage_file_system))
        return run_script(*run.argv)

    assert in_child(work, output) == 1
    check_error(output.read_text(), READ_ONLY, folder)
    check_resume_advice(output.read_text(), folder)
    shutil.copytree(folder, ext4.parent / "mended" / "run")  # another disk: it can still be read
    check_resume(run, ext4.parent / "mended" / "run")
