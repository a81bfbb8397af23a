"""What `torch.compile` needs of a machine, asked for before a run begins instead of in its first step."""

from __future__ import annotations

import logging
import os
import shutil
import sys

from nas_lightning.errors import InputError

log = logging.getLogger(__name__)
_OF_PLATFORM = {"darwin": "clang++", "win32": "cl"}


def prepare_compiler(where: str) -> None:
    """Say that the first steps are slow; raise unless there is the C++ compiler that torch calls.

    That is `CXX`, or the platform's own.

    Args:
        where: the setting that asks for it.
    """
    name = os.environ.get("CXX") or _OF_PLATFORM.get(sys.platform, "g++")
    if shutil.which(name) is None and "TORCH_INDUCTOR_INSTALL_GXX" not in os.environ:  # which torch heeds
        expected = f"expected the C++ compiler {name}, which torch.compile calls, or another in CXX"
        raise InputError(expected, got="no such command", where=where)
    log.info(
        "torch.compile works in the first steps, for minutes; TORCHINDUCTOR_CACHE_DIR keeps what it made"
    )
