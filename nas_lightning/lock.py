"""A lock on a folder that a process writes to: seen through when that process is dead."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from glob import escape
from pathlib import Path

from nas_lightning.errors import InputError
from nas_lightning.files import PARTIAL

try:
    import fcntl
except ImportError:  # a system without them
    fcntl = None  # type: ignore[assignment]

FILE_NAME = ".lock"


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Keep others out of `folder`; raises an `InputError` where one is in it.

    The system gives the lock back when its holder ends, however it ends. File systems without locks, such as
    some that are shared by machines, are said: there nobody is kept out.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, hold(Path(folder)):
    ...     with hold(Path(folder)):
    ...         pass
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: expected a place that process ... has ceased to write (in ...)
    """
    with _hold(folder / FILE_NAME):
        yield


@contextmanager
def hold_file(path: Path) -> Iterator[None]:
    """Keep others from writing the file of that name, and take away what a killed one has not completed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _hold(path.with_name(f".{path.name}{FILE_NAME}")):
        for partial in path.parent.glob(f"{escape(path.name)}.*{PARTIAL}"):
            partial.rmdir() if partial.is_dir() else partial.unlink()
        yield


@contextmanager
def turn(folder: Path, seconds: float = 60.0) -> Iterator[None]:
    """Wait until nobody else is in a folder that several share for moments, and keep them out."""
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(hold(folder))
                break
            except InputError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        yield


@contextmanager
def _hold(file: Path) -> Iterator[None]:
    with _open_locked(file) as descriptor:
        if descriptor is not None:
            _sign(descriptor, file)
        yield


def _sign(descriptor: int, file: Path) -> None:
    """Write who holds the lock."""
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
    except OSError as error:  # such as of a full disk, which does not say of what file
        raise OSError(error.errno, error.strerror, str(_place(file))) from None


@contextmanager
def _open_locked(file: Path) -> Iterator[int | None]:
    """The descriptor of the lock's file, which goes with the lock; None where there are no locks."""
    if fcntl is None:
        print(f"note: this system has no locks; let only one process write to {file.parent}", flush=True)
        yield None
        return
    descriptor = _take(file)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):  # the folder has been withdrawn, or cannot be written any more
                file.unlink()
            os.close(descriptor)


def _take(file: Path) -> int | None:
    while True:
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise InputError(f"expected a folder that can be locked: {error.strerror}", where=file) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 200).decode(errors="replace")
            os.close(descriptor)
            raise InputError(
                f"expected a place that {holder} has ceased to write", where=_place(file)
            ) from None
        except OSError as error:
            os.close(descriptor)
            print(f"note: no lock in {file.parent} ({error.strerror}); let only one process write there")
            return None
        if _is_still(file, descriptor):  # or its last holder has taken it away meanwhile
            return descriptor
        os.close(descriptor)


def _place(lock: Path) -> Path:
    """What a lock's file keeps others from."""
    name = lock.name.removesuffix(FILE_NAME).removeprefix(".")
    return lock.with_name(name) if name else lock.parent


def _is_still(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(file), os.fstat(descriptor))
    except FileNotFoundError:
        return False
