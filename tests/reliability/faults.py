"""Run a command in a child process that is killed, or gets an error, at its n-th change of a folder."""

import errno
import os
import re
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.cli.conftest import run_script

PARTIAL = re.compile(r"\.[0-9a-f]{8}\.partial")  # the names of files that are not complete
CHANGES = {
    **{"os.rename": (0, 2), "os.remove": (0, 1), "os.mkdir": (0, 2), "os.rmdir": (0, 1)},
    **{"os.symlink": (1, 2), "os.link": (1, 3), "os.truncate": (0, None)},
}
"""Index of the argument with the path, and of its directory's file descriptor; -1: current folder."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class FaultInjector:
    """Counts the file operations below a folder and calls `fault` before operation number `at`.

    An audit hook sees the files that Python opens, creates, renames, and removes. It does not see what
    libraries write to open files, but these files are renamed to their final names afterwards.
    """

    def __init__(self, folder: Path, at: int | None, fault: Callable[[str, str], None]) -> None:
        self.folder, self.at, self.fault, self.count = str(folder), at, fault, 0
        self.names: list[str] = []
        self.busy = False

    def __call__(self, event: str, args: tuple) -> None:
        if self.busy or not self._is_change(event, args):
            return
        self.busy = True
        try:
            path = _path_of(event, args)
            if path == self.folder or path.startswith(self.folder + os.sep):
                name = PARTIAL.sub(".partial", os.path.relpath(path, self.folder))
                self.names.append(f"{event} {name}")
                number, self.count = self.count, self.count + 1
                if self.at is not None and number >= self.at:
                    self.fault(event, path)
        finally:
            self.busy = False

    def _is_change(self, event: str, args: tuple) -> bool:
        if not args or not isinstance(args[0], (str, bytes, os.PathLike)):
            return False
        return event in CHANGES or (event == "open" and bool((args[2] or 0) & WRITING))


def _path_of(event: str, args: tuple) -> str:
    """Return the absolute path, also of files that are removed relative to an open folder."""
    path, directory = CHANGES.get(event, (0, None))
    is_current = directory is None or args[directory] == -1
    folder = os.getcwd() if is_current else os.readlink(f"/proc/self/fd/{args[directory]}")
    return os.path.normpath(os.path.join(folder, os.fsdecode(args[path])))


def in_child(work: Callable[[], int], output: Path | None = None) -> int:
    """Return the exit code of `work` in a fork, or minus its signal; the output goes to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            file = os.open(output or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, 1)
            os.dup2(file, 2)
            sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
            code = work()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # never back into the tests
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def kill(event: str, path: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fill_disk(event: str, path: str) -> None:
    """A full disk: files can be removed, but not created."""
    if event in ("os.remove", "os.rmdir") or (event == "os.mkdir" and os.path.exists(path)):
        return
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def make_read_only(event: str, path: str) -> None:
    """A read-only disk: nothing can be changed."""
    if event != "os.mkdir" or not os.path.exists(path):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


def command_in_child(
    folder: Path, *argv: str, at: int | None = None, fault: Callable[[str, str], None] = kill
) -> int:
    """Return the exit code of `<argv[0]>.py <argv[1:]>`, with a fault at a change of `folder`."""
    return work_in_child(folder, partial(run_script, *argv), at=at, fault=fault)


def work_in_child(
    folder: Path, work: Callable[[], int], at: int | None = None, fault: Callable[[str, str], None] = kill
) -> int:
    """Return the exit code of a call, with a fault at a change of `folder`."""

    def begin() -> int:
        os.chdir(folder.parent)
        sys.addaudithook(FaultInjector(folder, at, fault))
        return work()

    return in_child(begin, output_file(folder))


def output_file(folder: Path) -> Path:
    """Return the file with the output of the last command in a child process."""
    return folder.parent / "output.txt"


def record_changes(folder: Path, work: Callable[[], int]) -> list[str]:
    """Return the changes that a call makes in a folder, in order."""
    injector = FaultInjector(folder, None, kill)
    sys.addaudithook(injector)
    try:
        assert work() == 0
    finally:
        injector.busy = True  # an audit hook cannot be removed
    return injector.names
