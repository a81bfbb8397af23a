"""The processes that Lightning starts beside a job of a sweep: they do that job, and not the sweep.

Lightning types this process' own command for them. In a sweep that is the whole sweep's, and what it leaves
in the environment would make the next job believe that its processes are already there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from nas_lightning.cli.job_context import JobContext, let_hydra_name
from nas_lightning.errors import InputError
from nas_lightning.utils.text import quote

_LEFT_BEHIND = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")
_BY_COMMAND = ("ddp", "fsdp", "deepspeed")
_OTHERWISE = ("fork", "spawn", "notebook")


@contextmanager
def own_processes(job: JobContext) -> Iterator[None]:
    """While a job of a sweep runs: Lightning starts others with its words, and in its folder."""
    if not job.command.sweep:
        yield
        return
    _check_launcher(job)
    argv, before = sys.argv[:], {name: os.environ.get(name) for name in _LEFT_BEHIND}
    folders = [part for folder in job.command.folders for part in ("--config-dir", str(folder))]
    resume = [] if job.cfg.resume is None else [f"resume={quote(str(job.folder.path))}"]
    sys.argv[1:] = [*folders, *job.command.words, *resume, "hydra.mode=RUN"]
    let_hydra_name(job.folder.path)  # that is what Lightning types
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


def _check_launcher(job: JobContext) -> None:
    """Raise where a job is in a process of which there is no command."""
    strategy = str(job.cfg.trainer.get("strategy"))
    launcher = job.choices.get("hydra/launcher")
    by_command = strategy.startswith(_BY_COMMAND) and not any(word in strategy for word in _OTHERWISE)
    if by_command and launcher != "basic" and str(job.cfg.trainer.get("devices")) != "1":
        expected = f"expected trainer.strategy=ddp_fork beside hydra/launcher={launcher}"
        raise InputError(expected, got=strategy, where="trainer.strategy")
