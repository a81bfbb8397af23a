"""The entry scripts: check what was typed, compose, run, report.

Nothing heavy is imported before the command line is known to be right, so that `--help` and mistakes answer
at once.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nas_lightning.errors import InputError, describe_system_error
from nas_lightning.flags import accept_all_letters
from nas_lightning.signals import ends_when_told

if TYPE_CHECKING:
    from omegaconf import DictConfig


def search() -> None:
    """Entry of `search.py` and `nas-search`."""
    _enter("search")


def train() -> None:
    """Entry of `train.py` and `nas-train`."""
    _enter("train")


def analyze() -> None:
    """Entry of `analyze.py` and `nas-analyze`."""
    _enter("analyze")


def latency() -> None:
    """Entry of `nas-latency`, which is `nas-analyze study=latency`."""
    _enter("analyze", ["study=latency"])


def _enter(script: str, words: Sequence[str] = ()) -> None:
    from nas_lightning.cli.commandline import run_command

    accept_all_letters()
    try:
        with ends_when_told():
            run_command(script, [*words, *sys.argv[1:]], _job)
    except BrokenPipeError:  # `--help | head` has read enough
        sys.stdout = None  # so that nothing is flushed into the closed pipe
        sys.exit(1)
    except InputError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        if refused := describe_system_error(error):
            sys.exit(f"error: {refused}")
        raise
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _job(cfg: DictConfig) -> float | None:
    """Imports what is heavy only where there is a job: `--cfg job` has none."""
    from nas_lightning.cli.kept_imports import kept_imports
    from nas_lightning.cli.lightning_import import import_lightning

    with kept_imports():
        import_lightning(cfg)
        from nas_lightning.cli.job import run_job

    return run_job(cfg)
