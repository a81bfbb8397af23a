"""What to type instead of a setting that there is not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from omegaconf import DictConfig

from nas_lightning.errors import choose_from
from nas_lightning.options import groups, option_file
from nas_lightning.utils.files import read_text


def suggest(config: DictConfig, key: str, folders: Sequence[Path]) -> str:
    """Which option has the setting, else which setting is like it."""
    return _parts(key, folders) or _owners(config, key, folders) or _suggestion(config, key)


def _parts(key: str, folders: Sequence[Path]) -> str:
    """The options of parts that have it, such as arch_optimizer=adam for strategy.arch_optimizer.betas."""
    parent, _, leaf = key.rpartition(".")
    header = re.compile(rf"^# @package {re.escape(parent)}$", re.MULTILINE)
    for group, options in groups(folders).items():
        owners = [o for o in options if _has_setting(option_file(group, o, folders), leaf, header)]
        if owners:
            return f"{group}={' or '.join(owners)} has it"
    return ""


def _has_setting(file: Path, name: str, header: re.Pattern[str] | None = None) -> bool:
    text = read_text(file)
    line = rf"^ *{re.escape(name)}:"
    return bool((header is None or header.search(text)) and re.search(line, text, re.MULTILINE))


def _owners(config: DictConfig, key: str, folders: Sequence[Path]) -> str:
    """The options of the setting's group that have it, where the chosen one does not."""
    group, _, leaf = key.partition(".")
    if not leaf or group not in config.hydra.runtime.choices:
        return ""
    options, name = groups(folders).get(group, {}), leaf.rpartition(".")[2]
    owners = [option for option in options if _has_setting(option_file(group, option, folders), name)]
    return f"{group}={' or '.join(owners)} has it" if owners else ""


def _suggestion(config: DictConfig, key: str) -> str:
    """The setting of that name elsewhere, else the one spelled most like it, else what there is."""
    hydras = key.startswith("hydra.")
    names = [name for name in _names(config) if name.startswith("hydra.") == hydras]
    parent, _, leaf = key.rpartition(".")
    siblings = [name for name in names if name.rpartition(".")[0] == parent]
    candidates = siblings if parent and siblings else names
    outermost_last = sorted(candidates, key=lambda name: -name.count("."))
    leaves = {name.rpartition(".")[2]: name for name in outermost_last}
    if near := get_close_matches(leaf, leaves, 1):
        return f"did you mean {leaves[near[0]]!r}?"
    if near := get_close_matches(key, names, 1, cutoff=0.75):
        return f"did you mean {near[0]!r}?"
    return choose_from(siblings) if siblings else "--cfg job prints them all"


def _names(config: DictConfig, prefix: str = "") -> Iterator[str]:
    for name, value in config.items_ex(resolve=False):
        key = str(name)
        yield f"{prefix}{key}"
        if isinstance(value, DictConfig) and not value._is_none() and not value._is_interpolation():
            yield from _names(value, f"{prefix}{key}.")
