"""Check saved configurations: that they run no foreign code, and that a resumed run has the same settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from nas_lightning.errors import InputError
from nas_lightning.options import config_folder
from nas_lightning.utils.files import read_text

OF_FOLDER = ("run=", "resume=", "trust=")
"""Overrides that locate a run's folder and are not part of its record."""
KEPT = (
    *("space", "supernet", "genotype", "network", "dataset", "search_data", "strategy", "limits"),
    *("derivation", "retrain", "pretrained", "ensemble", "study", "seed"),
    *("trainer.max_epochs", "trainer.max_steps", "trainer.max_time"),
)
"""Settings that affect the result and cannot change when a run is resumed."""
MOVABLE = (
    *(".root", ".download", ".num_workers", ".in_memory", ".eval_batch_size", ".workers", ".cells"),
    "study.scores",
)
"""Exceptions: location and loading of the data, and the number of architectures of a study."""
_NAMING = ("operations", "ops", "modules")
_WRITING = ("callbacks", "logger", "trainer")
"""Groups whose classes write files."""
_REFERENCE = re.compile(r"\$\{[A-Za-z_]\w*(\.\w+|\[\w+\])*\}")
"""A plain interpolation of another setting, without a resolver."""
_SPECIAL = ("_target_", "_convert_", "_partial_", "_recursive_")


# Check that a saved configuration is safe


@dataclass(frozen=True)
class Known:
    """Names and values in trusted yamls.

    Args:
        targets: the configured arguments of each class, by its dotted name.
        values: all strings.
        outputs: (first, last) parts of the names of settings whose path is in the run's folder.
    """

    targets: dict[str, set[str]] = field(default_factory=dict)
    values: set[str] = field(default_factory=set)
    outputs: set[tuple[str, str]] = field(default_factory=set)

    def add(self, node: Any, path: tuple[str, ...]) -> None:
        """Add the content of a yaml that belongs at `path`."""
        if isinstance(node, Mapping):
            if isinstance(node.get("_target_"), str):
                self.targets.setdefault(node["_target_"], set()).update(map(str, node))
            for name, value in node.items():
                self.add(value, (*path, str(name)))
        elif isinstance(node, list):
            for value in node:
                self.add(value, path)
        elif isinstance(node, str):
            self.values.add(node)
            if "${run}" in node:
                self.outputs.add((path[0], path[-1]))


@cache
def _known(folders: tuple[Path, ...]) -> Known:
    known = Known()
    for folder in folders:
        for file in sorted(folder.rglob("*.yaml")):
            text = read_text(file, errors="replace")
            group = file.relative_to(folder).parts[:1] if file.parent != folder else ()
            known.add(yaml.safe_load(text), () if "# @package _global_" in text else group)
    return known


def check_saved(config: Mapping[str, Any], folders: Sequence[Path] = (), typed: Sequence[str] = ()) -> None:
    """Raise if a saved configuration could run foreign code or write outside of the run's folder.

    Args:
        config: the composed configuration, with interpolations.
        folders: folders of `--config-dir`, which are trusted.
        typed: overrides of this command, which are trusted.

    Raises:
        InputError: The first unsafe setting.
    """
    known = _known((config_folder(), *folders))
    keys = tuple(f"{word.lstrip('+').partition('=')[0]}." for word in typed)
    for path, value, _ in _leaves(config):
        typed_now = f"{name_of(path)}.".startswith(keys)
        if isinstance(value, str) and "${" in _REFERENCE.sub("", value) and not typed_now:
            raise InputError(
                f"The saved configuration computes something: `{name_of(path)}` is {value!r:.100}."
            )
    plain: Any = OmegaConf.to_container(OmegaConf.create({**config, "run": r"\${run}"}), resolve=True)
    for path, value, target in _leaves(plain):
        name = ".".join(path)
        if not f"{name}.".startswith(keys) and (reason := _refusal(path, value, target, known, typed)):
            raise InputError(
                f"The saved configuration {reason}: `{name}` is {value!r:.100}. Type it again, pass the"
                " --config-dir of the run, or trust=true if the folder is yours."
            )


def _refusal(
    path: tuple[str, ...], value: Any, target: str | None, known: Known, typed: Sequence[str]
) -> str | None:
    """Return the reason why a setting of a saved configuration is unsafe, None if it is safe."""
    top, last = path[0], path[-1]
    text = value if isinstance(value, str) else ""
    if last == "_target_":
        named = text in known.targets or any(text in word for word in typed)
        return None if named and text else "names a custom class"
    if last.startswith("_") and last not in _SPECIAL:
        return "has an argument without a name"
    in_run = text == "${run}" or (text.startswith("${run}/") and ".." not in text and text.count("${") == 1)
    if value is not None and (top, last) in known.outputs and not in_run:
        return "writes elsewhere"
    if top in _WRITING and not in_run and text not in known.values and {*"/\\~"} & {*text}:
        return "names a path"
    if top in _WRITING[:2] and target is not None and last not in known.targets.get(target, ()):
        return "adds an argument"
    own = [name for name in path if name in _NAMING]
    if (own and "." in text) or (path[:1] == ("modules",)) or name_of(path) == "network.path":
        return "names a custom module" if text else None
    return "downloads or trusts something" if last in ("download", "trust") and value else None


def name_of(path: Sequence[str]) -> str:
    """Return the dotted name of a setting."""
    return ".".join(path)


def _leaves(
    node: Any, path: tuple[str, ...] = (), target: str | None = None
) -> Iterator[tuple[tuple[str, ...], Any, str | None]]:
    """Yield the path and value of each leaf, and the class whose argument it is."""
    if isinstance(node, Mapping) and node:
        inner = node.get("_target_")
        for name, value in node.items():
            yield from _leaves(value, (*path, str(name)), inner if isinstance(inner, str) else None)
    elif isinstance(node, list):
        for value in node:
            yield from _leaves(value, path, target)
    elif path:
        yield path, node, target


# Check that a resumed run has the same settings


def check_kept(old: Mapping[str, Any], new: Mapping[str, Any], where: object) -> None:
    """Raise if a setting that affects the result has changed; changed classes are reported first."""
    before, now = kept_settings(old), kept_settings(new)
    for key in sorted({*before, *now}, key=lambda key: (not key.endswith("_target_"), key)):
        if before.get(key) != now.get(key):
            old_value, new_value = _show(before, key), _show(now, key)
            raise InputError(
                f"`{key}` cannot change in a resumed run: {old_value} in `{where}`, {new_value} now."
            )


def kept_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that affect the result by their dotted names, without those that are null."""
    names = tuple(f"{name}." for name in KEPT)
    leaves: dict[str, list[Any]] = {}
    for path, value, _ in _leaves(config):
        leaves.setdefault(name_of(path), []).append(value)
    return {
        key: values
        for key, values in leaves.items()
        if f"{key}.".startswith(names) and not key.endswith(MOVABLE) and values != [None]
    }


def _show(settings: Mapping[str, list[Any]], key: str) -> str:
    values = settings.get(key, [None])
    return str(values[0] if len(values) == 1 else values)
