"""One job: what searches, training runs and studies have in common around the work itself."""

from __future__ import annotations

import logging
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig
from hydra.errors import InstantiationException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pytorch_lightning.utilities import rank_zero_only
from pytorch_lightning.utilities.exceptions import MisconfigurationException, SIGTERMException

from nas_lightning.errors import InputError
from nas_lightning.jobs import ensemble as ensemble_job
from nas_lightning.jobs import search as search_job
from nas_lightning.jobs import study as study_job
from nas_lightning.jobs import train as train_job
from nas_lightning.jobs.ending import resume_command
from nas_lightning.jobs.targets import check_targets
from nas_lightning.runs.folder import CHECKPOINT, RunFolder, summarise

TRACEBACK = "error.txt"
_JOBS = {"search": search_job.run, "train": train_job.run, "analyze": study_job.run}


def run_job(cfg: DictConfig) -> float | None:
    """Run the job that the composed configuration describes; its objective goes back to Hydra.

    A user's mistake is one line and the exit code 1. In a sweep whatever goes wrong fails its own job and no
    other; the sweep's table and exit code say so.
    """
    _quieten()
    start = time.monotonic()
    sweep = HydraConfig.get().mode == RunMode.MULTIRUN
    try:
        facts = _work(cfg)
    except (KeyboardInterrupt, SystemExit) as stop:  # Lightning turns the first into the second
        _stopped(cfg, sweep)
        if isinstance(stop, SIGTERMException):
            sys.exit(128 + signal.SIGTERM)  # its own code says that all went well
        raise
    except Exception as error:
        message = _user_error(error)
        if not sweep:
            _withdraw(cfg)
            if message is None:
                raise
            sys.exit(f"error: {message}")
        facts = {"error": message or _recorded(cfg, error)}
        print(f"error: {facts['error']}", file=sys.stderr)
    _summarise(cfg, {"seconds": round(time.monotonic() - start, 1), **facts})
    return facts.get("metrics", {}).get(cfg.objective)


def _work(cfg: DictConfig) -> dict[str, Any]:
    missing = sorted(OmegaConf.missing_keys(cfg))
    if missing:
        raise InputError("expected a value", got="none", where=missing[0])
    OmegaConf.resolve(cfg.copy())  # raises for references to nothing
    check_targets(cfg)
    pl.seed_everything(cfg.seed, workers=True, verbose=False)
    job = ensemble_job.run if cfg.get("ensemble") is not None else _JOBS[_script()]
    return job(cfg)


def _user_error(error: Exception) -> str | None:
    """The user's mistake behind an error; None: it is ours, and deserves its traceback."""
    cause = error.__cause__ if isinstance(error, InstantiationException) and error.__cause__ else error
    if isinstance(cause, InputError):
        return str(cause)
    if isinstance(cause, (MisconfigurationException, OmegaConfBaseException, InstantiationException)):
        return f"expected settings that fit together: {' '.join(str(cause).split())}"
    if isinstance(cause, TypeError) and ("keyword argument" in str(cause) or "required" in str(cause)):
        return f"expected the settings that it takes: {cause}"
    return None


def _recorded(cfg: DictConfig, error: Exception) -> str:
    """An unexpected error of a sweep's job: its traceback in a file, its last line for the table."""
    path = Path(cfg.run) / TRACEBACK
    path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]} (see {path})"


@rank_zero_only
def _stopped(cfg: DictConfig, sweep: bool) -> None:
    if any(Path(cfg.run).glob(f"**/{CHECKPOINT}")) or _script() == "analyze":
        print(f"\nStopped. Go on with:\n  {resume_command(_script(), cfg)}")
    elif not sweep:
        _withdraw(cfg)


@rank_zero_only
def _withdraw(cfg: DictConfig) -> None:
    if cfg.resume is None and Path(cfg.run).is_dir():
        RunFolder(cfg.run).withdraw()


@rank_zero_only
def _summarise(cfg: DictConfig, facts: dict[str, Any]) -> None:
    summarise(Path(cfg.run), facts, HydraConfig.get().overrides.task)


def _script() -> str:
    return str(HydraConfig.get().job.config_name)


def _quieten() -> None:
    """Leave the screen to the run: advertisements and advice of the libraries go unsaid."""
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric", "timm"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="pytorch_lightning|torchvision|torch.*scheduler")
