"""NASI's measurement applies T, ν, and the derivation to samples that are drawn once."""

import csv
import sys

import pytest
import torch

from nas_lightning.data import Digits, SearchData
from nas_lightning.objectives.tables import TabularNasBench201
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies.nasi import Nasi
from reproductions.measurements import nasi
from reproductions.nasi import TraceSamples
from tests.studies.conftest import write_table


def test_sizes_are_those_of_the_docstring():
    assert {"channels": 8, "cells": 5}.items() <= nasi.SIZES.items()
    assert "8 channels, five cells per stage, batches of 32" in nasi.__doc__
    assert nasi.BATCH == 32


def test_choices_of_nu_by_hand():
    """t = 1, 2, 600: only the mean and the median hold the last one back; ‖G‖ is 1 throughout."""
    samples = TraceSamples(torch.tensor([1.0, 2.0, 600.0]).double(), torch.eye(3).double())
    step = {name: (3 * rule(samples)).tolist() for name, rule in nasi.STEPS.items()}
    assert step["6.14"] == pytest.approx([1, 1, 0])  # 1 − μ = 0 above ν
    assert step["median"] == pytest.approx([1, 1, 0])
    assert step["quantile 0.75"] == pytest.approx([1, 1, 0])
    low = TraceSamples(torch.tensor([499.0, 400.0, 460.0]).double(), torch.eye(3).double())
    assert (3 * nasi.STEPS["6.15"](low)).tolist() == pytest.approx([1, 1, 1])  # ν: 500, 499.5, 466.3
    high = TraceSamples(torch.tensor([501.0, 500.0, 501.0]).double(), torch.eye(3).double())
    assert (3 * nasi.STEPS["6.15"](high)).tolist() == pytest.approx([0, 1, 0])  # ν: 500, 500.5, 500.3


def test_tables_are_of_the_drawn_samples(monkeypatch, tmp_path, capsys):
    """A second call draws nothing; `none` is derived in the rows that say so alone."""
    digits = SearchData(Digits(subset=64))
    digits.setup()
    monkeypatch.setattr(nasi, "images", lambda root: digits)
    monkeypatch.setattr(nasi, "SIZES", {"in_channels": 1, "num_classes": 10, "channels": 2, "cells": 1})
    monkeypatch.setattr(nasi, "BATCH", 4)
    (tmp_path / "nasbench201").mkdir()
    (tmp_path / "nasbench201" / "test_accuracy.csv").write_text(write_table(tmp_path).read_text())
    drawn, own = [], Nasi.trace_slopes
    monkeypatch.setattr(Nasi, "trace_slopes", lambda self, *batch: drawn.append(1) or own(self, *batch))
    words = ["--data", str(tmp_path), "--seeds", "2", "--steps", "8", "--results", str(tmp_path / "found")]
    monkeypatch.setattr(sys, "argv", ["nasi", *words])
    nasi.main()
    assert len(drawn) == 2 * 8
    before = {path.name: path.read_bytes() for path in (tmp_path / "found").iterdir()}
    nasi.main()
    assert len(drawn) == 2 * 8
    assert {path.name: path.read_bytes() for path in (tmp_path / "found").iterdir()} == before
    table = TabularNasBench201(tmp_path / "table.csv")
    seeds = list(csv.DictReader(before["seeds.csv"].decode().splitlines()))
    assert len(seeds) == 2 * 2 * 4 * 2
    for row in seeds:
        assert row["none"] == "derived" or "none~" not in row["cell"]
        cell = NasBench201().parse(row["cell"])
        assert float(row["cifar100"]) == table.column("cifar100", cell)
    for row in csv.DictReader(before["rules.csv"].decode().splitlines()):
        same = [s for s in seeds if all(s[key] == row[key] for key in ("T", "ν", "none"))]
        assert float(row["cifar10"]) == pytest.approx(sum(float(s["cifar10"]) for s in same) / 2)
