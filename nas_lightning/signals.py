"""SIGTERM, sent by `kill`, by containers and on preemption: an end that says how to go on, as Ctrl-C is."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TOLD_TO_END = 128 + signal.SIGTERM


@contextmanager
def ends_when_told() -> Iterator[None]:
    """Raise `SystemExit` on SIGTERM, where nobody has another way; a training's is its checkpoint."""
    usual = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    process = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # a fork, which has nothing to say
            os._exit(TOLD_TO_END)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending
        raise SystemExit(TOLD_TO_END)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
