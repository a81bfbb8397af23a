"""The folder of a run: new, writable, and nobody else's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from nas_lightning.errors import InputError


def reserve(config: DictConfig, typed: Iterable[str], *, sweep: bool) -> Path:
    """Make the folder that the run is written to.

    One that was typed must have no run in it; the default's name ends in the time of day and gets a number
    where two runs start in the same second.
    """
    key = "hydra.sweep.dir" if sweep else "hydra.run.dir"
    folder = Path(str(OmegaConf.select(config, key)))
    named = any(line.startswith(f"{key}=") for line in typed)
    if named and ((folder / ".hydra").exists() or (folder / "multirun.yaml").exists()):
        raise InputError("expected a new folder, or resume=FOLDER to go on", got=str(folder), where="run")
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise InputError("expected a folder that can be written", got=str(folder), where="run")
    if named:
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    for number in count(1):
        free = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        with contextlib.suppress(FileExistsError):
            free.mkdir(parents=True)
            break
    return free
