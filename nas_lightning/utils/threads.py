"""The number of OpenMP threads of the commands. Standard library only, and used before torch is imported."""

from __future__ import annotations

import os


def set_thread_defaults() -> None:
    """Use one OpenMP thread, unless the user has set `OMP_NUM_THREADS`.

    Threads that wait for the next parallel section poll. If other processes need the cores, each section
    waits for threads that do not run: next to busy processes, a step of a search takes up to 37 times as long
    with two threads as with one. Threads that sleep instead (`OMP_WAIT_POLICY=PASSIVE`) take up to 2.3 times
    as long. On an idle machine with two cores, two threads gain a factor of 1.2 for images of 32×32, and
    nothing for 8×8; `benchmarks/threads.csv` has the measurements. One thread also makes results independent
    of the number of cores. For large images on an idle machine without a GPU, set `OMP_NUM_THREADS` to the
    number of cores.

    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, clear=True):
    ...     set_thread_defaults()
    ...     os.environ["OMP_NUM_THREADS"]
    '1'
    >>> with patch.dict(os.environ, {"OMP_NUM_THREADS": "4"}):
    ...     set_thread_defaults()
    ...     os.environ["OMP_NUM_THREADS"]
    '4'
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
