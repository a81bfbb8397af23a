"""A job that Hydra runs: its configuration, folder, and record, and how it ends."""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, NoReturn

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.errors import InstantiationException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, read_write
from omegaconf.errors import OmegaConfBaseException
from pytorch_lightning.utilities import rank_zero_only
from pytorch_lightning.utilities.exceptions import MisconfigurationException, SIGTERMException

from nas_lightning.cli.build import own_modules
from nas_lightning.cli.commands import command_to_resume, image_overrides
from nas_lightning.cli.resume import PREFIX
from nas_lightning.cli.saved import OF_FOLDER, check_kept, check_saved
from nas_lightning.errors import DivergenceError, InputError, describe_system_error, original_message
from nas_lightning.options import option_file
from nas_lightning.runs.facts import RunFacts
from nas_lightning.runs.folder import RunFolder
from nas_lightning.runs.record import Record
from nas_lightning.runs.screen_log import ScreenLog
from nas_lightning.utils.processes import claim_gpus
from nas_lightning.utils.text import quote, short_path
from nas_lightning.validation import NonNegativeInt, check_argument

_KINDS = {"search": "search", "train": "training", "analyze": "study"}
_PARALLEL = ("joblib", "dask")
"""Launchers whose jobs run side by side on a machine and see all its GPUs."""
_DDP_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")


@dataclass(frozen=True)
class Job:
    """A single run, or one job of a sweep.

    Args:
        cfg: the composed configuration, without the node `hydra`.
        record: the overrides and chosen options.
    """

    cfg: DictConfig
    record: Record

    @classmethod
    def start(cls, cfg: DictConfig) -> Job:
        """Create the job of the composed configuration; set `cfg.resume` if it continues an earlier one."""
        _quiet_libraries()
        hydra: Any = HydraConfig.get()
        cfg.run = str(hydra.runtime.output_dir)
        with read_write(hydra):
            hydra.run.dir = cfg.run  # Lightning passes it to the processes that it starts
        in_sweep, folder = hydra.mode == RunMode.MULTIRUN, RunFolder(cfg.run)
        try:
            job = cls(cfg, record_of(cfg, hydra))
            _check_packages(job)
            check_argument("retries", OmegaConf.select(cfg, "sweep.retries"), NonNegativeInt, "sweep.retries")
            saved = folder.record if folder.has_record else None
            if in_sweep:
                if cfg.resume is not None and not cfg.trust:
                    check_saved(job.record.config, job.record.folders)
                cfg.resume = None if saved is None else cfg.run
            elif cfg.resume is not None and saved is not None:
                job = job._continued(saved)
            elif saved is not None and is_first_process():
                raise InputError(
                    f"`{short_path(cfg.run)}` has a run. Pass resume= to resume it, or another run=."
                )
            else:
                _check_shared_folder(cfg, hydra)
            if saved is not None and cfg.resume is not None:
                check_kept(saved.config, job.record.config, short_path(cfg.run))
        except (InputError, OmegaConfBaseException) as error:
            with suppress(OSError):  # not empty, or owned by another user
                folder.path.rmdir()
            refuse(error, in_sweep)
        return job

    def _continued(self, saved: Record) -> Job:
        """Return the job with the overrides and choices of the run that it resumes."""
        typed = self.record.without("hydra.")
        runtime = {**self.record.hydra["runtime"], "choices": saved.choices}
        record = replace(
            self.record, overrides=(*saved.overrides, *typed), hydra={**self.record.hydra, "runtime": runtime}
        )
        return Job(self.cfg, record)

    @property
    def folder(self) -> RunFolder:
        """The output folder."""
        return RunFolder(self.cfg.run)

    @property
    def in_sweep(self) -> bool:
        """Whether this is a job of a sweep."""
        return self.record.in_sweep

    @property
    def choices(self) -> Mapping[str, str]:
        """The option that was chosen in each group."""
        return self.record.choices

    @property
    def is_complete(self) -> bool:
        """Whether a job of a resumed sweep is complete; a failed one is reopened."""
        if not self.in_sweep or self.cfg.resume is None:
            return False
        if self.folder.is_finished and self.folder.facts.error is not None:
            self.folder.reopen()
        return self.folder.is_complete

    @property
    def overrides(self) -> tuple[str, ...]:
        """The overrides, as in the run's summary."""
        return tuple(word.lstrip("+") for word in self.record.overrides)

    @property
    def own(self) -> dict[str, list[str]]:
        """Custom operations and modules that files may name."""
        return {"operations": [*self.cfg.operations], "modules": own_modules(self.cfg)}

    @property
    def images(self) -> list[str]:
        """The overrides that choose the same images again."""
        choice = self.choices["dataset"]
        option: Any = OmegaConf.to_container(
            OmegaConf.load(option_file("dataset", choice, self.record.folders)), resolve=False
        )
        settings: Any = OmegaConf.to_container(self.cfg.dataset, resolve=False)
        return image_overrides(self.record, choice, settings, option)

    # Around the work

    @contextmanager
    def locked_folder(self) -> Iterator[None]:
        """Lock the folder; only the first process of a run does."""
        if not is_first_process():
            yield
            return
        with self.folder.lock():
            yield

    def screen_log(self) -> ScreenLog:
        """Return the log of the screen, which only the first process writes."""
        return ScreenLog(self.folder.path / f"{self.record.script}.log" if is_first_process() else None)

    def write_record(self) -> None:
        """Save the record, unless there is one."""
        if is_first_process():
            self.folder.create(self.record)

    @contextmanager
    def own_processes(self) -> Iterator[None]:
        """Let Lightning start further processes of this job of a sweep.

        Lightning starts them with `sys.argv`, which has the command of the whole sweep.
        """
        if not self.in_sweep:
            yield
            return
        _check_launcher(self)
        if self.choices.get("hydra/launcher") in _PARALLEL:
            devices = str(self.cfg.trainer.get("devices"))
            if devices.isdecimal():
                claim_gpus(int(devices))
        argv, before = sys.argv[:], {name: os.environ.get(name) for name in _DDP_VARIABLES}
        folders = [part for folder in self.record.folders for part in ("--config-dir", str(folder))]
        overrides = [*self.record.without("hydra.sweep"), "hydra.mode=RUN"]
        if self.cfg.resume is not None:
            overrides = [f"resume={quote(self.cfg.run)}", "trust=true"]  # this process has checked the folder
        sys.argv[1:] = [*folders, *overrides]
        try:
            yield
        finally:
            sys.argv[:] = argv
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

    # How it ends

    def user_error(self, error: Exception) -> InputError | None:
        """Return an error that the user can fix as one line; None for a bug, which needs its traceback."""
        cause = error.__cause__ if isinstance(error, InstantiationException) and error.__cause__ else error
        if isinstance(cause, InputError):
            return InputError(original_message(cause) or str(cause))
        if message := describe_system_error(error, self.cfg.run):
            return InputError(message)
        if isinstance(cause, (MisconfigurationException, OmegaConfBaseException, InstantiationException)):
            return InputError(str(cause))
        return None

    def end_stopped(self, log: ScreenLog, stop: BaseException) -> None:
        """Print how to resume after Ctrl-C or a signal; for a sweep, `close_sweep` does."""
        if not self.in_sweep:
            self._withdraw(log)
            self._print_resume()
        if isinstance(stop, SIGTERMException):
            sys.exit(128 + signal.SIGTERM)  # Lightning's exception has the exit code 0

    def end_failed(self, log: ScreenLog, error: Exception, retries: int) -> RunFacts:
        """Exit a failed single run, or record the failure of a sweep's job.

        Args:
            log: the log of the run.
            error: the error that ended it.
            retries: remaining attempts of a sweep's job.

        Returns:
            Facts with the error.
        """
        message = self.user_error(error)
        if not self.in_sweep:
            if describe_system_error(error) or (
                self.folder.has_work and not isinstance(error, DivergenceError)
            ):
                self._print_resume()
            else:
                self._withdraw(log if message else None)
            if message is None:
                raise error
            refuse(message, in_sweep=False)
        log.write_error(error)
        text = str(message) if message else self._keep_traceback(error)
        print(f"error: {text}", file=sys.stderr)
        facts = RunFacts(
            _KINDS[self.record.script], seed=self.cfg.seed, seconds=0.0, overrides=self.overrides, error=text
        )
        if retries:
            print(f"Trying again ({retries} left).", flush=True)
            self.cfg.resume = self.cfg.run
        elif is_first_process() and not self.folder.is_finished:
            self.folder.finish(facts)
        return facts

    def _keep_traceback(self, error: Exception) -> str:
        path = self.folder.error
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]} (see {path})"

    def _print_resume(self) -> None:
        if is_first_process() and self.folder.has_record:
            print(
                f"\nStopped. Resume with:\n  {command_to_resume(self.record, self.folder.path)}", flush=True
            )

    def _withdraw(self, log: ScreenLog | None) -> None:
        """Remove the folder of a run that has computed nothing.

        Args:
            log: the log to remove; None keeps it, for the traceback of a bug.
        """
        if is_first_process() and self.folder.path.is_dir() and not self.folder.has_work:
            if log is not None:
                log.forget()
            if self.cfg.resume is None:
                self.folder.withdraw()


def record_of(cfg: DictConfig, hydra: Any) -> Record:
    """Return the record of a job that Hydra has started."""
    about: Any = OmegaConf.to_container(hydra, resolve=False, enum_to_str=True)
    about["job"]["config_name"] = str(hydra.job.config_name).removeprefix(PREFIX)
    overrides = [word for word in hydra.overrides.task if not word.startswith(OF_FOLDER)]
    return record_of_config(cfg, overrides, about)


def record_of_config(cfg: DictConfig, overrides: Iterable[str], hydra: Mapping[str, Any]) -> Record:
    """Return the record of a run; interpolations such as `${run}` and `${seed}` are kept."""
    config: Any = OmegaConf.to_container(cfg, resolve=False, enum_to_str=True)
    return Record(tuple(overrides), {**config, "run": None, "resume": None, "trust": False}, hydra)


def refuse(error: Exception, in_sweep: bool) -> NoReturn:
    """Exit with one line; in a sweep, raise the error for Hydra's sweeper."""
    if in_sweep:
        raise error
    sys.exit(f"error: {' '.join(str(error).split())}")


def is_first_process() -> bool:
    """Return whether this process writes to the folder."""
    return not rank_zero_only.rank  # type: ignore[attr-defined]


_PACKAGES = {
    "logger=tensorboard": ("tensorboard", ("tensorboard",)),
    "logger=mlflow": ("mlflow", ("mlflow",)),
    "study.runtime=onnx": ("export", ("onnx", "onnxscript", "onnxruntime")),
}
"""The extra of the package and the modules that an option needs."""


def _check_packages(job: Job) -> None:
    """Raise for an option whose optional package is not installed, before the run's folder exists."""
    runtime = OmegaConf.select(job.cfg, "study.runtime")
    for option in (f"logger={job.choices.get('logger')}", f"study.runtime={runtime}"):
        extra, modules = _PACKAGES.get(option, ("", ()))
        missing = [module for module in modules if find_spec(module) is None]
        if missing:
            expected = f"expected the packages for {option}: pip install 'nas-lightning[{extra}]'"
            raise InputError(expected, got=f"no {', '.join(missing)}")


def _check_shared_folder(cfg: DictConfig, hydra: Any) -> None:
    """Raise if the processes of torchrun would each write to another folder."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
        return
    if not any(word.startswith("run=") for word in hydra.overrides.task):
        raise InputError("Pass run=DIR, which the processes of torchrun share.")


def _check_launcher(job: Job) -> None:
    """Raise if Lightning cannot start further processes because the launcher runs jobs without a command."""
    strategy, launcher = str(job.cfg.trainer.get("strategy")), job.choices.get("hydra/launcher")
    by_command = strategy.startswith(("ddp", "fsdp", "deepspeed"))
    otherwise = any(word in strategy for word in ("fork", "spawn", "notebook"))
    if by_command and not otherwise and launcher != "basic" and str(job.cfg.trainer.get("devices")) != "1":
        raise InputError(f"With hydra/launcher={launcher} pass trainer.strategy=ddp_fork, not {strategy}.")


def _quiet_libraries() -> None:
    """Hide tips and warnings of libraries that users cannot act on."""
    lightning = ("pytorch_lightning", "lightning.pytorch", "lightning_fabric")
    for name in (*lightning, "timm", "onnxscript", "onnx_ir"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="pytorch_lightning|torchvision|torch.*scheduler")
