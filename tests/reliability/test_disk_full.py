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
from tests.cli.conftest import run_script
from tests.reliability.bad_runs import run_entry
from tests.reliability.commands import COMMANDS, assert_same_folder, files_of, finish
from tests.reliability.faults import (
    ChangesOf,
    command_in_child,
    fill_disk,
    in_child,
    make_read_only,
    said_by,
    work_in_child,
)
from tests.reliability.test_kill_everywhere import Whole, whole
from tests.studies.conftest import write_table

__all__ = ["whole"]  # the fixture

FULL, READ_ONLY = "No space left on device", "Read-only file system"
MORE = "size=256m"


def check_line(said: str, message: str, folder: Path, jobs: int = 1) -> None:
    """Check for one line, or one per job of a sweep, with the system's message and the path."""
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert 1 <= len(errors) <= jobs, said
    assert all(message in error for error in errors), said
    places = (f"{folder.name}/", f"got '{folder.name}'")  # in there, or the folder itself
    assert all(any(place in error for place in places) for error in errors), said
    assert "Traceback" not in said


def jobs_of(whole: Whole) -> int:
    return 3 if "-m" in whole.words else 1  # two, and the sweep itself


def check_advice(said: str, folder: Path) -> None:
    """The command to resume is printed if there is something to resume."""
    begun = (folder / ".hydra").exists() or (folder / "multirun.yaml").exists()
    assert (f"resume={folder.name}" in said) == begun, said


def check_goes_on(whole: Whole, folder: Path) -> None:
    """One command finishes the run with the results of an undisturbed run."""
    assert finish(folder, whole.words) != "dead end"
    assert_same_folder(whole.folder, folder)


def met_from(number: int, whole: Whole, tmp_path: Path, fault: Callable = fill_disk) -> None:
    """Cause a fault at this change and all later ones."""
    folder = tmp_path.resolve() / "run"
    assert command_in_child(folder, *whole.words, at=number, fault=fault) == 1
    message = FULL if fault is fill_disk else READ_ONLY
    said = said_by(folder).read_text()
    check_line(said, message, folder, jobs_of(whole))
    check_advice(said, folder)
    assert fault is make_read_only or not [*folder.rglob("*.partial")]
    check_goes_on(whole, folder)


def first(part: str, whole: Whole) -> int:
    return min(place for place, name in enumerate(whole.changes) if part in name)


@pytest.mark.parametrize("part", [".hydra", "metrics.csv", "summary"])
def test_some_of_a_search(part, whole, tmp_path):
    run = whole("search")
    met_from(first(part, run), run, tmp_path)


def test_a_search_whose_file_system_goes_read_only(whole, tmp_path):
    run = whole("search")
    met_from(first("checkpoints/last.ckpt", run), run, tmp_path, make_read_only)


def test_a_search_that_cannot_take_its_record_back(whole, tmp_path):
    """The record of a run without results would be removed, but the folder is read-only."""
    run = whole("search")
    met_from(first("history.jsonl", run), run, tmp_path, make_read_only)


@pytest.mark.parametrize("kind", ["study", "sweep"])
def test_in_the_middle_of_others(kind, whole, tmp_path):
    run = whole(kind)
    met_from(len(run.changes) // 2, run, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fill_disk, make_read_only])
@pytest.mark.parametrize("kind", COMMANDS)
def test_from_each_of_them(kind, fault, whole, tmp_path):
    run, failures = whole(kind), {}
    for number, name in enumerate(run.changes[:-1]):  # the last one takes the lock away
        (tmp_path / str(number)).mkdir()
        try:
            met_from(number, run, tmp_path / str(number), fault)
        except AssertionError as error:
            failures[f"{number} {name}"] = str(error).splitlines()[0]
        shutil.rmtree(tmp_path / str(number))
    assert not failures


def run_limited(size: int, words: tuple[str, ...]) -> int:
    """Return the exit code of a command in a process with a limited file size."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    return run_script(*words)


SLOW = pytest.mark.slow
SOME = [
    ("search", 0.5),
    *(pytest.param(kind, share, marks=SLOW) for kind in COMMANDS for share in (0.02, 0.999)),
]


@pytest.mark.parametrize(("kind", "share"), SOME)
def test_files_that_may_not_be_so_long(kind, share, whole, tmp_path):
    run, folder = whole(kind), tmp_path.resolve() / "run"
    longest = max(path.stat().st_size for path in files_of(run.folder))
    assert work_in_child(folder, partial(run_limited, int(share * longest), run.words)) == 1
    said = said_by(folder).read_text()
    check_line(said, "File too large", folder, jobs_of(run))
    check_advice(said, folder)
    assert not [*folder.rglob("*.partial")]
    check_goes_on(run, folder)


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


def command_on(place: Path, *words: str) -> tuple[int, str]:
    """Return the exit code and output of a command in that folder; the output is stored elsewhere."""
    said = place.parent / "said.txt"

    def work() -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place)
            return run_script(*words)

    return in_child(work, said), said.read_text()


@pytest.mark.parametrize(("kind", "share"), SOME)
def test_a_file_system_that_is_small(kind, share, whole, mount):
    run = whole(kind)
    needed = sum(path.stat().st_size for path in files_of(run.folder))
    place = mount(f"size={int(share * needed)}")
    code, said = command_on(place, *run.words)
    assert code == 1
    check_line(said, FULL, place / "run", jobs_of(run))
    check_advice(said, place / "run")
    assert not [*place.rglob("*.partial")]
    mount(MORE)
    check_goes_on(run, place / "run")


def test_a_file_system_that_is_read_only(whole, mount):
    """Runs neither start nor resume, and existing files do not change."""
    run, place = whole("search"), mount(MORE)
    shutil.copytree(run.folder, place / "run")
    (place / "run" / "summary.json").unlink()
    mount("ro")
    before = {path: path.read_bytes() for path in files_of(place)}
    code, said = command_on(place, "search", "resume=run")
    assert code == 1
    check_line(said, READ_ONLY, place / "run")
    code, said = command_on(place, *run.words[:-1], "run=new")
    assert (code, said) == (1, "error: Cannot write: Read-only file system (in new)\n")
    assert {path: path.read_bytes() for path in files_of(place)} == before


@pytest.mark.parametrize("call", [1, pytest.param(2, marks=SLOW)])
def test_events_of_tensorboard_on_a_disk_that_is_full(call, whole, mount, monkeypatch):
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

    words = (*whole("search").words, "logger=tensorboard")
    with monkeypatch.context() as patch:
        patch.setattr(TensorBoardLogger, "log_metrics", fill_and_log)
        code, said = command_on(place, *words)
    assert code == 1
    assert said.count("error: ") == said.count(f"{FULL} (in {place / 'run'}") == 1, said
    assert "Traceback" not in said
    check_advice(said, place / "run")
    assert not [*place.rglob("*.partial")]
    (place / "other").unlink()
    assert command_on(place, "search", "resume=run")[0] == 0


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_table_converted_on_a_disk_that_is_small(share, mount):
    """The size is rounded to memory pages; with enough space the command succeeds."""
    place = mount(MORE)
    write_table(place.parent)
    words = (str(place.parent / "table.csv"), str(place / "out" / "x.parquet"))
    convert(words)
    needed = (place / "out" / "x.parquet").stat().st_size
    shutil.rmtree(place / "out")
    (place / "other").write_bytes(b"")
    short = (needed - 1) // 4096 * 4096  # a page less than it takes
    mount(f"size={max(4096, min(int(share * needed), short))}")
    if share == 0:
        (place / "other").write_bytes(bytes(4096))
    with pytest.raises(SystemExit) as end:
        convert(words)
    assert str(end.value).startswith(("error: Cannot write", "error: Cannot read or write"))
    assert FULL in str(end.value)
    assert "x.parquet" in str(end.value)
    del end  # its frames keep the file open
    assert not [*(place / "out").glob("*")]
    mount(MORE)
    convert(words)
    assert (place / "out" / "x.parquet").stat().st_size == needed


@pytest.mark.parametrize("name", ["out.pt2", "out.onnx"])
def test_an_export_that_may_not_be_so_long(name, runs):
    before = {path: path.read_bytes() for path in files_of(runs)}
    said = runs.parent / "said.txt"

    def work() -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
        return run_entry("nas-export", "trained", name)

    assert in_child(work, said) == 1
    (line,) = said.read_text().splitlines()
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
def test_a_file_system_that_goes_read_only_in_the_middle(part, whole, ext4):
    run, folder = whole("search"), ext4 / "run"
    said = ext4.parent / "said.txt"

    def work() -> int:
        os.chdir(ext4)
        sys.addaudithook(ChangesOf(folder, first(part, run), damage_file_system))
        return run_script(*run.words)

    assert in_child(work, said) == 1
    check_line(said.read_text(), READ_ONLY, folder)
    check_advice(said.read_text(), folder)
    shutil.copytree(folder, ext4.parent / "mended" / "run")  # another disk: it can still be read
    check_goes_on(run, ext4.parent / "mended" / "run")
