"""`resume=DIR`: continue a run from its saved configuration, or a sweep (`-m`) from its saved overrides.

The saved configuration becomes Hydra's primary configuration, and command-line values take precedence. The
folder may come from somebody else, so it must not run foreign code: classes must be named by our yamls, by
those of a `--config-dir`, or on this command line, and files must be in the run's folder. `trust=true` skips
these checks.
"""

from __future__ import annotations

import argparse
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from hydra.core.config_store import ConfigStore

from nas_lightning.cli.saved import OF_FOLDER, check_saved
from nas_lightning.cli.sweep import expand_sweeps
from nas_lightning.errors import InputError
from nas_lightning.runs.folder import RunFolder, is_requeued
from nas_lightning.runs.record import Record, look_up
from nas_lightning.utils.files import check_contents
from nas_lightning.utils.text import quote

PREFIX = "resumed_"
"""Prefix of the name of a resumed run's primary configuration."""
_NAMING = ("operations", "ops", "modules")
_SWEEPER = re.compile(r"\+*hydra\.(sweeper\.[a-z]\w*=[\w.,[\]-]+|launcher\.[a-z]\w*=\d+)")


def prepare_arguments(script: str) -> str:
    """Rewrite `sys.argv` for Hydra and return the name of the primary configuration.

    This implements `resume=`, and folders of earlier sweeps as values of `genotype.path`.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--config-dir", "-cd", type=Path)
    flags, rest = parser.parse_known_args(sys.argv[1:])
    overrides = [word for word in sys.argv[1:] if "=" in word and not word.startswith("-")]
    options = [word for word in sys.argv[1:] if word not in overrides]
    sys.argv[1:] = [*options, *overrides]  # as Hydra expects them
    folders = [] if flags.config_dir is None else [flags.config_dir]
    if not flags.multirun and is_requeued() and (run := _value(rest, "run")) and RunFolder(run).has_record:
        rest = [f"resume={quote(run)}", "trust=true"]  # SLURM repeats the first command
        sys.argv[1:] = [*options, *rest]
    if folders or any(map(names_module, rest)):
        sys.path += [str(path) for path in (Path.cwd(), *folders) if str(path) not in sys.path]
    resume, trust = _value(rest, "resume"), _value(rest, "trust") == "true"
    if resume is None:
        if flags.multirun:
            sys.argv[1:] = [expand_sweeps(word) for word in sys.argv[1:]]
        return script
    record = read_start(script, Path(resume), sweep=flags.multirun)
    if not trust:
        check_contents(resume)
    if flags.multirun:
        sys.argv[1:] = [*options, *saved_overrides(record, rest), *overrides]
        return script
    node = {name: value for name, value in record.config.items() if name not in ("defaults", "hydra")}
    if not trust:
        check_saved(node, folders, rest)
    node = {"defaults": ["_hydra", "_self_"], **node, "hydra": {"job": {"name": script}}}
    ConfigStore.instance().store(name=f"{PREFIX}{script}", node=node)
    return f"{PREFIX}{script}"


def names_module(word: str) -> bool:
    """Return whether an override names a user's code to import: a class, operations, or modules.

    >>> [names_module(word) for word in ("strategy._target_=mine.Search", "operations=[mine.Conv]", "seed=1")]
    [True, True, False]
    """
    key, _, value = word.lstrip("+").partition("=")
    named = key.rpartition(".")[2] in _NAMING and "." in value
    return named or "_target_" in word or key == "network.path" or word == "trust=true"


def _value(overrides: Sequence[str], key: str) -> str | None:
    """Return the last value of a key in the overrides, None if it is null or missing."""
    values = [word.partition("=")[2].strip("\"'") for word in overrides if word.startswith(f"{key}=")]
    return values[-1] if values and values[-1] != "null" else None


def read_start(script: str, path: Path, *, sweep: bool) -> Record:
    """Return the record of a run or sweep to resume.

    Raises:
        InputError: There is none, it is of another script, or its checkpoint is damaged.
    """
    run = RunFolder(path)
    if not run.has_record or not run.record.config:
        raise InputError(f"No run in `{path}`. Pass the folder of an earlier run.")
    record = run.record
    if record.script != script:
        raise InputError(f"`{path}` is a run of {record.script or 'another script'}, not of {script}.")
    if record.is_sweep != sweep:
        kind, fix = ("sweep", "Add -m") if record.is_sweep else ("single run", "Leave out -m")
        raise InputError(f"`{path}` is a {kind}. {fix}.")
    if run.checkpoint.exists() and not _is_intact(run.checkpoint):
        raise InputError(f"The checkpoint `{run.checkpoint}` is damaged.")
    return record


def _is_intact(file: Path) -> bool:
    """Return whether all checksums in a checkpoint, which is a zip archive, are correct."""
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError):
        return False


def saved_overrides(record: Record, typed: Sequence[str]) -> list[str]:
    """Return the overrides of a saved sweep that are not typed again.

    Of Hydra's settings, only plain ones of the sweeper and launcher are included. The jobs check the composed
    configuration.
    """
    of_hydra = look_up(record.hydra, "overrides", "hydra")
    plain = [word for word in of_hydra or () if isinstance(word, str) and _SWEEPER.fullmatch(word)]
    for word in record.overrides:
        key = word.lstrip("+~").partition("=")[0]
        if "${" in word or "@" in key or key.startswith(("hydra", "-")) or not re.match(r"[A-Za-z]", key):
            raise InputError(
                f"The sweep was started with `{word}`: type its command again instead of resume=."
            )
    own = [word for word in record.overrides if not word.startswith(OF_FOLDER)]
    replaced = {word.lstrip("+~").partition("=")[0] for word in typed}
    return [word for word in (*plain, *own) if word.lstrip("~").partition("=")[0] not in replaced]
