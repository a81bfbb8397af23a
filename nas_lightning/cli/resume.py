"""`resume=DIR`: continue a run from the configuration that it saved, or a sweep (`-m`) from its overrides.

The folder may be a stranger's, so what it says is data. The saved configuration becomes Hydra's primary
configuration, under the values that are typed now; its classes must be named by our yamls, by those of a
`--config-dir`, or on this command line, and its files lie in its own folder. `trust=true` skips these checks.
"""

from __future__ import annotations

import argparse
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from nas_lightning.cli.sweep import expand_sweeps
from nas_lightning.errors import InputError
from nas_lightning.files import check_contents, read_text
from nas_lightning.options import config_folder
from nas_lightning.runs.folder import RunFolder, is_requeued
from nas_lightning.runs.record import Record, look_up
from nas_lightning.text import quote

PREFIX = "resumed_"
"""Of the name of the primary configuration of a run that is resumed."""
OF_FOLDER = ("run=", "resume=", "trust=")
"""Overrides that say where a run is, and nothing of the run."""
KEPT = (
    *("space", "supernet", "genotype", "network", "dataset", "search_data", "strategy", "limits"),
    *("derivation", "retrain", "init", "ensemble", "study", "seed"),
    *("trainer.max_epochs", "trainer.max_steps", "trainer.max_time"),
)
"""Settings that decide the result: a resumed run has those of the stopped one."""
MOVABLE = (
    *(".root", ".download", ".num_workers", ".in_memory", ".eval_batch_size", ".workers", ".cells"),
    "study.scores",
)
"""Exceptions: where the data are and how they are read, and how much a study looks at."""
_NAMING = ("operations", "ops", "modules")
_SWEEPER = re.compile(r"\+*hydra\.(sweeper\.[a-z]\w*=[\w.,[\]-]+|launcher\.[a-z]\w*=\d+)")
_WRITING = ("callbacks", "logger", "trainer")
"""Groups whose classes write files."""
_REFERENCE = re.compile(r"\$\{[A-Za-z_]\w*(\.\w+|\[\w+\])*\}")
"""To another setting, which computes nothing."""
_SPECIAL = ("_target_", "_convert_", "_partial_", "_recursive_")


def prepare_arguments(script: str) -> str:
    """Rewrite `sys.argv` for Hydra and return the name of the primary configuration.

    `resume=` and, in sweeps, folders of earlier sweeps are what Hydra does not know.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--config-dir", "-cd", type=Path)
    flags, rest = parser.parse_known_args(sys.argv[1:])
    overrides = [word for word in sys.argv[1:] if "=" in word and not word.startswith("-")]
    options = [word for word in sys.argv[1:] if word not in overrides]
    sys.argv[1:] = [*options, *overrides]  # as Hydra expects them
    folders = [] if flags.config_dir is None else [flags.config_dir]
    if not flags.multirun and is_requeued() and (run := _value(rest, "run")) and RunFolder(run).has_record:
        rest = [f"resume={quote(run)}", "trust=true"]  # SLURM types the command of the start again
        sys.argv[1:] = [*options, *rest]
    if folders or any(map(names_module, rest)):
        sys.path += [str(path) for path in (Path.cwd(), *folders) if str(path) not in sys.path]
    resume, trust = _value(rest, "resume"), _value(rest, "trust") == "true"
    if resume is None:
        if flags.multirun:
            sys.argv[1:] = [expand_sweeps(word) for word in sys.argv[1:]]
        return script
    record = read_start(script, Path(resume), sweep=flags.multirun)
    if not trust:
        check_contents(resume)
    if flags.multirun:
        sys.argv[1:] = [*options, *saved_overrides(record, rest), *overrides]
        return script
    node = {name: value for name, value in record.config.items() if name not in ("defaults", "hydra")}
    if not trust:
        check_saved(node, folders, rest)
    node = {"defaults": ["_hydra", "_self_"], **node, "hydra": {"job": {"name": script}}}
    ConfigStore.instance().store(name=f"{PREFIX}{script}", node=node)
    return f"{PREFIX}{script}"


def names_module(word: str) -> bool:
    """Whether an override names something that is imported: a class, operations, or networks of a user.

    >>> [names_module(word) for word in ("strategy._target_=mine.Search", "operations=[mine.Conv]", "seed=1")]
    [True, True, False]
    """
    key, _, value = word.lstrip("+").partition("=")
    named = key.rpartition(".")[2] in _NAMING and "." in value
    return named or "_target_" in word or key == "network.path" or word == "trust=true"


def _value(words: Sequence[str], key: str) -> str | None:
    """The last value that was typed for a key; None for null."""
    values = [word.partition("=")[2].strip("\"'") for word in words if word.startswith(f"{key}=")]
    return values[-1] if values and values[-1] != "null" else None


def read_start(script: str, path: Path, *, sweep: bool) -> Record:
    """Return the record of a run or sweep to resume.

    Raises:
        InputError: there is none, it is of another script, or its checkpoint is damaged.
    """
    run = RunFolder(path)
    if not run.has_record or not run.record.config:
        raise InputError(f"No run in `{path}`. Pass the folder of an earlier run.")
    record = run.record
    if record.script != script:
        raise InputError(f"`{path}` is a run of {record.script or 'another script'}, not of {script}.")
    if record.is_sweep != sweep:
        kind, fix = ("sweep", "Add -m") if record.is_sweep else ("single run", "Leave out -m")
        raise InputError(f"`{path}` is a {kind}. {fix}.")
    if run.checkpoint.exists() and not _is_intact(run.checkpoint):
        raise InputError(f"The checkpoint `{run.checkpoint}` is damaged.")
    return record


def _is_intact(file: Path) -> bool:
    """Whether every part of the archive that torch saved has its checksum."""
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError):
        return False


def saved_overrides(record: Record, typed: Sequence[str]) -> list[str]:
    """The overrides of a saved sweep that are not typed anew; settings of Hydra itself only if plain.

    The jobs check what is composed of them.
    """
    of_hydra = look_up(record.hydra, "overrides", "hydra")
    plain = [word for word in of_hydra or () if isinstance(word, str) and _SWEEPER.fullmatch(word)]
    for word in record.words:
        key = word.lstrip("+~").partition("=")[0]
        if "${" in word or "@" in key or key.startswith(("hydra", "-")) or not re.match(r"[A-Za-z]", key):
            raise InputError(
                f"The sweep was started with `{word}`: type its command again instead of resume=."
            )
    own = [word for word in record.words if not word.startswith(OF_FOLDER)]
    replaced = {word.lstrip("+~").partition("=")[0] for word in typed}
    return [word for word in (*plain, *own) if word.lstrip("~").partition("=")[0] not in replaced]


# What a saved configuration may say


@dataclass(frozen=True)
class Known:
    """What the yamls of a folder of configurations say.

    Args:
        targets: the arguments that each class is given, by its dotted name.
        values: all texts.
        outputs: (top, last) names of settings in the run's folder.
    """

    targets: dict[str, set[str]] = field(default_factory=dict)
    values: set[str] = field(default_factory=set)
    outputs: set[tuple[str, str]] = field(default_factory=set)

    def add(self, node: Any, path: tuple[str, ...]) -> None:
        """Take in a yaml's content that belongs at `path`."""
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
    """Raise for the first thing in a saved configuration that would run foreign code or write elsewhere.

    Args:
        config: as it was composed, with references to other settings.
        folders: configurations that the user has named now.
        typed: overrides of this command, which may say anything.
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
    """Why a setting is not taken from a saved configuration; None if it is."""
    top, last = path[0], path[-1]
    text = value if isinstance(value, str) else ""
    if last == "_target_":
        named = text in known.targets or any(text in word for word in typed)
        return None if named and text else "names a class of its own"
    if last.startswith("_") and last not in _SPECIAL:
        return "has an argument without a name"
    in_run = text == "${run}" or (text.startswith("${run}/") and ".." not in text and text.count("${") == 1)
    if value is not None and (top, last) in known.outputs and not in_run:
        return "writes elsewhere"
    if top in _WRITING and not in_run and text not in known.values and {*"/\\~"} & {*text}:
        return "names a path"
    if top in _WRITING[:2] and target is not None and last not in known.targets.get(target, ()):
        return "has a further argument"
    own = [name for name in path if name in _NAMING]
    if (own and "." in text) or (path[:1] == ("modules",)) or name_of(path) == "network.path":
        return "names a module of its own" if text else None
    return "downloads or trusts something" if last in ("download", "trust") and value else None


def name_of(path: Sequence[str]) -> str:
    """A setting's dotted name."""
    return ".".join(path)


def _leaves(
    node: Any, path: tuple[str, ...] = (), target: str | None = None
) -> Iterator[tuple[tuple[str, ...], Any, str | None]]:
    """Each plain value with the names that lead to it and the class whose argument it is."""
    if isinstance(node, Mapping) and node:
        inner = node.get("_target_")
        for name, value in node.items():
            yield from _leaves(value, (*path, str(name)), inner if isinstance(inner, str) else None)
    elif isinstance(node, list):
        for value in node:
            yield from _leaves(value, path, target)
    elif path:
        yield path, node, target


# What a resumed run keeps


def check_kept(old: Mapping[str, Any], new: Mapping[str, Any], where: object) -> None:
    """Raise for the first setting, classes before others, that decides the result and has changed."""
    before, now = kept_settings(old), kept_settings(new)
    for key in sorted({*before, *now}, key=lambda key: (not key.endswith("_target_"), key)):
        if before.get(key) != now.get(key):
            old_value, new_value = _show(before, key), _show(now, key)
            raise InputError(
                f"`{key}` cannot change in a resumed run: {old_value} in `{where}`, {new_value} now."
            )


def kept_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide the result, by their dotted names; those that are null count as missing."""
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
