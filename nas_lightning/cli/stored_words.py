"""What the words in a run's record may say: the folder may be a stranger's, so they are data and no command.

A stored word chooses among the options of our configuration or of a `--config-dir` that is typed now, and
sets what they have to plain values. What it says besides is refused, with the word to be typed: classes and
operations by their dotted names, settings of Hydra, references that are more than another setting's name,
and places to write to.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from hydra.core.override_parser.types import Glob, Override
from omegaconf import DictConfig, ListConfig

from nas_lightning.cli.composition import parse
from nas_lightning.errors import InputError, near_match
from nas_lightning.options import config_folder, groups
from nas_lightning.runs.record import Record, look_up
from nas_lightning.utils.files import read_text

MOST_WORDS, LONGEST_WORD, DEEPEST = 1000, 10_000, 20  # far above what anybody types
_KEY = re.compile(r"[A-Za-z_][\w-]*([./][\w-]+)*")
_REFERENCE = re.compile(r"\$\{(?!hydra\b)[A-Za-z_]\w*(\.\w+)*\}")
_HYDRAS = ("hydra", "run", "resume")
_PLACED = ("callbacks", "logger", "trainer")
"""Groups whose parts write files: a stored word gives them no path and adds nothing to them."""
_OF_SWEEP = re.compile(r"\+*hydra\.(sweeper\.[a-z]\w*=[\w.,[\]-]+|launcher\.[a-z]\w*=\d+)")
_OF_FOLDER = ("hydra.sweep.dir=", "hydra.mode=")
_OBJECTS = ("trainer.logger", "trainer.callbacks", "trainer.profiler", "trainer.plugins")


class Leaf(NamedTuple):
    """A plain value in a word, and the names that lead to it."""

    path: tuple[str, ...]  # the outermost first
    value: object  # a number, a text, true, false or None


def own_words(words: Sequence[str], folders: Sequence[Path] = ()) -> list[str]:
    """The words that a record alone does not bring back: whoever goes on with the run types them again."""
    return [word for word in words if _reason(word, folders)]


def sweep_words(record: Record, typed: Sequence[str], *, trust: bool) -> list[str]:
    """Settings of a sweep's sweeper and launcher that go on with it, where others are not typed.

    Of a stranger's those that are numbers and names; what says which launcher it is goes with its settings.
    """
    lines = look_up(record.hydra, "overrides", "hydra")
    stored = [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
    asked = {word.lstrip("+").split("=")[0] for word in typed}
    of_hydra = any(line.startswith("hydra/launcher=") for line in stored)
    if asked & {"launcher", "hydra/launcher"} or (of_hydra and not trust):
        stored = [
            line for line in stored if not line.lstrip("+").startswith(("hydra.launcher", "hydra/launcher"))
        ]
    stored = [line for line in stored if line.lstrip("+").split("=")[0] not in asked]
    return [line for line in stored if comes_back(line) or (trust and not line.startswith(_OF_FOLDER))]


def comes_back(word: str) -> bool:
    """Whether it is a sweep's setting that its record brings back, whoever has written that."""
    return _OF_SWEEP.fullmatch(word) is not None


def check_stored(words: Sequence[str], folders: Sequence[Path], where: Path) -> None:
    """Raise for the first stored word that says more than words of a stranger's may."""
    if len(words) > MOST_WORDS:
        raise InputError(f"expected at most {MOST_WORDS} settings", got=len(words), where=where)
    for word in words:
        if reason := _reason(word, folders):
            expected = f"expected {reason}; where it is to count, type it again, or --trust for your own run"
            raise InputError(expected, got=word, where=where)


def check_folders(record: Record, typed: Sequence[Path]) -> None:
    """Raise where the run had configurations of somebody's own and none are typed."""
    if record.folders and not typed:
        flags = shlex.join(part for folder in record.folders for part in ("--config-dir", str(folder)))
        raise InputError(
            f"expected {flags}, which the run was started with (if what is in there is yours)",
            got="none",
            where="resume",
        )


def check_stored_targets(config: DictConfig, folders: Sequence[Path], typed: Sequence[str]) -> None:
    """Raise for a class that neither our configurations name, nor those typed now, nor a typed word."""
    allowed = _targets(config_folder()).union(*map(_targets, folders))
    for target in _composed_targets(config):
        if target not in allowed and not any(target in word for word in typed):
            raise InputError("expected a class that a typed configuration names", got=target, where="resume")


def _reason(word: str, folders: Sequence[Path]) -> str | None:
    """What should have stood there instead of this stored word; None: it may stay."""
    if len(word) > LONGEST_WORD:
        return f"a setting of at most {LONGEST_WORD} characters"
    try:
        override = parse([word])[0]
        leaves = list(_leaves(override))
    except (InputError, RecursionError):
        return "a setting key=value"
    return _reason_of_key(override, folders) or next(filter(None, map(_reason_of_leaf, leaves)), None)


def _reason_of_key(override: Override, folders: Sequence[Path]) -> str | None:
    key, known = str(override.key_or_group), groups(folders)
    for name in (key, override.package or "plain"):
        if not _KEY.fullmatch(name) or re.split("[./]", name)[0] in _HYDRAS:
            return "a setting that is not Hydra's"
    if key in known and not override.is_delete():
        value = _values(override)
        for choice in value if isinstance(value, list) else [value]:
            if choice is not None and str(choice) not in known[key]:
                return f"an option of {key} ({near_match(str(choice), known[key])})"
    elif "/" in key:
        return "a group of options that exists"
    added = override.is_add() or override.is_force_add()
    if added and key not in known and key.split(".")[0] in _PLACED and not key.startswith("trainer."):
        return f"a setting that {key.split('.')[0]} has"
    return None


def _reason_of_leaf(leaf: Leaf) -> str | None:
    top, last, key = leaf.path[0], leaf.path[-1], ".".join(leaf.path)
    text = leaf.value if isinstance(leaf.value, str) else ""
    if not isinstance(leaf.value, (str, int, float, bool, type(None))):
        return "a plain value"
    if any(part.startswith("_") for part in leaf.path):
        return "a setting, and no class to build"
    if any(map(_is_path, leaf.path)):
        return "a setting with a plain name"
    if "${" in _REFERENCE.sub("", text):
        return "a value, or a reference to another setting"
    placed = (top, last) in places() and leaf.value is not None  # null: nothing is written
    if placed or key.startswith(_OBJECTS) or (top in _PLACED and _is_path(text)):
        return "no place that files are written to"
    if top == "modules" or (top == "network" and last == "path"):
        return "no module of somebody's own"
    if top == "operations" or (top == "space" and "." in text):
        return "the name of an operation of ours"
    if last in ("download", "trust") and leaf.value not in (False, None):
        return f"{last}=false"
    return None


def _is_path(text: str) -> bool:
    return bool({*"/\\~"} & {*text}) or ".." in text


def _leaves(override: Override) -> Iterator[Leaf]:
    path = tuple(str(override.key_or_group).split("."))
    yield from _walk(None if override.is_delete() else _values(override), path)


def _values(override: Override) -> Any:
    """The value, or all that a sweep gives it."""
    value = override.value()
    if not override.is_sweep_override() or isinstance(value, Glob):
        return value
    return [*override.sweep_iterator()] if override.is_discrete_sweep() else None  # an interval


def _walk(value: Any, path: tuple[str, ...]) -> Iterator[Leaf]:
    if len(path) > DEEPEST:
        raise RecursionError
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield Leaf((*path, str(name)), None)
            yield from _walk(item, (*path, *str(name).split(".")))
    elif isinstance(value, list) and value:
        for item in value:
            yield from _walk(item, path)
    else:
        yield Leaf(path, None if value in ({}, []) else value)


@cache
def places() -> frozenset[tuple[str, str]]:
    """(group, name) of all settings of ours that lie in the run's folder by default."""
    found = set()
    for file in config_folder().rglob("*.yaml"):
        group = file.relative_to(config_folder()).parts[0].removesuffix(".yaml")
        for leaf in _walk(yaml.safe_load(read_text(file)), (group,)):
            if "${run}" in str(leaf.value):
                at_top = group in ("base", "search", "train", "analyze")
                found.add((leaf.path[1] if at_top else group, leaf.path[-1]))
    return frozenset(found)


@cache
def _targets(folder: Path) -> frozenset[str]:
    """The classes that the yamls of a folder name."""
    lines = re.compile(r"_target_: *[\"']?([\w.]+)")
    texts = (read_text(file, errors="replace") for file in folder.rglob("*.yaml"))
    return frozenset(target for text in texts for target in lines.findall(text))


def _composed_targets(node: Any) -> Iterator[str]:
    """Those of a configuration, without Hydra's own part."""
    if isinstance(node, DictConfig) and not node._is_none() and not node._is_missing():
        for name, value in node.items_ex(resolve=False):
            if name == "_target_":
                yield str(value)
            elif name != "hydra":
                yield from _composed_targets(value)
    elif isinstance(node, ListConfig) and not node._is_none() and not node._is_missing():
        for value in node._iter_ex(resolve=False):
            yield from _composed_targets(value)
