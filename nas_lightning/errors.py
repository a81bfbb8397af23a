"""The one exception for what a user typed, wrote or pointed at; the entry scripts print it as one line."""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

_MOST, _LETTERS = 30, 450  # choices that one line names, and the letters that it has for them


class InputError(ValueError):
    """Something the user gave does not fit. The message says what was expected, what came, and where.

    Args:
        expected: a sentence that begins with "expected".
        got: what came; None: the message does not say.
        where: a file, a setting, an argument; None: the message does not say.

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
        super().__init__("".join(c if c.isprintable() else "�" for c in line))  # a terminal obeys others


class DivergenceError(InputError):
    """A loss or weight that is not finite: the run as it was started cannot go on."""


def _short(value: object, limit: int = 120) -> str:
    try:
        text = repr(value) if isinstance(value, str) else str(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of thousands of digits
        text = f"an enormous {type(value).__name__}"
    return _cut(text, limit)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def near_match(name: str, choices: Iterable[str]) -> str:
    """`, did you mean 'x'?`, or the whole list where nothing is near.

    >>> near_match("dart", ["darts", "gdas"])
    "did you mean 'darts'?"
    """
    choices = sorted(choices)
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if close:
        return f"did you mean {_short(close[0])}?"
    return choose_from(choices)


def choose_from(choices: Sequence[str]) -> str:
    """As many of the choices as a line has room for, the first ones.

    >>> choose_from(["adam", "sgd"]), choose_from([f"weights/{number:03}" for number in range(100)])[-20:]
    ('choose from adam, sgd', 'ts/029 and 70 others')
    """
    named = [_cut(choice, 100) for choice in choices[:_MOST]]
    room = sum(end <= _LETTERS for end in accumulate(len(name) + 2 for name in named))
    others = f" and {len(choices) - room} others" if len(choices) > room else ""
    return f"choose from {', '.join(named[:room])}{others}"


_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE}
"""What a disk, or one that is shared by machines, answers for reasons of its own."""
_DEAD = ("TerminatedWorkerError", "BrokenProcessPool")
"""What pools raise, by name: who asks has not imported them."""


def describe_system_error(error: BaseException | None, place: object = None) -> str | None:
    """What the system did to a run, in one line, whatever has been raised because of it; else None.

    That is a disk that refuses to be written, a file that is gone, a process that was killed, a connection
    that is not to be had: nothing of the run is wrong, and it can go on. `place` is named for a disk that
    does not say what it has refused, as none does once a file is open.

    >>> describe_system_error(OSError(errno.ENOSPC, "No space left on device", "run/metrics.csv"))
    'expected a place that can be written: No space left on device (in run/metrics.csv)'
    >>> describe_system_error(FileNotFoundError(errno.ENOENT, "No such file or directory", "images/0.png"))
    'expected a file or folder that can be used: No such file or directory (in images/0.png)'
    >>> describe_system_error(MemoryError())
    "expected as much memory as the run asks for: smaller sizes, batches or fewer workers, got 'too little'"
    """
    for reason in _reasons(error):
        if line := _describe(reason, place) or (_describe_file(reason) if reason is error else None):
            return line
    return None


def disk_error(error: BaseException) -> OSError | None:
    """What a disk has refused, whatever has been raised because of it, and be it a library's text; else None.

    >>> disk_error(RuntimeError("I/O error: File too large (os error 27)")).errno == errno.EFBIG
    True
    """
    for reason in _reasons(error):
        said = re.search(r"\(os error (\d+)\)", str(reason))  # as the libraries in Rust put it
        number = reason.errno if isinstance(reason, OSError) else int(said[1]) if said else None
        if number in _DISK:
            return OSError(number, os.strerror(number))
    return None


def _reasons(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it was raised because of."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _describe(error: BaseException, place: object) -> str | None:
    """What says so wherever it stands among the reasons of an error."""
    text = str(error)
    if isinstance(error, OSError) and error.errno in _DISK:
        where = error.filename or place
        return str(InputError(f"expected a place that can be written: {error.strerror}", where=where))
    if isinstance(error, RuntimeError) and "PytorchStreamWriter failed" in text:
        expected = "expected a place that a checkpoint can be written to: is the disk full?"
        return str(InputError(expected, where=place))
    if _is_memory(error):
        expected = "expected as much memory as the run asks for: smaller sizes, batches or fewer workers"
        return str(InputError(expected, got=" ".join(text.split()) or "too little"))
    if type(error).__name__ in _DEAD or (isinstance(error, RuntimeError) and text.startswith(_LOADER)):
        reason = text.split("\n")[0].split(". ")[0].rstrip(".")
        return str(InputError(f"expected worker processes that nobody ends (is memory short?): {reason}"))
    return None


def _is_memory(error: BaseException) -> bool:
    """Whether Python, NumPy or torch, on whatever device, has run out of it."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


_LOADER = "DataLoader worker (pid"


def _describe_file(error: BaseException) -> str | None:
    """An error of the system's that nobody has caught."""
    if not isinstance(error, OSError):
        return None
    if error.filename is not None:
        expected = f"expected a file or folder that can be used: {error.strerror}"
        return str(InputError(expected, where=error.filename))
    if text := original_message(error):
        return str(InputError(f"expected a file or folder that can be used: {text}"))
    if isinstance(error, (ConnectionError, TimeoutError)) or "Connection" in type(error).__name__:
        return str(InputError(f"expected a connection: {error}"[:400]))
    return None


def original_message(error: BaseException) -> str | None:
    r"""What was said by an error in a loader's process, which comes with its traceback as text; else None.

    >>> original_message(OSError("Caught OSError in DataLoader worker process 0.\n  line 3\nOSError: gone"))
    'gone'
    """
    text = str(error)
    if not text.startswith("Caught ") or "in DataLoader worker process" not in text:
        return None
    last = text.rstrip().rpartition("\n")[2]
    return last.rpartition("InputError: ")[2] if "InputError: " in last else last.partition(": ")[2]
