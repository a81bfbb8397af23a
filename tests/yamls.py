"""The parts that yamls name: ours, and those of the folders in NAS_CONFIG_DIR, with which tests run as well.

    NAS_CONFIG_DIR=my_conf make test ARGS="tests/strategies/test_contract.py -k sharp"

So a part is held to its contract, whoever wrote it, and no test has a list of them.
"""

import os
import sys
from functools import cache
from pathlib import Path

from hydra import compose, initialize_config_module
from omegaconf import DictConfig

from nas_lightning.options import comment_words, groups, option_file

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


@cache
def composed(script: str, *words: str) -> DictConfig:
    """What a script would run, without what only a run knows."""
    own = [f"hydra.searchpath=[{','.join(f'file://{folder}' for folder in OWN)}]"] if OWN else []
    with initialize_config_module("nas_lightning.conf", version_base="1.3"):
        return compose(script, [*words, *own])
