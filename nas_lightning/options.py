"""The options of configuration groups: our yaml files and those of `--config-dir`.

The first comment of a yaml is its line in `--help`. Two other comments are read by tests:

    # Small: space.nodes=1 supernet.channels=4    quick-run overrides
    # Yours: space.ops                            further arguments of the class, not in the yaml
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from nas_lightning.utils.files import read_text


def config_folder() -> Path:
    """Return the folder of the package's configurations."""
    inside = Path(__file__).parent / "conf"  # in an installed package; a checkout has it at the top level
    return inside if inside.is_dir() else Path(__file__).parents[1] / "conf"


def groups(folders: Iterable[Path] = ()) -> dict[str, dict[str, str]]:
    """Return the options of each group with their line in `--help`; nested options contain slashes."""
    return _groups(tuple(folders))


@cache
def _groups(folders: tuple[Path, ...]) -> dict[str, dict[str, str]]:
    options_of: dict[str, dict[str, str]] = {}
    for folder in (config_folder(), *folders):
        for path in sorted(folder.glob("*/**/*.yaml")):
            if path.name.startswith("_"):
                continue  # included by other yamls
            group, *rest = path.relative_to(folder).with_suffix("").parts
            options_of.setdefault(group, {})["/".join(rest)] = description(path)
    return options_of


def option_file(group: str, option: str, folders: Iterable[Path] = ()) -> Path:
    """Return the yaml of an option."""
    files = [folder / group / f"{option}.yaml" for folder in (*folders, config_folder())]
    return next(file for file in files if file.is_file())


def description(path: Path) -> str:
    """Return the first comment of a yaml that is not a directive of Hydra."""
    for line in read_text(path, errors="replace").splitlines():
        if line.startswith("#") and not line.startswith("# @"):
            return line.lstrip("# ").strip()
    return ""


def comment_words(path: Path, label: str) -> list[str]:
    """Return the words of the comment `# Label: …` and its indented lines, empty if there is none.

    >>> comment_words(option_file("space", "mlp"), "Small")
    ['space.layers=4', 'supernet.width=8', 'network.width=8']
    """
    pattern = rf"^# {label}: (.+(?:\n#   .+)*)$"
    comments = re.findall(pattern, read_text(path), re.MULTILINE)
    return shlex.split(" ".join(comments).replace("\n#", ""))
