"""The jobs of a sweep over architectures: those that a search found beside those that somebody has made.

Hydra multiplies all that is swept. A genotype and a network are alternatives, so that

    train.py -m genotype=darts_v1,darts_v2 network=timm network.name=resnet18 seed=0,1

is six jobs: each architecture with each seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from typing import Any

import yaml
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins

from nas_lightning.options import groups, option_file
from nas_lightning.utils.files import read_text

Batches = list[list[list[str]]]
"""The words of each job, in the batches that are launched together."""


@contextmanager
def splitting_alternatives() -> Iterator[None]:
    """Let Hydra's own sweeper run a genotype or a network in a job, and never both."""
    Plugins.instance()  # which loads its module once more
    sweeper: Any = import_module("hydra._internal.core_plugins.basic_sweeper").BasicSweeper
    whole = sweeper.split_arguments
    sweeper.split_arguments = staticmethod(partial(split_jobs, sweeper, whole))
    try:
        yield
    finally:
        sweeper.split_arguments = staticmethod(whole)


def split_jobs(
    sweeper: Any, whole: Any, overrides: Sequence[Override], max_batch_size: int | None
) -> Batches:
    """The jobs of these words: those with the genotypes first."""
    keys = [override.key_or_group for override in overrides]
    if not {"genotype", "network"} <= {*keys}:
        return whole([*overrides], max_batch_size)
    found = [word for word in overrides if not _is_of_network(word.key_or_group)]
    given = [word for word in overrides if not _is_of_genotype(word.key_or_group)]
    jobs = [job for words in (found, given) for job in whole(words, None)[0]]
    return [[*batch] for batch in sweeper.split_overrides_to_chunks(jobs, max_batch_size)]


def _is_of_network(key: str) -> bool:
    group, _, setting = key.partition(".")
    return group == "network" and (not setting or setting.split(".")[0] in _settings())


def _is_of_genotype(key: str) -> bool:
    """Sizes such as `network.channels`, too, are those of the networks that genotypes stand for."""
    group = key.partition(".")[0]
    return group == "genotype" or (group == "network" and not _is_of_network(key))


@cache
def _settings() -> frozenset[str]:
    """What the options of `network=` have."""
    files = (option_file("network", option) for option in groups()["network"])
    contents = (yaml.safe_load(read_text(file)) for file in files)
    return frozenset(name for content in contents for name in content)
