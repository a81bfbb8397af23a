"""Every space that a yaml names, with the options that make its networks small."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
import pytest
import yaml
from omegaconf import OmegaConf

from nas_lightning.spaces import SearchSpace, make_space

CONF = Path(__file__).parents[2] / "conf"
SMALL = {"channels": 4, "cells": 3, "width": 8}

WITHOUT_PARAMETERS = {"mlp", "two_layer"}
"""Spaces whose candidates have no parameters, so that all paths of the supernet share the same."""


@dataclass(frozen=True)
class Named:
    """A space, and the options of its networks in its yaml."""

    space: SearchSpace
    config: dict[str, Any]

    def small(self, what: str, **options: Any) -> dict[str, Any]:
        given = self.config[what]
        small = {name: value for name, value in SMALL.items() if name in given}
        return {**given, **small, "in_channels": 3, "num_classes": 5, **options}


def load(file: Path) -> dict[str, Any]:
    config = OmegaConf.to_container(OmegaConf.load(file), resolve=True)
    assert isinstance(config, dict)
    return config


def of_yaml(file: Path) -> Named:
    config = load(file)
    return Named(hydra.utils.instantiate(config["space"]), config)


SPACES = {file.stem: of_yaml(file) for file in sorted((CONF / "space").glob("*.yaml"))}
WITH_SUPERNET = [name for name, named in SPACES.items() if named.space.groups]
ON_EDGES = [name for name in WITH_SUPERNET if all(g.on_edges for g in SPACES[name].space.groups.values())]


@pytest.fixture(params=SPACES)
def named(request) -> Named:
    return SPACES[request.param]


@pytest.fixture(params=WITH_SUPERNET)
def searchable(request) -> Named:
    """A space with a supernet."""
    return SPACES[request.param]


@pytest.fixture(params=ON_EDGES)
def on_edges(request) -> Named:
    """A space that chooses operations on edges, so that a path of its supernet is a derived network."""
    return SPACES[request.param]


def small_words(option: str) -> list[str]:
    """The overrides of the `# Small:` line in a space's yaml."""
    text = (CONF / "space" / f"{option}.yaml").read_text(encoding="utf-8")
    return re.findall(r"^# Small: (.+(?:\n#   .+)*)$", text, re.M)[0].replace("\n#", "").split()


@pytest.fixture(params=SPACES)
def small_space(request) -> SearchSpace:
    """A space at the settings of its `# Small:` line."""
    words = [
        word.removeprefix("space.").split("=") for word in small_words(request.param) if "space." in word
    ]
    return make_space(request.param, {name: yaml.safe_load(value) for name, value in words})


@pytest.fixture
def space(named) -> SearchSpace:
    return named.space
