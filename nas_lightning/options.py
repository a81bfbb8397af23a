"""The options of configuration: groups of yaml files, ours and a user's own.

A yaml's comments say what its settings cannot. The first one is its line in `--help`; two others are words:

    # Small: space.nodes=1 supernet.channels=4    with which it takes seconds
    # Yours: space.ops                            what the class takes besides, for its user's own to pass
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from nas_lightning.utils.files import read_text


def config_folder() -> Path:
    """Where the package's configurations are."""
    inside = Path(__file__).parent / "conf"  # of an installed package; of a checkout beside it
    return inside if inside.is_dir() else Path(__file__).parents[1] / "conf"


def groups(folders: Iterable[Path] = ()) -> dict[str, dict[str, str]]:
    """Options and their one line, by group; nested options are named with slashes."""
    return _groups(tuple(folders))


@cache
def _groups(folders: tuple[Path, ...]) -> dict[str, dict[str, str]]:
    options_of: dict[str, dict[str, str]] = {}
    for folder in (config_folder(), *folders):
        for path in sorted(folder.glob("*/**/*.yaml")):
            if path.name.startswith("_"):
                continue  # a part of others
            group, *rest = path.relative_to(folder).with_suffix("").parts
            options_of.setdefault(group, {})["/".join(rest)] = description(path)
    return options_of


def option_file(group: str, option: str, folders: Iterable[Path] = ()) -> Path:
    """The yaml behind an option."""
    files = [folder / group / f"{option}.yaml" for folder in (*folders, config_folder())]
    return next(file for file in files if file.is_file())


def description(path: Path) -> str:
    """The first comment of a yaml that is no instruction to Hydra."""
    for line in read_text(path, errors="replace").splitlines():
        if line.startswith("#") and not line.startswith("# @"):
            return line.lstrip("# ").strip()
    return ""


def comment_words(path: Path, label: str) -> list[str]:
    """The words of the comment `# Label: …`, which goes on in lines that are indented; none without it.

    >>> comment_words(option_file("space", "mlp"), "Small")
    ['space.layers=4', 'supernet.width=8', 'network.width=8']
    """
    pattern = rf"^# {label}: (.+(?:\n#   .+)*)$"
    comments = re.findall(pattern, read_text(path), re.MULTILINE)
    return shlex.split(" ".join(comments).replace("\n#", ""))
