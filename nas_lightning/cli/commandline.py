"""The way of a command: words → command → one composition → checked → its folder → its job.

All of it before anything heavy is imported and, but for the folder, before anything is written.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from nas_lightning.cli.composer import Composer
from nas_lightning.cli.composition import check_command
from nas_lightning.cli.help import help_text
from nas_lightning.cli.imports import find_plugins, make_importable
from nas_lightning.cli.ranks import check_shared, is_first_process
from nas_lightning.cli.resume import check_same_run, find_run, resume_requeued
from nas_lightning.cli.stored_words import check_stored_targets
from nas_lightning.cli.sweep import sweep_folder
from nas_lightning.cli.sweep_attempts import run_attempts
from nas_lightning.cli.swept_runs import expand_runs
from nas_lightning.cli.swept_values import WHERE
from nas_lightning.cli.words import config_folders, expand_shorthand, folder_key, parse_flags, strip_dashes
from nas_lightning.errors import InputError
from nas_lightning.runs.command import Command
from nas_lightning.runs.folder import RunFolder
from nas_lightning.utils.text import is_text, printable, quote

Job = Callable[[DictConfig], Any]
_RAISE = "HYDRA_FULL_ERROR"
_LEFT_TO_HYDRA = ("hydra_help", "info", "shell_completion")
_NOT_TAKEN = {
    "config_name": "--config-dir DIR beside our own configurations",
    "config_path": "--config-dir DIR beside our own configurations",
    "experimental_rerun": "resume=FOLDER",
}
"""Flags of Hydra whose purpose others serve here."""
CHILD = "hydra.output_subdir=null"
"""Leaves `.hydra` as it is; Lightning types it, too, in processes that it starts beside the first one."""


def run_command(script: str, argv: Sequence[str], job: Job) -> None:
    """Do what was typed; raises an `InputError` for what cannot run."""
    _check_letters(argv)
    argv = strip_dashes(script, argv)
    folders = config_folders(argv)
    if {"--help", "-h"} & set(argv):
        print(help_text(script, folders))
        return
    arguments = parse_flags(argv)
    if arguments.resolve and not arguments.cfg:
        raise InputError("expected --cfg job beside --resolve", where="the command line")
    for option, instead in _NOT_TAKEN.items():
        if value := getattr(arguments, option):
            flag = "--" + option.replace("_", "-")
            raise InputError(f"expected {instead} in place of {flag}", got=value, where=flag)
    if any(getattr(arguments, option) for option in _LEFT_TO_HYDRA):
        _leave_to_hydra(script, job, folders, arguments.overrides)
    else:
        flags = [arg for arg in argv if arg not in arguments.overrides]
        _run(script, folders, arguments, flags, job)


def _run(script: str, own: tuple[Path, ...], arguments: Namespace, typed_flags: list[str], job: Job) -> None:
    folders, flags = own, [*typed_flags]
    sweep = _is_sweep(arguments)
    typed = [expand_runs(expand_shorthand(script, word, sweep)) for word in arguments.overrides]
    old, words = None, typed
    if CHILD not in typed:  # the first process has looked at them
        typed = resume_requeued(typed)
        old, words = find_run(script, typed, folders, sweep=sweep, trust=arguments.trust), typed
        if old is not None:
            words = [*old.words, *typed, f"{folder_key(sweep)}={quote(str(old.run))}", CHILD]
            if sweep:  # whose jobs go on each by itself
                words = [word for word in words if word != CHILD and not word.startswith("resume=")]
            flags += [part for folder in old.folders for part in ("--config-dir", str(folder))]
            folders = (*folders, *old.folders)
    _check_noted(typed)
    if old is None and not sweep:
        _check_sweep_settings(typed)
    if old is None and not sweep and CHILD not in words and not is_first_process():
        words = [*words, CHILD]
    command = Command(script, tuple(words), folders, sweep)
    check_shared(command, goes_on=old is not None)
    with Composer(script, folders) as composer:
        make_importable(folders, words)
        config = check_command(command, composer)
        if old is not None and not arguments.trust:
            check_stored_targets(config, folders, typed)
        if arguments.cfg:
            composer.show(config, arguments)
            return
        sys.argv[1:] = [*flags, *words]  # what Lightning starts other processes with
        if sweep:
            with sweep_folder(config, command):
                run_attempts(config, lambda: composer.run(config, job, sweep=True))
            return
        if config.hydra.mode != RunMode.MULTIRUN:
            if old is not None:
                check_same_run(old.record, config, composer)
            elif CHILD not in words:
                _reserve_folder(config, command)
            try:
                composer.run(config, job, sweep=False)
            except InputError:  # of what is Hydra's, before there was a job
                if old is None and CHILD not in words:
                    RunFolder(OmegaConf.select(config, folder_key(sweep=False))).withdraw()
                raise
            return
    arguments.multirun = True  # one of the configurations says so
    _run(script, own, arguments, typed_flags, job)


def _check_letters(argv: Sequence[str]) -> None:
    """Raise for bytes that are no text: neither Hydra nor the record of a run could hold them."""
    for word in argv:
        if not is_text(word):
            raise InputError("expected words in UTF-8", got=printable(word), where="the command line")


def _is_sweep(arguments: Namespace) -> bool:
    """Whether a sweep was typed: -m, or the mode as Hydra's setting."""
    modes = [word.split("=")[1] for word in arguments.overrides if word.lstrip("+").startswith("hydra.mode=")]
    if arguments.multirun and modes and modes[-1] != RunMode.MULTIRUN.name:
        raise InputError("expected hydra.mode=MULTIRUN beside -m", got=modes[-1], where="hydra.mode")
    return arguments.multirun or modes[-1:] == [RunMode.MULTIRUN.name]


def _check_noted(words: Sequence[str]) -> None:
    """Raise for what Hydra notes of a start itself, whatever is typed."""
    for word in words:
        if word.lstrip("+~").startswith("hydra.runtime"):
            raise InputError("expected a setting, and nothing that Hydra notes itself", got=word)


def _check_sweep_settings(words: Sequence[str]) -> None:
    """Raise for what only a sweep has, and a single run would ignore."""
    for word in words:
        if word.lstrip("+~").startswith(
            ("hydra.sweeper", "hydra.launcher", "hydra/sweeper", "hydra/launcher")
        ):
            raise InputError("expected -m for the settings of a sweep", got=word, where="the command line")


def _reserve_folder(config: DictConfig, command: Command) -> None:
    """Make the folder of the run, and name it in the configuration."""
    key = folder_key(sweep=False)
    folder = RunFolder.reserve(str(OmegaConf.select(config, key)), typed=bool(command.settings(f"{key}=")))
    OmegaConf.update(config, key, str(folder.path))


def _leave_to_hydra(script: str, job: Job, folders: Sequence[Path], words: Sequence[str]) -> None:
    """Hydra's own flags, which it alone understands."""
    import hydra

    find_plugins()
    make_importable(folders, words)
    before = os.environ.get(_RAISE)
    os.environ[_RAISE] = "1"  # in place of printing a traceback
    try:
        hydra.main(version_base="1.3", config_path="pkg://nas_lightning.conf", config_name=script)(job)()
    except (ValueError, HydraException) as error:
        raise InputError(f"expected a flag of Hydra's as it takes it: {error}", where=WHERE) from None
    finally:
        os.environ.pop(_RAISE)
        os.environ.update({} if before is None else {_RAISE: before})
