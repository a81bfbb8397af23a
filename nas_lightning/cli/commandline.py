"""What was typed, looked at before anything heavy is imported and before anything is written.

Four things are shorthands, which become what Hydra understands:

    run=DIR          the folder that the run is written to
    resume=DIR       what was typed for the run in that folder, and that folder again
    network.KEY=…    the sizes of a network, which are known only when its space is
    trainer.KEY=…    any of the trainer's arguments, whether or not the configuration mentions it
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hydra._internal.utils import get_args_parser

from nas_lightning.cli.composition import check
from nas_lightning.cli.help import help_text
from nas_lightning.cli.resume import after_requeue, continued, own_folders, run_to_resume
from nas_lightning.errors import InputError
from nas_lightning.runs.folder import reserve
from nas_lightning.text import quote

_LEFT_TO_HYDRA = ("hydra_help", "info", "shell_completion", "experimental_rerun")
CHILD = "hydra.output_subdir=null"
"""Leaves `.hydra` as it is; Lightning types it, too, in the processes that it starts beside the first one."""


def prepare(name: str, argv: Sequence[str]) -> list[str]:
    """The arguments that Hydra gets; exits after `--help`, raises an `InputError` for what cannot run."""
    folders = _config_dirs(argv)
    _make_importable(folders)
    if {"--help", "-h"} & set(argv):
        print(help_text(name, folders))
        sys.exit()
    arguments = _parse(argv)
    if CHILD in argv or any(getattr(arguments, option) for option in _LEFT_TO_HYDRA):
        return list(argv)
    if arguments.resolve and not arguments.cfg:
        raise InputError("expected --cfg job beside --resolve", where="the command line")
    flags = [arg for arg in argv if arg not in arguments.overrides]
    overrides = [_written_out(name, override, arguments.multirun) for override in arguments.overrides]
    overrides = after_requeue(overrides)
    run = run_to_resume(overrides)
    if run is None:
        config = check(name, overrides, folders, sweep=arguments.multirun)
        if arguments.cfg:
            return [*flags, *overrides]
        output = reserve(config, overrides, sweep=arguments.multirun)
        return [*flags, *overrides, f"hydra.{_mode(arguments.multirun)}.dir={quote(str(output))}"]
    if arguments.multirun:
        raise InputError("expected one run to go on with, without -m", got=str(run), where="resume")
    if not folders:
        folders = own_folders(run)
        _make_importable(folders)
        flags += [part for folder in folders for part in ("--config-dir", str(folder))]
    overrides = continued(name, run, overrides, folders)
    check(name, overrides, folders, sweep=False)
    return [*flags, *overrides, f"hydra.run.dir={quote(str(run))}", CHILD]


def _config_dirs(argv: Sequence[str]) -> list[Path]:
    """The user's own configuration folders: --config-dir DIR, -cd DIR."""
    flags = ("--config-dir", "-cd")
    found = [argv[i + 1] for i, arg in enumerate(argv[:-1]) if arg in flags]
    found += [arg.split("=", 1)[1] for arg in argv if arg.startswith("--config-dir=")]
    for folder in found:
        if not Path(folder).is_dir():
            raise InputError("expected a folder of configurations", got=folder, where="--config-dir")
    return [Path(folder).resolve() for folder in found]


def _make_importable(folders: Sequence[Path]) -> None:
    """Users have their own modules where they are, or beside their configurations."""
    sys.path += [str(folder) for folder in (Path.cwd(), *folders) if str(folder) not in sys.path]


def _parse(argv: Sequence[str]) -> Namespace:
    parser = get_args_parser()

    def fail(message: str) -> NoReturn:
        raise InputError(f"expected settings as key=value: {message}", where="the command line")

    parser.error = fail  # type: ignore[method-assign]  # by itself it prints pages
    return parser.parse_intermixed_args(argv)  # flags may stand between settings


def _written_out(name: str, override: str, multirun: bool) -> str:
    if override.startswith("trainer.") or (name == "train" and override.startswith("network.")):
        return f"++{override}"
    if override.startswith("run="):
        folder = override.removeprefix("run=")
        if not folder.strip("\"' "):
            raise InputError("expected a folder for the run", got="nothing", where="run")
        literal = folder if folder.startswith(("'", '"', "${")) else quote(folder)
        return f"hydra.{_mode(multirun)}.dir={literal}"
    return override


def _mode(multirun: bool) -> str:
    return "sweep" if multirun else "run"
