"""Every space that a yaml names, with the options that make its networks small."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
import pytest
from omegaconf import OmegaConf

from nas_lightning.spaces import SearchSpace

CONF = Path(__file__).parents[2] / "conf"
SMALL = {"channels": 4, "cells": 3}


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


SPACES = sorted((CONF / "space").glob("*.yaml"))


@pytest.fixture(params=SPACES, ids=lambda file: file.stem)
def named(request) -> Named:
    config = load(request.param)
    return Named(hydra.utils.instantiate(config["space"]), config)


@pytest.fixture
def space(named) -> SearchSpace:
    return named.space
