"""Commands on pages, written so that they run from any folder."""

from __future__ import annotations

import shlex
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

IN_PYTHON = "Use it in Python"  # the purpose of Python code
_CHECKOUT = Path(__file__).parents[2]


def program(name: str) -> list[str]:
    """Return the start of a command line that runs `search`, `train`, or another command from anywhere.

    >>> program("train")[-1].endswith(("nas-train", "train.py"))
    True
    """
    command, script = f"nas-{name}", _CHECKOUT / f"{name}.py"
    installed = shutil.which(command, path=sysconfig.get_path("scripts"))
    if installed is not None:
        return [command if shutil.which(command) == installed else installed]
    if script.is_file():  # a checkout that is not installed
        return [sys.executable, str(script)]
    return [sys.executable, "-m", f"nas_lightning.cli.{name}"]


def from_anywhere(commands: Mapping[str, str]) -> dict[str, str]:
    """Return shell commands that change to the current folder first.

    >>> from_anywhere({"Train it": "nas-train", IN_PYTHON: "x = 1"})[IN_PYTHON]
    'x = 1'
    """
    here = f"cd {shlex.quote(str(Path.cwd()))} && "
    return {what: typed if what == IN_PYTHON else here + typed for what, typed in commands.items()}
