"""The parts that yamls name: ours, and those of the folders in NAS_CONFIG_DIR, with which tests run as well.

    NAS_CONFIG_DIR=my_conf make test ARGS="tests/strategies/test_contract.py -k sharp"

So a part is held to its contract, whoever wrote it, and no test has a list of them.
"""

import copy
import os
import sys
from functools import cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nas_lightning.options import comment_words, config_folder, groups, option_file

OWN = [Path(folder).resolve() for folder in os.environ.get("NAS_CONFIG_DIR", "").split(os.pathsep) if folder]
sys.path += [str(folder) for folder in (Path.cwd(), *OWN) if OWN and str(folder) not in sys.path]


def options(group: str) -> list[str]:
    """The names of a group's options."""
    return list(groups(OWN)[group])


def file(group: str, option: str) -> Path:
    return option_file(group, option, OWN)


def small(group: str, option: str) -> list[str]:
    """The words with which a part takes seconds."""
    return comment_words(file(group, option), "Small")


def small_form(**chosen: str) -> list[str]:
    """The words that choose an option of each group, all of them small.

    >>> small_form(dataset="digits")
    ['dataset=digits', 'dataset.subset=64', 'dataset.batch_size=16']
    """
    words = [f"{group}={option}" for group, option in chosen.items()]
    return [*words, *(word for group, option in chosen.items() for word in small(group, option))]


def chosen(yaml: Path) -> dict[str, str]:
    """What an option chooses in other groups, or another that it builds on.

    >>> chosen(file("experiment", "gdas_cifar10"))
    {'space': 'darts', 'strategy': 'gdas', 'dataset': 'cifar10'}
    """
    entries = OmegaConf.load(yaml).get("defaults", [])
    built_on = [entry.partition("@")[0] for entry in entries if isinstance(entry, str) and entry != "_self_"]
    inherited = {
        key: value for base in built_on for key, value in chosen(yaml.with_name(f"{base}.yaml")).items()
    }
    pairs = [pair for entry in entries if isinstance(entry, DictConfig) for pair in entry.items()]
    own = {key.removeprefix("override /"): value for key, value in pairs if key.startswith("override /")}
    return inherited | own


@cache
def composed(script: str, *words: str) -> DictConfig:
    """What a script would run, without what only a run knows.

    Hydra composes each choice of options once; settings such as `strategy.lr=0.1` change a copy of that.
    """
    overrides = OverridesParser.create().parse_overrides([*words])
    settings = [override for override in overrides if _is_setting(override)]
    choices = [word for word, override in zip(words, overrides, strict=True) if override not in settings]
    if not settings:
        return _compose(script, *choices)
    config = copy.deepcopy(_compose(script, *choices))
    for override in settings:
        try:
            OmegaConf.update(config, override.key_or_group, override.value())
        except OmegaConfBaseException:  # Hydra explains it
            return _compose(script, *words)
    return config


def _is_setting(override: Override) -> bool:
    """Whether the override sets a value, and neither chooses an option nor adds or deletes anything."""
    group = (config_folder() / override.key_or_group).is_dir() or override.key_or_group.startswith("hydra")
    return override.type == OverrideType.CHANGE and override.package is None and not group


@cache
def _compose(script: str, *words: str) -> DictConfig:
    own = [f"hydra.searchpath=[{','.join(f'file://{folder}' for folder in OWN)}]"] if OWN else []
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return compose(script, [*words, *own])
