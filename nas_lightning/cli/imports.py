"""Which folders modules are imported from: a user's own only where the command names something of theirs.

The current folder may be a stranger's, such as one that was downloaded: that a command is typed in it says
nothing of its modules.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.core.plugins import Plugins

_NAMING = ("operations", "ops", "modules")


def find_plugins() -> None:
    """Let Hydra import its plugins, of which there are none in the folders that are added later."""
    Plugins.instance()


def make_importable(folders: Sequence[Path], words: Sequence[str]) -> None:
    """Users have their own modules where they are, or beside their configurations."""
    if folders or any(names_module(word) for word in words):
        sys.path += [str(folder) for folder in (Path.cwd(), *folders) if str(folder) not in sys.path]


def names_module(word: str) -> bool:
    """Whether a setting names something that is imported: a class, operations or networks of a user's own.

    >>> [names_module(word) for word in ("strategy._target_=mine.Search", "operations=[mine.Conv]", "seed=1")]
    [True, True, False]
    """
    key, _, value = word.lstrip("+").partition("=")
    return "_target_" in word or (key.rpartition(".")[2] in _NAMING and "." in value) or key == "network.path"
