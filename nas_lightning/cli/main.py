"""The entry points of the commands, and the job function that Hydra calls."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import hydra
import yaml
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from nas_lightning.cli.help import explain, register_resolvers
from nas_lightning.cli.resume import prepare_arguments
from nas_lightning.cli.sweep import close_sweep
from nas_lightning.errors import InputError, describe_system_error
from nas_lightning.flags import accept_all_letters
from nas_lightning.options import config_folder
from nas_lightning.signals import exit_on_sigterm
from nas_lightning.utils.text import is_text, printable
from nas_lightning.utils.threads import set_thread_defaults

if TYPE_CHECKING:
    from nas_lightning.cli.job import Job
    from nas_lightning.runs.screen_log import ScreenLog


def search() -> None:
    """Entry point of `search.py` and `nas-search`."""
    run_command("search")


def train() -> None:
    """Entry point of `train.py` and `nas-train`."""
    run_command("train")


def analyze() -> None:
    """Entry point of `analyze.py` and `nas-analyze`."""
    run_command("analyze")


def latency() -> None:
    """Entry point of `nas-latency`, which is `nas-analyze study=latency`."""
    run_command("analyze", "study=latency")


def run_command(script: str, *overrides: str) -> None:
    """Run the command line of a script; print errors that users can fix as one line, with exit code 1."""
    set_thread_defaults()
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra raises instead of printing and exiting
    accept_all_letters()
    register_resolvers()
    sys.argv[1:1] = overrides
    try:
        for word in sys.argv[1:]:
            if not is_text(word):  # Hydra's parser cannot read it
                raise InputError("Arguments must be UTF-8", got=printable(word))
        with exit_on_sigterm():
            config_name = prepare_arguments(script)
            hydra.main(version_base="1.3", config_path=str(config_folder()), config_name=config_name)(
                run_job
            )()
    except (InputError, HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        close_sweep(stopped=describe_system_error(error) is not None)
        sys.exit(f"error: {explain(error)}")
    except BrokenPipeError:  # such as `--help | head`
        sys.stdout = None
        sys.exit(1)
    except OSError as error:
        if message := describe_system_error(error):
            close_sweep(stopped=True)
            sys.exit(f"error: {message}")
        raise
    except (KeyboardInterrupt, SystemExit) as stop:
        code = 128 + signal.SIGINT if isinstance(stop, KeyboardInterrupt) else stop.code
        close_sweep(stopped=code in (128 + signal.SIGINT, 128 + signal.SIGTERM))
        sys.exit(code)
    finally:
        close_sweep()


def run_job(cfg: DictConfig) -> float | None:
    """Run the job of a composed configuration and return its objective to Hydra's sweeper."""
    from nas_lightning.cli.job import Job, refuse  # imports torch, which `--help` and typos do not need

    job = Job.start(cfg)
    with ExitStack() as stack:
        try:
            stack.enter_context(job.locked_folder())
            log = stack.enter_context(job.screen_log())
            if job.is_complete:  # a job of a resumed sweep
                return job.folder.facts.numbers.get(cfg.objective)
            job.write_record()
        except (InputError, OSError) as error:  # the folder belongs to another process, or cannot be written
            refuse(job.user_error(error) or error, job.in_sweep)
        return _run_attempts(job, log)


def _run_attempts(job: Job, log: ScreenLog) -> float | None:
    """Validate the configuration and run the job; retry a failed job of a sweep."""
    from nas_lightning.cli.build import check_config
    from nas_lightning.cli.jobs import run

    cfg = job.cfg
    for retries in range(cfg.sweep.retries if job.in_sweep else 0, -1, -1):
        try:
            check_config(cfg)
            with job.own_processes():
                facts = run(job)
        except (KeyboardInterrupt, SystemExit) as stop:
            job.end_stopped(log, stop)
            raise
        except Exception as error:
            facts = job.end_failed(log, error, retries)  # raises outside of sweeps
        if facts.error is None:
            break
    return facts.numbers.get(cfg.objective)
