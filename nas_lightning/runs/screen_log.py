"""The log file of a run: a copy of the screen, and errors with their traceback."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import IO, Any

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""Escape sequences of colors and progress bars."""


class ScreenLog:
    r"""Appends what is printed within the context to a file, line by line.

    Of a progress bar only the last state is logged. When the file cannot be written any more, logging stops
    silently. Links are not followed.

    Args:
        file: the log; None: no log, as in further processes of a run.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with ScreenLog(Path(folder) / "search.log") as log:
    ...         print("epoch 1")
    ...     (Path(folder) / "search.log").read_text()
    epoch 1
    'epoch 1\n'
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self._log: IO[str] | None = None
        self._begin = 0
        self._screens: tuple[Any, Any] = (None, None)

    def __enter__(self) -> ScreenLog:
        if self.file is not None:
            self._log = open(
                self.file, "a", encoding="utf-8", errors="backslashreplace", buffering=1, opener=_open
            )
            self._begin = os.fstat(self._log.fileno()).st_size
            self._screens = sys.stdout, sys.stderr
            sys.stdout, sys.stderr = (_Both(screen, self) for screen in self._screens)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.file is not None:
            sys.stdout, sys.stderr = self._screens
        try:
            if error is not None and not (isinstance(error, SystemExit) and not error.code):
                self.write_error(error)
        finally:
            self._close()

    def write(self, line: str) -> None:
        """Append a line, if there is a log."""
        try:
            if self._log is not None:
                self._log.write(line)
        except OSError:  # such as a full disk, which is reported elsewhere
            self._close()

    def write_error(self, error: BaseException) -> None:
        """Append an error with its traceback."""
        self.write("".join(traceback.format_exception(error)))

    def forget(self) -> None:
        """Remove what was appended and stop logging."""
        if self._log is not None:
            self._log.truncate(self._begin)
        self._close()

    def _close(self) -> None:
        log, self._log = self._log, None
        with contextlib.suppress(OSError):
            if log is not None:
                log.close()


class _Both:
    """A stream that also logs finished lines."""

    def __init__(self, screen: Any, log: ScreenLog) -> None:
        self._screen, self._log, self._line = screen, log, ""

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            drawn = [part for part in _ESCAPES.sub("", line).split("\r") if part.strip()]
            self._log.write((drawn[-1] if drawn else "") + "\n")
        self._line = self._line.rpartition("\r")[2] or self._line[-1:]
        count: int = self._screen.write(text)
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._screen, name)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o644)  # not on Windows
