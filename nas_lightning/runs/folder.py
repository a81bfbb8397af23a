"""The folder of a run: new, writable, nobody else's, and free again where the run has come to nothing.

`summary.json` is the last file that a run writes: where it is, the run is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nas_lightning.errors import InputError
from nas_lightning.files import write_whole

SUMMARY = "summary.json"
POOL = "pool.json"
"""The architectures that were drawn for an ensemble: a matter of seconds."""
_RECORD = ".hydra"  # what was typed, and what it composed to
_NO_WORK = (_RECORD, POOL, "tensorboard", "wandb")  # loggers have their folders before the first number


def reserve(config: DictConfig, typed: Iterable[str], *, sweep: bool) -> Path:
    """Make the folder that the run is written to.

    One that was typed must have no run in it; the default's name ends in the time of day and gets a number
    where two runs start in the same second.
    """
    key = "hydra.sweep.dir" if sweep else "hydra.run.dir"
    folder = Path(str(OmegaConf.select(config, key)))
    named = any(line.startswith(f"{key}=") for line in typed)
    try:
        if named and ((folder / _RECORD).exists() or (folder / "multirun.yaml").exists()):
            raise InputError("expected a new folder, or resume=FOLDER to go on", got=str(folder), where="run")
        there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise NotADirectoryError
        return _made(folder, named)
    except OSError:
        raise InputError("expected a folder that can be written", got=str(folder), where="run") from None


def _made(folder: Path, named: bool) -> Path:
    if named:
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    for number in count(1):
        free = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        with contextlib.suppress(FileExistsError):
            free.mkdir(parents=True)
            break
    return free


def summarise(run: Path, facts: dict[str, Any], typed: Iterable[str]) -> None:
    """Write what a run has come to, and what was typed for it."""
    overrides = [line.lstrip("+") for line in typed if not line.startswith("resume=")]
    text = json.dumps({**facts, "overrides": overrides}, indent=2, ensure_ascii=False)
    write_whole(run / SUMMARY, text + "\n")


def withdraw(folder: Path) -> None:
    """Let a corrected command use the folder again, after a start that has not got as far as to work.

    Where anything but a log and loggers' folders is newer than the record of the start, all is kept.
    Otherwise the record goes, an empty log, and the folder itself where nothing else is in it.
    """
    for member in (*folder.glob("member_*"), *folder.glob("candidate_*")):  # runs of their own
        withdraw(member)
    record = folder / _RECORD
    if not record.is_dir():
        return
    logs = list(folder.glob("*.log"))
    others = [path for path in folder.iterdir() if path not in logs and path.name not in _NO_WORK]
    if any(path.stat().st_mtime_ns >= record.stat().st_mtime_ns for path in others):
        return
    shutil.rmtree(record, ignore_errors=True)
    for log in logs:
        if not log.stat().st_size:
            log.unlink()
    with contextlib.suppress(OSError):  # not empty
        folder.rmdir()


CHECKPOINT = "checkpoints/last.ckpt"


def requeued() -> bool:
    """Whether SLURM has started this job before."""
    return int(os.environ.get("SLURM_RESTART_COUNT", "0")) > 0


def script_of(config: Mapping[str, Any]) -> str:
    """The entry script of a composed configuration: only a search has a strategy, and training no space."""
    return "search" if "strategy" in config else "analyze" if "space" in config else "train"
