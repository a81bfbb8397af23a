"""One job: what searches, training runs and studies have in common around the work itself."""

from __future__ import annotations

import logging
import signal
import sys
import time
import traceback
import warnings
from contextlib import ExitStack
from importlib import import_module

import pytorch_lightning as pl
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pytorch_lightning.utilities import rank_zero_only
from pytorch_lightning.utilities.exceptions import MisconfigurationException, SIGTERMException

from nas_lightning.cli.job_context import JobContext, started_job
from nas_lightning.cli.job_processes import own_processes
from nas_lightning.cli.places import check_places
from nas_lightning.cli.stored_words import own_words
from nas_lightning.cli.sweep import go_on_with_job
from nas_lightning.cli.targets import check_targets
from nas_lightning.errors import DivergenceError, InputError, describe_system_error, original_message
from nas_lightning.jobs.next_commands import command_to_resume
from nas_lightning.runs.facts import RunFacts
from nas_lightning.runs.screen_log import ScreenLog

_JOBS = {
    "search": ("search_job", "run_search"),
    "train": ("train_job", "run_training"),
    "analyze": ("study_job", "run_study"),
    "ensemble": ("ensemble_job", "run_ensemble"),
}
"""The module and the function of each: a job is imported when it is run."""
_KINDS = {"search": "search", "train": "training", "analyze": "study"}


def run_job(cfg: DictConfig) -> float | None:
    """Run the job that the composed configuration describes; its objective goes back to Hydra.

    A user's mistake is one line and the exit code 1. In a sweep whatever goes wrong fails its own job and no
    other; the sweep's table and exit code say so.
    """
    _quieten()
    job = started_job(cfg)
    with ExitStack() as stack:
        try:
            stack.enter_context(job.own_folder())
            log = stack.enter_context(job.screen_log())
            done = go_on_with_job(job) if job.command.sweep else None
            job.write_record()
        except (InputError, OSError) as error:  # which leaves the folder to whom it is
            sys.exit(f"error: {_user_error(error, cfg.run) or error}")
        return _run(job, log) if done is None else done.numbers.get(cfg.objective)


def _run(job: JobContext, log: ScreenLog) -> float | None:
    start = time.monotonic()
    try:
        with own_processes(job):
            facts = _work(job)
    except (KeyboardInterrupt, SystemExit) as stop:  # Lightning turns the first into the second
        _say_how_to_go_on(job, log)
        if isinstance(stop, SIGTERMException):
            sys.exit(128 + signal.SIGTERM)  # its own code says that all went well
        raise
    except Exception as error:
        message = _user_error(error, job.cfg.run)
        if not job.command.sweep:
            can_go_on = job.folder.has_work and not isinstance(error, DivergenceError)
            if can_go_on or describe_system_error(error):
                _say_how_to_go_on(job, log)
            else:
                _withdraw(job, log if message else None)
            if message is None:
                raise
            sys.exit(f"error: {message}")
        log.write_error(error)
        facts = _fail(job, message or _keep_traceback(job, error), round(time.monotonic() - start, 1))
    return facts.numbers.get(job.cfg.objective)


def _work(job: JobContext) -> RunFacts:
    cfg = job.cfg
    missing = sorted(OmegaConf.missing_keys(cfg))
    if missing:
        raise InputError("expected a value", got="none", where=missing[0])
    OmegaConf.resolve(cfg.copy())  # raises for references to nothing
    check_targets(cfg)
    check_places(cfg, job.folder.path)
    pl.seed_everything(cfg.seed, workers=True, verbose=False)
    module, run = _JOBS["ensemble" if cfg.get("ensemble") is not None else job.command.script]
    return getattr(import_module(f"nas_lightning.cli.{module}"), run)(job)


def _user_error(error: Exception, run: str) -> str | None:
    """The user's mistake behind an error of a run; None: it is ours, and deserves its traceback."""
    cause = error.__cause__ if isinstance(error, InstantiationException) and error.__cause__ else error
    if isinstance(cause, InputError):
        return original_message(cause) or str(cause)
    if refused := describe_system_error(error, run):
        return refused
    if isinstance(cause, (MisconfigurationException, OmegaConfBaseException, InstantiationException)):
        return f"expected settings that fit together: {' '.join(str(cause).split())}"
    if isinstance(cause, TypeError) and ("keyword argument" in str(cause) or "required" in str(cause)):
        return f"expected the settings that it takes: {cause}"
    return None


def _keep_traceback(job: JobContext, error: Exception) -> str:
    """An unexpected error of a sweep's job: its traceback in a file, its last line for the table."""
    path = job.folder.error
    path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]} (see {path})"


def _fail(job: JobContext, message: str, seconds: float) -> RunFacts:
    """The summary of a job that failed; one that had ended before keeps its own."""
    print(f"error: {message}", file=sys.stderr)
    kind = _KINDS[job.command.script]
    facts = RunFacts(kind, seed=job.cfg.seed, seconds=seconds, words=job.words, error=message)
    if not job.folder.is_finished:
        _finish(job, facts)
    return facts


@rank_zero_only
def _finish(job: JobContext, facts: RunFacts) -> None:
    job.folder.finish(facts)


@rank_zero_only
def _say_how_to_go_on(job: JobContext, log: ScreenLog) -> None:
    if job.command.sweep:  # which says how all its jobs go on
        return
    _withdraw(job, log)
    if job.folder.has_record:
        own = own_words(job.command.without("resume="), job.command.folders)
        print(f"\nStopped. Go on with:\n  {command_to_resume(job.command, job.folder.path, own)}")


@rank_zero_only
def _withdraw(job: JobContext, log: ScreenLog | None) -> None:
    """Leave no trace of a start that has come to nothing, but for the log of an error that is ours."""
    if job.folder.path.is_dir() and not job.folder.has_work:
        if log is not None:
            log.forget()
        if job.cfg.resume is None:
            job.folder.withdraw()


def _quieten() -> None:
    """Leave the screen to the run: advertisements and advice of the libraries go unsaid."""
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric", "timm"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="pytorch_lightning|torchvision|torch.*scheduler")
