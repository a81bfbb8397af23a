"""A sweep's jobs that have failed or died: rows with reasons, and run again if asked (`sweep.retries=1`).

A launcher may end where one of its processes does: what the others have come to is in their folders.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

from omegaconf import DictConfig

from nas_lightning.errors import InputError
from nas_lightning.report.comparison import SweepTable
from nas_lightning.report.record import job_folders
from nas_lightning.runs.record import has_record
from nas_lightning.utils.files import turn


def run_attempts(config: DictConfig, launch: Callable[[], None]) -> None:
    """Launch a sweep, and again where something has failed, as often as is asked; the rest is read then."""
    retries = (config.get("sweep") or {}).get("retries", 0)
    folder = Path(config.hydra.sweep.dir)
    for left in reversed(range(retries + 1)):
        try:
            _launch(config, folder, launch)
            return
        except SystemExit as end:
            if end.code != 1 or not left:
                raise
        print(f"\nWhat has failed runs again, {retries - left + 1} of {retries}", flush=True)
        for job in job_folders(folder):
            with turn(job, math.inf):  # a process that others have left alone may still be at work
                pass


def _launch(config: DictConfig, folder: Path, launch: Callable[[], None]) -> None:
    """Launch; where the launcher ends before its jobs do, the table comes all the same."""
    try:
        launch()
    except (InputError, SystemExit) as end:
        message = f"error: {end}" if isinstance(end, InputError) else end.code
        begun = any(map(has_record, job_folders(folder))) if folder.is_dir() else False
        if not begun or not isinstance(message, str):  # before there was a job, or with the table
            raise
        print(message, file=sys.stderr)
        SweepTable().on_multirun_end(config)
        sys.exit(1)
