"""t(A) of random paths: what its table says of the samples in its files."""

import csv
from functools import partial

import numpy as np
import pytest
import torch

from nas_lightning.data import Digits, SearchData
from nas_lightning.spaces import NasBench201
from reproductions.nasi import PathTraces


def row_of(folder, **options):
    torch.manual_seed(0)
    space, data = NasBench201(), SearchData(Digits(batch_size=4))
    supernet = partial(space.supernet, in_channels=1, num_classes=10, channels=2, cells=1)
    study = PathTraces(paths=4, draws=3, **options)
    (table,) = study.run(space, supernet, data, folder).tables
    return dict(zip(table.columns, table.rows[0], strict=True))


def samples(folder):
    files = sorted((folder / "samples").glob("*.csv"))
    rows = [list(csv.DictReader(file.read_text().splitlines())) for file in files]
    return np.array([[float(row["trace"]) for row in one] for one in rows])


def test_the_table_is_of_the_files(tmp_path):
    row_of(tmp_path)
    t = samples(tmp_path)
    assert t.shape == (3, 4)
    assert len(np.unique(t)) > 6  # weights, paths and images differ
    nu = float(np.median(t))
    found = row_of(tmp_path, nu=nu)
    assert found["mean"].value == pytest.approx(t.mean(), rel=1e-5)
    assert found["median"].value == pytest.approx(np.median(t, axis=1).mean(), rel=1e-5)
    assert found["largest"].value == pytest.approx(t.max(axis=1).mean(), rel=1e-5)
    assert found["share above ν"].value == pytest.approx(0.5, abs=0.1)
    assert found["mean without the largest"] == pytest.approx(np.sort(t.ravel())[:-1].mean(), rel=1e-5)


def test_what_the_files_have_is_not_drawn_again(tmp_path, monkeypatch):
    first = row_of(tmp_path)
    monkeypatch.setattr("nas_lightning.strategies.nasi.Nasi.trace_slopes", None)
    assert row_of(tmp_path) == first
