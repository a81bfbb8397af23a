"""Published architectures: names, facts, and networks of the sizes that the papers print."""

import pytest
import torch

from nas_lightning import zoo
from nas_lightning.errors import InputError


def test_every_published_architecture_has_its_facts_and_a_network():
    for name in zoo.names():
        found = zoo.published(name)
        assert found.name == name
        assert found.about
        assert found.source
        with torch.device("meta"):
            network = found.network(channels=4, cells=3, num_classes=7)
            assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 7), name
        known = {
            f"{data}_{what}"
            for data in ("cifar10", "cifar100", "imagenet")
            for what in ("error", "parameters")
        }
        assert set(found.reported) <= known, name


@pytest.mark.parametrize("name", ["darts_v2", "pr_darts"])
def test_networks_have_the_reported_number_of_parameters(name):
    """Both papers train 20 cells of 36 channels on CIFAR-10 and 14 cells of 48 channels on ImageNet."""
    found = zoo.published(name)
    sizes = {
        "cifar10": {"channels": 36, "cells": 20, "num_classes": 10},
        "imagenet": {"channels": 48, "cells": 14, "num_classes": 1000, "stem": "imagenet"},
    }
    for data, size in sizes.items():
        with torch.device("meta"):
            network = found.network(auxiliary=False, **size)
        millions = sum(weight.numel() for weight in network.parameters()) / 1e6
        assert millions == pytest.approx(found.reported[f"{data}_parameters"], abs=0.05)


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(InputError, match="did you mean 'pr_darts'"):
        zoo.published("pr_dart")
