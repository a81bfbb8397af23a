"""Read and write files atomically, and lock the folder that a process writes to."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock, Timeout

from nas_lightning.errors import InputError, disk_error

# Atomic writes, and JSON.

PARTIAL = ".partial"
"""Suffix of incomplete files, which the holder of a folder's lock may remove."""
MOST_BYTES = 2**30
"""Limit for files that are read as a whole."""

_log = logging.getLogger(__name__)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Write to a temporary path that replaces `path` at the end; after an error the old file stays.

    The temporary name is random, so that nobody can have put a link there.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "new" / "numbers.txt") as partial:
    ...         _ = partial.write_text("1 2 3")
    ...     [file.name for file in (Path(folder) / "new").iterdir()]
    ['numbers.txt']
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        yield partial
        synchronize(partial)
        os.replace(partial, path)
        synchronize(path.parent)
    except BaseException as error:  # Ctrl-C, too
        with suppress(OSError):  # the disk's own error says more
            _remove(partial)
        if refusal := disk_error(error):  # it rarely names the file
            raise OSError(refusal.errno, refusal.strerror, str(path)) from error
        raise


def _remove(partial: Path) -> None:
    """Remove an incomplete file, which would keep a full disk full."""
    shutil.rmtree(partial) if partial.is_dir() else partial.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Raise an `OSError` unless a file or folder can be created at the path."""
    if "\0" in str(path):
        raise ValueError("a null character in its name")
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if path.exists() and not path.is_dir():
        there = path.absolute().parent
    with TemporaryDirectory(dir=there, prefix=f"{path.name}.", suffix=PARTIAL):
        pass


def synchronize(path: Path) -> None:
    """Flush a file or folder to disk, if its file system can."""
    if os.name == "nt" and path.is_dir():  # cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise
    finally:
        os.close(descriptor)


def write_whole(path: Path, text: str) -> Path:
    """Write a text atomically; bytes that are not UTF-8 are escaped."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


def json_text(content: Any, indent: int | None = None) -> str:
    """Return the JSON of plain values; numbers that are not finite become null, with a warning.

    >>> json_text({"loss": float("nan"), "errors": (0.5, float("inf"))})
    '{"loss": null, "errors": [0.5, null]}'
    """
    lost: list[str] = []
    plain = _without_infinities(content, "", lost)
    if lost:
        _log.warning("not finite, and null in the file: %s", ", ".join(lost[:5]) + ", …" * (len(lost) > 5))
    return json.dumps(plain, indent=indent, ensure_ascii=False, allow_nan=False)


def _without_infinities(value: Any, where: str, lost: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_infinities(v, f"{where}.{key}".lstrip("."), lost) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_infinities(entry, where, lost) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        lost.append(f"{where} {value}".lstrip())
        return None
    return value


def read_records(path: Path) -> dict[str, Any]:
    """Return the records in a JSON file by name, empty if there is no file."""
    if not path.is_file():
        return {}
    try:
        records = parse_json(read_text(path), where=path)
    except UnicodeDecodeError:
        raise InputError("The file must be JSON in UTF-8", where=path) from None
    if not isinstance(records, dict):
        raise InputError("Each line must be a mapping", got=records, where=path)
    return records


def parse_json(text: str, expected: str = "The text must be JSON", where: object = None) -> Any:
    """Parse JSON; raise an `InputError` for any mistake."""
    try:
        return json.loads(text)
    except RecursionError:
        raise InputError(f"{expected}: nested too deeply", where=where) from None
    except ValueError as error:  # bad JSON, or a number of thousands of digits
        raise InputError(f"{expected}: {error}", where=where) from None


def check_contents(folder: str | Path) -> None:
    """Raise for links that lead out of the folder, and for pipes and devices in it."""
    inside = Path(folder).resolve()
    for place, names, files in os.walk(inside):
        for path in (Path(place, name) for name in (*names, *files)):
            if path.is_symlink() and not _leads_into(path, inside):
                raise InputError("The folder must not have links to elsewhere", got=str(path))
        for path in (Path(place, name) for name in files):
            if _is_special(path):
                raise InputError("The folder must not have pipes or devices", got=str(path))


def _leads_into(link: Path, folder: Path) -> bool:
    try:
        return link.resolve().is_relative_to(folder)
    except (OSError, RuntimeError):  # a loop
        return False


def _is_special(path: Path) -> bool:
    """Return whether the path is neither a file nor a folder, such as a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()


def check_file(path: Path) -> None:
    """Raise for pipes, devices, and files of gigabytes."""
    if _is_special(path):
        raise InputError("The path must be a file, not a pipe or device", where=path)
    if path.is_file() and (size := path.stat().st_size) > MOST_BYTES:
        raise InputError(f"The file must have at most {MOST_BYTES:,} bytes", got=f"{size:,}", where=path)


def read_text(path: Path, errors: str = "strict") -> str:
    """Read a file in UTF-8; raise for pipes, devices, and huge files.

    >>> read_text(Path("/dev/zero"))
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: The path must be a file, not a pipe or device (in /dev/zero)
    """
    check_file(path)
    return path.read_text(encoding="utf-8", errors=errors)


# Locks of folders and files, released by the system when their holder ends, however it ends.

FILE_NAME = ".lock"


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Lock `folder` for this process.

    Raises:
        InputError: If another process has locked it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, hold(Path(folder)):
    ...     with hold(Path(folder)):
    ...         pass
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: another process is writing here, wait until it has ended (in ...)
    """
    with _hold(folder / FILE_NAME, folder):
        yield


@contextmanager
def hold_file(path: Path) -> Iterator[None]:
    """Lock the file `path` for this process, and remove what a killed process left incomplete.

    Raises:
        InputError: If another process has locked it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _hold(path.with_name(f".{path.name}{FILE_NAME}"), path):
        for partial in path.parent.glob(f"{escape(path.name)}.*{PARTIAL}"):
            _remove(partial)
        yield


@contextmanager
def turn(folder: Path, seconds: float = 60.0) -> Iterator[None]:
    """Lock a folder that several processes share for moments; wait up to `seconds` for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with _hold(folder / FILE_NAME, folder, seconds):
        yield


@contextmanager
def _hold(file: Path, place: Path, seconds: float = 0.0) -> Iterator[None]:
    lock = FileLock(file, timeout=seconds)
    try:
        lock.acquire()
    except Timeout:
        raise InputError("another process is writing here, wait until it has ended", where=place) from None
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOTSUP):  # some file systems that machines share
            _log.warning("%s cannot be locked (%s): let only one process write there", place, error.strerror)
        elif error.errno == errno.ELOOP:
            raise InputError("The lock file must not be a link", where=file) from None
        else:
            raise
    try:
        yield
    finally:
        with suppress(OSError):  # the folder is gone; or Windows, where filelock removes it
            file.unlink()
        lock.release()
