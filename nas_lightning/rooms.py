"""A room's public names: what any file in it defines, so that an addition edits no list.

`nas_lightning.strategies.PRDarts` is what yamls, model files and people name, wherever in its room the class
stands; its file is imported when the name is first asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def names_of(room: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package: a class or function of that name, from the file that defines it.

    >>> names_of("nas_lightning.spaces")("DartsSpace").__module__
    'nas_lightning.spaces.darts.space'
    """

    def find(name: str) -> Any:
        if not name.startswith("_"):
            definition = re.compile(rf"^(?:class|def) {re.escape(name)}\b", re.MULTILINE)
            folder = Path(str(import_module(room).__file__)).parent
            for file in sorted(folder.rglob("[!_]*.py")):
                if definition.search(file.read_text(encoding="utf-8")):
                    path = file.relative_to(folder).with_suffix("").parts
                    return getattr(import_module(".".join([room, *path])), name)
        raise AttributeError(f"module {room!r} has no attribute {name!r}")

    return find
