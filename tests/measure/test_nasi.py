"""NASI's measurement has the size that it says, and as many samples as are asked for."""

from argparse import Namespace

import pytest

from nas_lightning.data import Digits
from nas_lightning.errors import InputError
from nas_lightning.measure import nasi
from nas_lightning.strategies import Nasi


@pytest.fixture
def seen(monkeypatch, tmp_path):
    """`seen(steps)`: the steps of a search on digits, at the sizes of a toy."""
    steps = []

    def search(number):
        monkeypatch.setattr(nasi, "Cifar10", lambda **_: Digits(batch_size=8, subset=64))
        monkeypatch.setattr(nasi, "SIZES", {"in_channels": 1, "num_classes": 10, "channels": 2, "cells": 1})
        own = Nasi.training_step

        def step(self, batch, batch_idx):
            steps.append(batch_idx)
            own(self, batch, batch_idx)

        monkeypatch.setattr(Nasi, "training_step", step)
        table = type("Table", (), {"column": lambda *_: 90.0})()
        nasi.search(0, Namespace(data=tmp_path, steps=number, nu=20.0, mu=1.0), table)
        return steps

    return search


def test_it_has_the_size_that_it_says():
    assert {"channels": 16, "cells": 5}.items() <= nasi.SIZES.items()
    assert "16 channels, five cells a stage" in nasi.__doc__


def test_it_takes_so_many_samples(seen):
    assert len(seen(3)) == 3


def test_more_than_there_are_batches_is_refused(seen):
    with pytest.raises(InputError, match="expected at most 4 samples, a batch each, got 5"):
        seen(5)
