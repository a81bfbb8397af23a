"""Processes that torchrun or SLURM starts with the same words: they share the folder of the first one."""

from __future__ import annotations

import os

from nas_lightning.cli.words import folder_key
from nas_lightning.errors import InputError
from nas_lightning.runs.command import Command

_RANKS = ("RANK", "SLURM_PROCID")  # as Lightning reads them
_TORCHRUN = "TORCHELASTIC_RUN_ID"


def is_first_process() -> bool:
    """Whether this process writes the folder; those that Lightning starts know it by their words."""
    ranks = [os.environ[name] for name in _RANKS if name in os.environ]
    return not ranks or ranks[0] == "0"


def check_shared(command: Command, goes_on: bool) -> None:
    """Raise for what several processes of torchrun's would each do in a folder of their own."""
    if not (_TORCHRUN in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"):
        return
    if command.sweep:
        raise InputError("expected one run: torchrun's processes share no sweep", got="-m", where="torchrun")
    if not goes_on and not command.settings(f"{folder_key(sweep=False)}="):
        raise InputError("expected run=DIR, which torchrun's processes share", got="none", where="run")
