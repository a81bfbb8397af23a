"""A sweep that goes on: `-m resume=SWEEP`, or the words that it was started with, typed again.

What decides its jobs must be what it was. A job that is done is read then, one that was stopped goes on from
its checkpoint, one that failed or never started runs; the table follows as after any sweep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from nas_lightning.cli.composer import record_of
from nas_lightning.cli.composition import parse
from nas_lightning.cli.resume import check_same, kept_settings, record_to_resume
from nas_lightning.cli.stored_words import comes_back, own_words
from nas_lightning.cli.words import folder_key
from nas_lightning.errors import InputError
from nas_lightning.runs.command import Command
from nas_lightning.runs.folder import RunFolder
from nas_lightning.runs.record import Record, look_up
from nas_lightning.utils.files import turn
from nas_lightning.utils.machine import check_processes
from nas_lightning.utils.text import quote, short_path

if TYPE_CHECKING:
    from nas_lightning.cli.job_context import JobContext
    from nas_lightning.runs.facts import RunFacts

_KEY = folder_key(sweep=True)
_PROCESSES = "hydra.launcher.n_jobs"
_HOW_MANY = ("n_trials", "n_jobs", "max_batch_size")  # jobs, in all and together, of a sweep that goes on


@contextmanager
def sweep_folder(config: DictConfig, command: Command) -> Iterator[None]:
    """The folder of a sweep, named in its configuration, locked and with its record.

    It is a new one, or that of the same sweep, which goes on. Trials share it: several machines may be at
    work on those, and keep out of each other's way themselves.
    """
    check_processes(OmegaConf.select(config, _PROCESSES), _PROCESSES)
    if config.hydra.sweeper is None:
        raise InputError("expected a sweeper", got="null", where="hydra.sweeper")
    path, shared = Path(str(OmegaConf.select(config, _KEY))), "n_trials" in config.hydra.sweeper
    with ExitStack() as stack:
        with turn(path) if shared else nullcontext():
            folder, again = _find_folder(path, config, command)
            if config.hydra.runtime.choices["hydra/launcher"] != "basic":
                _make_absolute(config, folder)
            if not shared:
                stack.enter_context(folder.lock())
            folder.create(record_of(config, config.hydra))
        if again:
            print(f"Going on with the sweep in {short_path(folder.path)}", flush=True)
        try:
            yield
        except InputError:  # of what is Hydra's, before there was a job
            if not again:
                folder.withdraw()
            raise
        except (KeyboardInterrupt, SystemExit):
            _say_how_to_go_on(command, folder)
            raise


def _find_folder(path: Path, config: DictConfig, command: Command) -> tuple[RunFolder, bool]:
    """The folder, and whether the same sweep has begun there."""
    folder, typed = RunFolder(path), bool(command.settings(f"{_KEY}="))
    again = typed and folder.has_record and folder.record.is_sweep
    if again:
        _check_same_sweep(folder.record, config, command)
    folder = RunFolder.reserve(folder.path, typed=typed, again=again)
    OmegaConf.update(config, _KEY, str(folder.path))
    if not typed:
        config.hydra.overrides.hydra.append(f"{_KEY}={quote(str(folder.path))}")  # that of all its jobs
    return folder, again


def _make_absolute(config: DictConfig, folder: RunFolder) -> None:
    """Name the folder as processes find it that do not start here, such as those of a cluster's nodes."""
    path, lines = str(folder.path.absolute()), config.hydra.overrides.hydra
    OmegaConf.update(config, _KEY, path)
    others = [line for line in lines if line.split("=")[0].lstrip("+") != _KEY]
    config.hydra.overrides.hydra = [*others, f"{_KEY}={quote(path)}"]


def _say_how_to_go_on(command: Command, folder: RunFolder) -> None:
    from nas_lightning.jobs.next_commands import command_to_resume  # which imports what jobs need

    typed = [word for word in command.without(f"{_KEY}=", "hydra.mode=", "resume=") if not comes_back(word)]
    own = own_words(typed, command.folders)
    sweep = command_to_resume(replace(command, sweep=True), folder.path, own)
    print(f"\nWhat is missing or has failed runs by:\n  {sweep}")


def _check_same_sweep(record: Record, config: DictConfig, command: Command) -> None:
    """Raise for the first thing that would make other jobs, or call others by the same numbers."""
    if record.script != command.script:
        raise InputError(f"expected a sweep of {record.script}.py, as is there", where="run")
    old, new = _swept(record.words), _swept(command.words)
    if old != new:
        expected = f"expected {' '.join(old) or 'no -m'}, as the sweep that is there has it"
        raise InputError(expected, got=" ".join(new) or "nothing that varies", where="run")
    kept = _identity(record_of(config, config.hydra))
    check_same({**kept, **_identity(record)}, kept, where="run")


def _identity(record: Record) -> dict[str, Any]:
    """What all jobs share, and what says which they are."""
    subdir = look_up(record.hydra, "sweep", "subdir")
    settings = look_up(record.hydra, "sweeper") or {}
    sweeper = {f"hydra.sweeper.{name}": value for name, value in settings.items() if name not in _HOW_MANY}
    return {**kept_settings(record.config), **sweeper, "hydra.sweep.subdir": subdir}


def _swept(words: Sequence[str]) -> list[str]:
    """What varies, in its order: the first varies last."""
    return [str(one.input_line).lstrip("+") for one in parse(words) if one.is_sweep_override()]


def go_on_with_job(job: JobContext) -> RunFacts | None:
    """What a job of a sweep has come to before; else it goes on with what its folder has, if anything."""
    if not job.folder.has_record:
        return None
    record = record_to_resume(job.command.script, job.folder.path)
    kept = kept_settings(job.record.config)
    check_same({**kept, **kept_settings(record.config)}, kept, where=short_path(job.folder.path))
    if job.folder.is_finished and job.folder.facts.error is not None:
        job.folder.reopen()
    elif job.folder.is_complete:
        return job.folder.facts
    job.cfg.resume = job.cfg.run
    return None
