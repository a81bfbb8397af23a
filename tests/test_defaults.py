"""One truth: what a class has by default is what its yaml has; every argument is offered, or the user's own.

A yaml with a `_target_` of its own is that class's. One that builds on another option, such as a training for
fine-tuning, says only what it changes; a paper's values are in `conf/experiment`.
"""

import copy
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf

from nas_lightning.cli.build import check_targets
from nas_lightning.options import comment_words, config_folder
from nas_lightning.strategies.one_shot.strategy import CLASS_DEFAULT, list_terms
from tests.yamls import composed, file, options

REQUIRED = inspect.Parameter.empty
PARTS = {"space", "supernet", "network", "data", "benchmark", "objectives", "num_classes", "params"}
"""Arguments that the commands hand over, whoever names them."""
OF_THE_TASK = {"genotype", "in_channels", "num_classes", "norm"}
"""Arguments of a space's networks that are no sizes."""
FOR_TRAINING = ("ensemble", "genotype", "network", "retrain")
ATTRIBUTES = {"regularizer": "regularizers"}
"""Attributes of a class that are called otherwise than their arguments."""
NOT_BUILT_FROM = ("experiment", "genotype", "launcher")
GROUPS = [path.name for path in sorted(config_folder().iterdir()) if path.is_dir() and path.name[0] != "_"]
OPTIONS = [(group, option) for group in GROUPS if group not in NOT_BUILT_FROM for option in options(group)]
SCRIPTS = [("", name) for name in ("search", "train", "analyze")]
PLUGINS = [("launcher", "slurm"), ("launcher", "ray")]
"""Launchers whose plugins may not be installed."""


def defaults(target: Callable[..., Any]) -> dict[str, Any]:
    """Arguments of one of our classes or functions, without what it passes on to another library's."""
    chain = [target]
    if isinstance(target, type):
        theirs = ("pytorch_lightning", "lightning_", "torch", "builtins")
        ours = [kind for kind in target.__mro__ if not kind.__module__.startswith(theirs)]
        chain = [vars(kind)["__init__"] for kind in ours if "__init__" in vars(kind)]
    found: dict[str, Any] = {}
    for function in chain:
        parameters = inspect.signature(function).parameters.values()
        named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        found = {p.name: p.default for p in named if p.name != "self"} | found
        if not any(p.kind == p.VAR_KEYWORD for p in parameters):
            break  # it passes nothing on
    of_class = [name for name in found if found[name] is CLASS_DEFAULT]
    return found | {name: getattr(target, ATTRIBUTES.get(name, name)) for name in of_class}


def targets(node: Any, where: str = "") -> Iterator[str]:
    """The paths of all nodes that say what they are built from."""
    pairs = enumerate(node) if isinstance(node, ListConfig) else node.items_ex(resolve=False)
    if "_target_" in node:
        yield where
    for key, value in pairs:
        if isinstance(value, DictConfig | ListConfig):
            yield from targets(value, f"{where}.{key}".lstrip("."))


def source(group: str, option: str) -> Path:
    return file(group, option) if group else config_folder() / f"{option}.yaml"


def package(path: Path) -> str:
    """Where a yaml's settings stand in the composition, as its header says."""
    header = re.search(r"^# @package (\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return header[1].replace("_global_", " ") if header else ""


def with_option(group: str, option: str) -> DictConfig:
    """The configuration of the script that the option is for, with it chosen."""
    training = (
        group in FOR_TRAINING or option.startswith("retrain/") or (group, option) == ("callbacks", "train")
    )
    script = "analyze" if group == "study" else "train" if training else "search"
    return composed(script, f"{group}={option}") if group else composed(option)


def test_every_option_composes_and_fits_its_targets():
    for group in GROUPS:
        for option in options(group):
            if group == "metric" or (group, option) in PLUGINS:
                continue
            config = copy.deepcopy(with_option(group, option))
            OmegaConf.set_readonly(config, False)
            config.run = "somewhere"  # known only in a run
            for key in OmegaConf.missing_keys(config):
                OmegaConf.update(config, key, "somewhere")
            check_targets(config)


def nodes(group: str, option: str) -> dict[str, DictConfig]:
    """What the yaml itself names a target for, with all settings that it has then."""
    path = source(group, option)
    written, place = OmegaConf.load(path), package(path)
    inside = f"{place or group}." if group else ""
    if group and not place and "defaults" not in written:
        config = OmegaConf.create({"seed": 0, group: written})
    else:
        config = with_option(group, option)
    own = [f"{inside}{where}".strip(" .") for where in targets(written)]
    return {where: OmegaConf.select(config, where) for where in own}


def agree(node: DictConfig, key: str, default: Any) -> bool:
    """Whether a setting is what its argument is without it."""
    written = OmegaConf.to_container(node, resolve=False)[key]
    if default is REQUIRED:
        return True
    if "${run}" in str(written):
        return default in (REQUIRED, None)  # a folder, which only a command has
    if key in ATTRIBUTES:
        return list_terms(instantiate(node[key])) == default
    if isinstance(written, dict):  # parts, that other options say
        return default is REQUIRED or instantiate(node[key]) == default
    value = OmegaConf.to_container(OmegaConf.create([node[key]]))[0]
    return (list(default) if isinstance(default, tuple) else default) == value


def settings(group: str, option: str) -> Iterator[tuple[str, DictConfig, str, Any]]:
    """Each setting of ours: where, the node, its name, and the argument's default."""
    for where, node in nodes(group, option).items():
        known = defaults(get_object(node._target_))
        yield from ((f"{where}.{key}", node, key, known[key]) for key in node if key in known)


def sizes(option: str) -> Iterator[tuple[str, DictConfig, str, Any]]:
    """The same of the networks of a space."""
    config = composed("search", f"space={option}")
    for what in ("supernet", "network"):
        known = defaults(getattr(get_object(config.space._target_), what))
        yield from ((f"{what}.{key}", config[what], key, known[key]) for key in config[what])


def test_a_class_has_by_default_what_its_yaml_has():
    for group, option in [*SCRIPTS, *OPTIONS]:
        found = [*settings(group, option), *(sizes(option) if group == "space" else ())]
        different = {
            where: (node[key], default)
            for where, node, key, default in found
            if not agree(node, key, default)
        }
        assert not different, f"{group}={option}: in the yaml, and by default"


def test_every_argument_is_offered_or_the_users_own():
    for group, option in [*SCRIPTS, *OPTIONS]:
        yours = set(comment_words(source(group, option), "Yours"))
        missing = {
            f"{where}.{name}"
            for where, node in nodes(group, option).items()
            if node._target_.startswith("nas_lightning.")
            for name in defaults(get_object(node._target_)).keys() - set(node) - PARTS
        }
        assert missing == yours, f"{group}={option}: missing in the yaml, and said there to be `# Yours: …`"


def test_all_settings_are_looked_at():
    """As many as there were; spaces have those of their networks besides."""
    ours = sum(len([*settings(*one)]) for one in [*SCRIPTS, *OPTIONS])
    assert ours >= 400
    assert sum(len([*sizes(option)]) for option in options("space")) >= 50


def test_an_option_that_builds_on_another_says_only_what_it_changes():
    for group, option in OPTIONS:
        own = OmegaConf.load(file(group, option))
        bases = [base for base in own.pop("defaults", []) if base in options(group)]
        for base in bases:
            script = "train" if group in FOR_TRAINING else "search"
            whole = composed(script, f"{group}={base}")[group]
            assert not [key for key, value in own.items() if key in whole and whole[key] == value]
