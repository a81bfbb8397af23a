"""What is said where nothing can be compiled."""

import sys

import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Darts
from nas_lightning.training.retrain import Retrain, prepare_compiler


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    for name in ("CXX", "TORCH_INDUCTOR_INSTALL_GXX"):
        monkeypatch.delenv(name, raising=False)


def test_a_search_is_refused(no_compiler):
    sizes = {"in_channels": 1, "num_classes": 2, "channels": 2, "cells": 1}
    assert Darts.from_space(NasBench201(), **sizes).compilable
    with pytest.raises(InputError, match=r"^expected the C\+\+ compiler .* \(in strategy.compile\)$"):
        Darts.from_space(NasBench201(), **sizes, compile=True)


def test_a_training_is_refused(no_compiler, generator):
    space = NasBench201()
    network = space.network(space.sample(generator), in_channels=1, num_classes=2, channels=2, cells=1)
    with pytest.raises(InputError, match=r"\(in retrain.compile\)$"):
        Retrain(network, 2, compile=True)


def test_the_compiler_of_the_environment_counts(no_compiler, monkeypatch, caplog):
    monkeypatch.setenv("CXX", sys.executable)
    with caplog.at_level("INFO"):
        prepare_compiler("here")
    assert "TORCHINDUCTOR_CACHE_DIR" in caplog.text
    monkeypatch.setenv("CXX", "no_such_compiler")
    with pytest.raises(InputError, match="no_such_compiler"):
        prepare_compiler("here")


def test_a_gpu_needs_none(no_compiler, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    prepare_compiler("here")
