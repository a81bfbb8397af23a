"""NASI's measurement has the size that it says, and as many samples as are asked for."""

import csv
import json
import sys
from argparse import Namespace

import pytest

from nas_lightning.data import Digits
from nas_lightning.errors import InputError
from nas_lightning.strategies import Nasi
from reproductions.measurements import nasi


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


def test_sizes_are_those_of_the_docstring():
    assert {"channels": 16, "cells": 5}.items() <= nasi.SIZES.items()
    assert "16 channels, five cells a stage" in nasi.__doc__


def test_number_of_samples(seen):
    assert len(seen(3)) == 3


def test_more_images_than_available_are_refused(seen):
    with pytest.raises(InputError, match="expected at most 4 samples, a batch each, got 5"):
        seen(5)


def test_saved_searches_are_not_repeated(monkeypatch, tmp_path, capsys):
    """Of other settings it is; the table beside the file has what was asked for alone."""
    own, other = [156, 20.0, 1.0], [60, 20.0, 1.0]
    kinds = [(own, 0, 90.0), (other, 0, 10.0), (own, 1, 92.0), (other, 2, 10.0)]
    rows = [
        {"settings": settings, "seed": seed, "arch": "a", "accuracy": [value, 70.0, 40.0], "seconds": 9}
        for settings, seed, value in kinds
    ]
    (tmp_path / "seeds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    searched = []

    def search(seed, options, table):
        searched.append(seed)
        return {"arch": "b", "accuracy": [94.0, 73.0, 46.0], "seconds": 9}

    monkeypatch.setattr(nasi, "search", search)
    monkeypatch.setattr(nasi, "TabularNasBench201", lambda path: None)
    words = ["--seeds", "3", "--steps", "156", "--results", str(tmp_path / "seeds.jsonl")]
    monkeypatch.setattr(sys, "argv", ["nasi", *words])
    nasi.main()
    assert searched == [2]
    with (tmp_path / "seeds.csv").open(newline="") as file:
        found = {line["seed"]: float(line["cifar10"]) for line in csv.DictReader(file)}
    assert found == pytest.approx({"0": 90.0, "1": 92.0, "2": 94.0, "mean": 92.0, "deviation": 2.0})
    assert "| deviation | " in capsys.readouterr().out


def test_table_does_not_overwrite_results(monkeypatch, tmp_path):
    (tmp_path / "seeds.csv").write_text("mine")
    monkeypatch.setattr(sys, "argv", ["nasi", "--results", str(tmp_path / "seeds.csv")])
    with pytest.raises(InputError, match="whose table is"):
        nasi.main()
    assert (tmp_path / "seeds.csv").read_text() == "mine"
