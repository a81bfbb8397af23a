"""What was typed, looked at before anything is imported or run: help, resuming, and mistakes in one line."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import yaml
from hydra import compose, initialize_config_module
from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from nas_lightning.cli.help import groups, help_text
from nas_lightning.errors import InputError, near_match

CHECKPOINT = "checkpoints/last.ckpt"


def prepare(name: str, argv: list[str]) -> list[str]:
    """The arguments that Hydra gets; exits after `--help`, raises an `InputError` for what cannot run."""
    folders = _config_dirs(argv)
    if {"--help", "-h"} & set(argv):
        print(help_text(name, folders))
        sys.exit()
    argv = _resume(argv)
    try:
        arguments = get_args_parser().parse_args(argv)
        overrides = OverridesParser.create().parse_overrides(arguments.overrides)
    except HydraException as error:
        raise InputError(_first_line(error), where="the command line") from None
    for override in overrides:
        _check_group(override, folders)
    _check_composition(name, overrides, folders)
    return argv


def _config_dirs(argv: list[str]) -> list[Path]:
    """The user's own configuration folders: --config-dir DIR, -cd DIR."""
    flags = ("--config-dir", "-cd")
    found = [argv[i + 1] for i, arg in enumerate(argv[:-1]) if arg in flags]
    found += [arg.split("=", 1)[1] for arg in argv if arg.startswith("--config-dir=")]
    for folder in found:
        if not Path(folder).is_dir():
            raise InputError("expected a folder of configurations", got=folder, where="--config-dir")
    return [Path(folder).resolve() for folder in found]


def _resume(argv: list[str]) -> list[str]:
    """`resume=<run>` stands for what was typed for that run, in that run's folder."""
    given = [arg.split("=", 1)[1] for arg in argv if arg.startswith("resume=")]
    if not given or given[-1] in ("", "null"):
        return argv
    run = Path(given[-1])
    typed = run / ".hydra" / "overrides.yaml"
    if not typed.is_file():
        raise InputError("expected the folder of an earlier run", got=str(run), where="resume")
    before = [o for o in yaml.safe_load(typed.read_text()) if not o.startswith(("resume=", "hydra."))]
    return [*before, *argv, f"hydra.run.dir={run}"]


def _check_group(override: Override, folders: list[Path]) -> None:
    known = groups(folders)
    group = override.key_or_group.lstrip("+~")
    if group not in known or override.is_delete():
        return
    for choice in _choices(override):
        if choice not in ("null", *known[group]):
            raise InputError(f"expected a {group} ({near_match(choice, known[group])})", got=choice)


def _choices(override: Override) -> Iterable[str]:
    if override.is_sweep_override():
        return [str(choice) for choice in override.sweep_string_iterator()]
    return ["null" if override.value() is None else str(override.value())]


def _check_composition(name: str, overrides: list[Override], folders: list[Path]) -> None:
    """Compose once, with the first choice of every sweep, for what only Hydra can find."""
    known = groups(folders)
    lines = []
    for override in overrides:
        key = override.get_key_element()
        if override.is_sweep_override():
            first = next(iter(override.sweep_string_iterator()))
            lines.append(f"{key}={first}")
        else:
            lines.append(override.input_line)
    if folders:
        lines.append(f"hydra.searchpath=[{','.join(f'file://{folder}' for folder in folders)}]")
    Plugins.instance()
    try:
        with initialize_config_module("nas_lightning.conf", version_base="1.3"):
            compose(name, lines, return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as error:
        message = _first_line(error)
        top = {line.split("=")[0].lstrip("+~").split(".")[0] for line in lines if "=" in line}
        unknown = [key for key in top if key not in known and f"'{key}'" in message]
        hint = f" ({near_match(unknown[0], known)})" if unknown else ""
        raise InputError(message + hint, where="the command line") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")
