"""The words of a command line: flags, shorthands and settings.

Five things are shorthands, which become what Hydra understands:

    run=DIR          the folder that the run is written to
    resume=DIR       what was typed for the run in that folder, and that folder again
    network.KEY=…    the sizes of a network, which are known only when its space is
    trainer.KEY=…    any of the trainer's arguments, whether or not the configuration mentions it
    hydra.sweeper.params.KEY=…    what a sweep varies, as configurations have it: KEY=…
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hydra._internal.utils import get_args_parser

from nas_lightning.errors import InputError
from nas_lightning.options import top_names
from nas_lightning.utils.text import quote

_SWEPT = re.compile(r"\+*hydra\.sweeper\.params\.([^=]+)=(.*)", re.DOTALL)
_QUOTES = "\"'"


def strip_dashes(script: str, argv: Sequence[str]) -> list[str]:
    """Settings that were typed as flags, as other programs have them, are settings.

    >>> strip_dashes("search", ["--strategy.lr=0.1", "--config-dir=mine", "seed=1", "--trust"])
    ['strategy.lr=0.1', '--config-dir=mine', 'seed=1', '--trust']
    """
    known = top_names(script)

    def strip(word: str) -> str:
        bare = word.removeprefix("--")
        key, separator, _ = bare.partition("=")
        return bare if separator and re.split("[./]", key)[0] in known else word

    return [strip(word) for word in argv]


def parse_flags(argv: Sequence[str]) -> Namespace:
    """Hydra's flags, and the settings under `overrides`."""
    parser = get_args_parser()
    parser.add_argument("--trust", action="store_true")

    def fail(message: str) -> NoReturn:
        raise InputError(f"expected settings as key=value: {message}", where="the command line")

    parser.error = fail  # type: ignore[method-assign]  # by itself it prints pages
    return parser.parse_intermixed_args(argv)  # flags may stand between settings


def config_folders(argv: Sequence[str]) -> tuple[Path, ...]:
    """The user's own folders of configurations: --config-dir DIR, -cd DIR."""
    flags = ("--config-dir", "-cd")
    typed = [argv[i + 1] for i, arg in enumerate(argv[:-1]) if arg in flags]
    typed += [arg.split("=", 1)[1] for arg in argv if arg.startswith("--config-dir=")]
    for folder in typed:
        if not Path(folder).is_dir():
            raise InputError("expected a folder of configurations", got=folder, where="--config-dir")
    return tuple(Path(folder).resolve() for folder in typed)


def expand_shorthand(script: str, word: str, sweep: bool) -> str:
    """A setting as Hydra understands it.

    >>> expand_shorthand("search", "trainer.precision=16", False), expand_shorthand("search", "run=a b", True)
    ('++trainer.precision=16', 'hydra.sweep.dir="a b"')
    """
    if sweep and (swept := _SWEPT.fullmatch(word)):
        return expand_shorthand(script, f"{swept[1]}={swept[2].strip(_QUOTES)}", sweep)
    if word.startswith("trainer.") or (script == "train" and word.startswith("network.")):
        return f"++{word}"
    if word.startswith("run="):
        folder = word.removeprefix("run=")
        if not folder.strip("\"' "):
            raise InputError("expected a folder for the run", got="nothing", where="run")
        if folder.startswith("~"):
            folder = str(Path(folder).expanduser())
        literal = folder if folder.startswith(("'", '"', "${")) else quote(folder)
        return f"{folder_key(sweep)}={literal}"
    return word


def folder_key(sweep: bool) -> str:
    """Where Hydra has the folder of a run or of a sweep."""
    return "hydra.sweep.dir" if sweep else "hydra.run.dir"
