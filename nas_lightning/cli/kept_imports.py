"""Imports whose objects the garbage collector leaves alone."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_imports() -> Iterator[None]:
    """Look for no garbage within, nor afterwards among what was imported, where torch is imported within.

    Modules stay as long as the process. Python looks through their half a million objects again and again
    while they are made, a fifth of the time to a first step, and later for as long as a job runs.
    """
    if "torch" in sys.modules or not gc.isenabled():  # a later job of a sweep: what there is need not stay
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # libraries count at the end what nobody has taken away
