"""What `torch.compile` needs of a machine, asked for before a run begins instead of in its first step."""

from __future__ import annotations

import os
import shutil
import sys

from nas_lightning.errors import InputError

_OF_PLATFORM = {"darwin": "clang++", "win32": "cl"}


def check_compiler(where: str) -> None:
    """Raise unless there is the C++ compiler that torch calls: `CXX`, or the platform's own.

    Args:
        where: the setting that asks for it.
    """
    name = os.environ.get("CXX") or _OF_PLATFORM.get(sys.platform, "g++")
    if shutil.which(name) is None and "TORCH_INDUCTOR_INSTALL_GXX" not in os.environ:  # which torch heeds
        expected = f"expected the C++ compiler {name}, which torch.compile calls, or another in CXX"
        raise InputError(expected, got="no such command", where=where)
