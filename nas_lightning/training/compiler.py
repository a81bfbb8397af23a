"""What `torch.compile` needs of a machine, asked for before a run begins instead of in its first step."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from nas_lightning.errors import InputError

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
_OF_PLATFORM = {"darwin": "clang++", "win32": "cl"}


def prepare_compiler(where: str) -> None:
    """Say that the first steps are slow; raise unless there is the C++ compiler that torch calls.

    That is `CXX`, or the platform's own. Where there is a GPU, for which torch has another way, none is
    asked for.

    Args:
        where: the setting that asks for it.
    """
    name = os.environ.get("CXX") or _OF_PLATFORM.get(sys.platform, "g++")
    needed = not torch.accelerator.is_available() and "TORCH_INDUCTOR_INSTALL_GXX" not in os.environ
    if needed and shutil.which(name) is None:
        expected = f"expected the C++ compiler {name}, which torch.compile calls, or another in CXX"
        raise InputError(expected, got="no such command", where=where)
    log.info(
        "torch.compile works in the first steps, for minutes; TORCHINDUCTOR_CACHE_DIR keeps what it made"
    )


def compiled(function: Callable[P, T], where: str) -> Callable[P, T]:
    """What `torch.compile` makes of it, once everything that takes is there."""
    prepare_compiler(where)
    return torch.compile(function)
