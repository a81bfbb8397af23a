"""The one exception for what a user typed, wrote or pointed at; the entry scripts print it as one line."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

_MOST = 30  # choices that one line names


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


def _short(value: object, limit: int = 120) -> str:
    try:
        text = repr(value) if isinstance(value, str) else str(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of thousands of digits
        text = f"an enormous {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def near_match(name: str, choices: Iterable[str]) -> str:
    """`, did you mean 'x'?`, or the whole list where nothing is near.

    >>> near_match("dart", ["darts", "gdas"])
    "did you mean 'darts'?"
    """
    choices = sorted(choices)
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    others = f" and {len(choices) - _MOST} others" if len(choices) > _MOST else ""
    return f"choose from {', '.join(choices[:_MOST])}{others}"


_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE}
"""What a disk, or one that is shared by machines, answers for reasons of its own."""


def describe_system_error(error: BaseException | None) -> str | None:
    """What the system refused to write, in one line, whatever has been raised because of it; else None.

    >>> describe_system_error(OSError(errno.ENOSPC, "No space left on device", "run/metrics.csv"))
    'expected a place that can be written: No space left on device (in run/metrics.csv)'
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno in _DISK:
            where = error.filename
            return str(InputError(f"expected a place that can be written: {error.strerror}", where=where))
        if isinstance(error, RuntimeError) and "PytorchStreamWriter failed" in str(error):
            return str(InputError("expected a place that a checkpoint can be written to: is the disk full?"))
        error = error.__cause__ or error.__context__
    return None
