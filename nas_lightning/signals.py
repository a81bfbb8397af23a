"""Handle SIGTERM, which `kill`, containers, and preemption send, like Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 128 + signal.SIGTERM


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Raise `SystemExit` on SIGTERM, unless there is another handler, such as that of a training."""
    usual = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    process = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # a forked process exits silently
            os._exit(EXIT_CODE)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
        raise SystemExit(EXIT_CODE)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
