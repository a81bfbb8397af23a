"""Sweeps: their folder, their tables, and runs of earlier sweeps as values."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from glob import glob
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from nas_lightning.errors import InputError, describe_system_error
from nas_lightning.runs.folder import RunFolder, job_folders
from nas_lightning.runs.record import Record, look_up
from nas_lightning.utils.files import check_contents, turn
from nas_lightning.utils.machine import check_processes
from nas_lightning.utils.text import quote, short_path

_KEY = "genotype.path"
_HOW_MANY = ("n_trials", "n_jobs", "max_batch_size")
"""Settings of a sweeper that may change when its sweep is resumed."""
_running: list[tuple[Record, RunFolder, ExitStack]] = []
"""Record, folder, and lock of the sweep that this process runs, if any."""


class SweepFolder(Callback):
    """Hydra callback that records and locks the folder of a sweep, which must be new or of the same sweep.

    With Optuna, several processes can share a sweep; they lock the folder only for moments.
    """

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        try:
            self._open(config)
        except (InputError, OSError) as error:  # Hydra would only print a warning
            sys.exit(f"error: {error}")

    def _open(self, config: DictConfig) -> None:
        check_processes(OmegaConf.select(config, "hydra.launcher.n_jobs"), "hydra.launcher.n_jobs")
        folder, record = RunFolder(Path(config.hydra.sweep.dir).absolute()), record_of_sweep(config)
        OmegaConf.update(config, "hydra.sweep.dir", str(folder.path))  # absolute, for remote processes
        config.hydra.overrides.hydra.append(f"hydra.sweep.dir={quote(str(folder.path))}")
        if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
            raise InputError("The processes of torchrun share no sweep. Leave out -m.")
        shared = "n_trials" in config.hydra.sweeper
        lock = ExitStack()
        with ExitStack() as moment:
            (moment if shared else lock).enter_context(turn(folder.path) if shared else folder.lock())
            check_contents(folder.path)
            if folder.has_record:
                check_same_sweep(folder.record, record, folder.path)
                print(f"Continuing the sweep in {short_path(folder.path)}", flush=True)
            folder.create(record)
        _running[:] = [(record, folder, lock)]

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        close_sweep()


class SweepTable(Callback):
    """Hydra callback that writes the tables and the report of a sweep after its last job.

    >>> from omegaconf import OmegaConf
    >>> SweepTable().on_multirun_end(OmegaConf.create({"hydra": {"sweep": {"dir": "no_such_sweep"}}}))
    Traceback (most recent call last):
        ...
    SystemExit: error: At least one job must have a summary, got 'none' (in no_such_sweep)
    """

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        from nas_lightning.report.comparison import write_sweep  # imports torch, which `--help` does not need

        try:
            is_complete = write_sweep(Path(config.hydra.sweep.dir), config.get("objective"))
        except (InputError, OSError) as error:  # Hydra would only print a warning
            sys.exit(f"error: {describe_system_error(error) or error}")
        if not is_complete:
            sys.exit(1)


def close_sweep(*, stopped: bool = False) -> None:
    """Unlock the sweep's folder, and remove it if no job has started.

    Args:
        stopped: print the command that resumes the sweep.
    """
    while _running:
        record, folder, lock = _running.pop()
        if not job_folders(folder.path):
            folder.withdraw()
        lock.close()
        if stopped and folder.has_record:
            from nas_lightning.cli.commands import command_to_resume

            command = command_to_resume(record, folder.path)
            print(f"\nStopped. To rerun missing or failed jobs:\n  {command}", flush=True)


def record_of_sweep(config: DictConfig) -> Record:
    """Return the record of a sweep as a whole."""
    from nas_lightning.cli.saved import OF_FOLDER

    plain: Any = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
    hydra = plain.pop("hydra")
    overrides = (word for word in config.hydra.overrides.task if not word.startswith(OF_FOLDER))
    return Record(tuple(overrides), plain, hydra)


def check_same_sweep(old: Record, new: Record, folder: Path) -> None:
    """Raise if the sweep in the folder has other jobs, or another numbering of them."""
    from nas_lightning.cli.saved import check_kept

    if not old.is_sweep or old.script != new.script:
        raise InputError(f"`{folder}` has another run. Choose another folder with run=.")
    before, now = _swept(old), _swept(new)
    if before != now:
        raise InputError(
            f"The sweep in `{folder}` varies {before}, not {now}. Choose another folder with run=."
        )
    check_kept(old.config, new.config, folder)


def _swept(record: Record) -> list[Any]:
    """Return the settings that define a sweep's jobs: what varies, the sweeper, and the folders' names."""
    settings = look_up(record.hydra, "sweeper") or {}
    sweeper = {name: value for name, value in settings.items() if name not in _HOW_MANY}
    varied = [word.lstrip("+") for word in record.overrides if _is_varied(word)]
    return [*varied, sweeper, look_up(record.hydra, "sweep", "subdir")]


def _is_varied(word: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(word).is_sweep_override()


def expand_sweeps(word: str) -> str:
    """Replace the folder of a sweep, or a pattern, in `genotype.path=` by the runs.

    Examples of command lines:
        nas-train -m genotype=file genotype.path=SWEEP
        nas-train -m genotype=file 'genotype.path=glob(a/*)'
    """
    key, _, value = word.partition("=")
    if key.lstrip("+") != _KEY or value[:1] in "\"'[{" or value.startswith("choice("):
        return word
    patterns = value[5:-1].split(",") if value.startswith("glob(") else []
    paths = sorted({path for pattern in patterns for path in glob(pattern)}) if patterns else value.split(",")
    if not paths:
        raise InputError(f"No run fits `{value}` ({_KEY}).")
    runs = [run for path in paths for run in _runs(path)]
    return word if runs == value.split(",") else f"{key}={','.join(map(quote, runs))}"


def _runs(path: str) -> Iterator[str]:
    """Yield the runs of a sweep that have an architecture, in order; for any other path, yield itself."""
    folder = RunFolder(path)
    if not (folder.has_record and folder.record.is_sweep):
        yield path
        return
    runs = [job for job in job_folders(folder.path) if RunFolder(job).genotype.is_file()]
    if not runs:
        raise InputError(f"The sweep in `{path}` has no architectures ({_KEY}).")
    yield from map(str, runs)
