"""Every space that a yaml names, with the options that make its networks small."""

from dataclasses import dataclass
from typing import Any

import hydra
import pytest
import yaml
from omegaconf import OmegaConf

from nas_lightning.spaces import SearchSpace, make_space
from tests.yamls import OWN, file, options, small


@dataclass(frozen=True)
class Named:
    """A space, and the options of its networks in its yaml."""

    option: str
    space: SearchSpace
    config: dict[str, Any]

    def small(self, what: str, **options: Any) -> dict[str, Any]:
        """The sizes of its networks that its yaml calls small."""
        small = small_settings(self.option, f"{what}.")
        return {**self.config[what], **small, "in_channels": 3, "num_classes": 5, **options}


def of_yaml(option: str) -> Named:
    config = OmegaConf.to_container(OmegaConf.load(file("space", option)), resolve=True)
    assert isinstance(config, dict)
    return Named(option, hydra.utils.instantiate(config["space"]), config)


def small_settings(option: str, prefix: str) -> dict[str, Any]:
    """The settings of the yaml's `# Small:` line that begin so."""
    words = [
        word.removeprefix(prefix).split("=") for word in small("space", option) if word.startswith(prefix)
    ]
    return {name: yaml.safe_load(value) for name, value in words}


SPACES = {option: of_yaml(option) for option in options("space")}
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


@pytest.fixture(params=SPACES)
def small_space(request) -> SearchSpace:
    """A space at the settings of its `# Small:` line."""
    return make_space(request.param, small_settings(request.param, "space."), folders=OWN)


@pytest.fixture
def space(named) -> SearchSpace:
    return named.space
