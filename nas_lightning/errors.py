"""`InputError`, the exception for invalid input, which the commands print as one line."""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

_MOST, _LETTERS = 30, 450  # maximum number of choices in a message, and of their characters


class InputError(ValueError):
    """Invalid input. The message says what must hold, what was given, and where.

    Args:
        expected: what must hold, and how to fix it.
        got: the given value, if the message should contain it.
        where: the file, setting, or argument, if the message should contain it.

    >>> raise InputError("expected an operation", got="sep_conv_4x4", where="conf/genotype/mine.yaml")
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: expected an operation, got 'sep_conv_4x4' (in conf/genotype/mine.yaml)
    """

    def __init__(self, expected: str, *, got: object = None, where: object = None) -> None:
        message = expected
        if got is not None:
            message += f", got {_short(got)}"
        if where is not None:
            message += f" (in {where})"
        line = " ".join(message.split())
        super().__init__("".join(c if c.isprintable() else "�" for c in line))  # no terminal escapes


class DivergenceError(InputError):
    """A loss or weight is not finite, so the run cannot continue."""


def _short(value: object, limit: int = 120) -> str:
    try:
        text = repr(value) if isinstance(value, str) else str(value)
    except (RecursionError, ValueError):  # nested too deeply, or an integer with thousands of digits
        text = f"an enormous {type(value).__name__}"
    return _cut(text, limit)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def near_match(name: str, choices: Iterable[str]) -> str:
    """Return `did you mean 'x'?`, or the list of choices if none is similar.

    >>> near_match("dart", ["darts", "gdas"])
    "did you mean 'darts'?"
    """
    choices = sorted(choices)
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if close:
        return f"did you mean {_short(close[0])}?"
    return choose_from(choices)


def choose_from(choices: Sequence[str]) -> str:
    """Return the first choices, as many as fit into a line.

    >>> choose_from(["adam", "sgd"]), choose_from([f"weights_{number:03}" for number in range(100)])[-20:]
    ('choose from adam, sgd', 'ts_029 and 70 others')
    """
    named = [_cut(choice, 100) for choice in choices[:_MOST]]
    room = sum(end <= _LETTERS for end in accumulate(len(name) + 2 for name in named))
    others = f" and {len(choices) - room} others" if len(choices) > room else ""
    return f"choose from {', '.join(named[:room])}{others}"


_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE}
"""Error numbers of local and network disks."""
_DEAD = ("TerminatedWorkerError", "BrokenProcessPool")
"""Names of errors of process pools, compared by name since their modules may not be imported."""


def describe_system_error(error: BaseException | None, place: object = None) -> str | None:
    """Describe an error of the system in one line; return None for other errors.

    Such errors are a full disk, a missing file, lack of memory, a killed process, or a lost connection. The
    run can be resumed once they are fixed.

    Args:
        error: the error, which may have been raised because of a system error.
        place: a path to name if the system error has none, as after a failed write to an open file.

    >>> describe_system_error(OSError(errno.ENOSPC, "No space left on device", "run/metrics.csv"))
    'Cannot write: No space left on device (in run/metrics.csv)'
    >>> describe_system_error(FileNotFoundError(errno.ENOENT, "No such file or directory", "images/0.png"))
    'Cannot open a file or folder: No such file or directory (in images/0.png)'
    >>> describe_system_error(MemoryError())
    'Not enough memory. Use smaller networks, smaller batches, or fewer workers.'
    """
    for reason in _reasons(error):
        if line := _describe(reason, place) or (_describe_file(reason) if reason is error else None):
            return line
    return None


def disk_error(error: BaseException) -> OSError | None:
    """Return the disk error behind an error, None if there is none.

    >>> disk_error(RuntimeError("I/O error: File too large (os error 27)")).errno == errno.EFBIG
    True
    """
    for reason in _reasons(error):
        said = re.search(r"\(os error (\d+)\)", str(reason))  # as libraries in Rust format it
        number = reason.errno if isinstance(reason, OSError) else int(said[1]) if said else None
        if number in _DISK:
            return OSError(number, os.strerror(number))
    return None


def _reasons(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _describe(error: BaseException, place: object) -> str | None:
    """Describe an error of a disk, memory, or worker process; any cause of an error can be one."""
    text = str(error)
    if isinstance(error, OSError) and error.errno in _DISK:
        where = error.filename or place
        return str(InputError(f"Cannot write: {error.strerror}", where=where))
    if isinstance(error, RuntimeError) and "PytorchStreamWriter failed" in text:
        return str(InputError("Cannot write a checkpoint: is the disk full?", where=place))
    if _is_memory(error):
        reason = f" ({text[:300]})" if text else ""
        advice = "Use smaller networks, smaller batches, or fewer workers."
        return str(InputError(f"Not enough memory{reason}. {advice}"))
    if type(error).__name__ in _DEAD or (isinstance(error, RuntimeError) and text.startswith(_LOADER)):
        reason = text.split("\n")[0].split(". ")[0].rstrip(".")
        return str(InputError(f"A worker process was killed (is memory short?): {reason}"))
    return None


def _is_memory(error: BaseException) -> bool:
    """Return whether Python, NumPy, or torch has run out of memory, on any device."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


_LOADER = "DataLoader worker (pid"


def _describe_file(error: BaseException) -> str | None:
    """Describe an uncaught error of a file or connection."""
    if not isinstance(error, OSError):
        return None
    if error.filename is not None:
        return str(InputError(f"Cannot open a file or folder: {error.strerror}", where=error.filename))
    if text := original_message(error):
        return str(InputError(f"Cannot open a file or folder: {text}"))
    if isinstance(error, (ConnectionError, TimeoutError)) or "Connection" in type(error).__name__:
        return str(InputError(f"The connection failed: {error}"[:400]))
    return None


def original_message(error: BaseException) -> str | None:
    r"""Return the message of an error in a DataLoader worker, None for other errors.

    PyTorch raises such an error again with the traceback as its message.

    >>> original_message(OSError("Caught OSError in DataLoader worker process 0.\n  line 3\nOSError: gone"))
    'gone'
    """
    text = str(error)
    if not text.startswith("Caught ") or "in DataLoader worker process" not in text:
        return None
    last = text.rstrip().rpartition("\n")[2]
    return last.rpartition("InputError: ")[2] if "InputError: " in last else last.partition(": ")[2]
