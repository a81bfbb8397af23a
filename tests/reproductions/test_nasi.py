"""Samples and steps of NASI by hand, and its studies against their files."""

import csv
from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch

from benchmarks.timing import quiet_trainer
from nas_lightning.data import Digits, Fake, SearchData
from nas_lightning.errors import InputError
from nas_lightning.objectives.tables import GenotypeTable
from nas_lightning.spaces import NasBench101, NasBench201
from nas_lightning.strategies.nasi import Nasi
from reproductions.nasi import (
    Found,
    NasiAblation,
    PathTraces,
    Rule,
    TraceSamples,
    draw_samples,
    grid_table,
    step_of,
    trace_step,
)

SMALL = {"cells": 4, "bins": 2, "searches": 0, "resamples": 10}
NET = {"in_channels": 1, "num_classes": 10, "channels": 8, "cells": 1}


def table(folder, space, genotypes) -> GenotypeTable:
    path = folder / "cells.csv"
    with path.open("w", newline="") as file:
        rows = [[space.notation(genotype), 80 + number] for number, genotype in enumerate(genotypes)]
        csv.writer(file).writerows([["genotype", "cifar10_valid"], *rows])
    return GenotypeTable(path, space)


@pytest.fixture
def modules(tmp_path, generator):
    """A space without a supernet, what builds its networks and supernets, and a table of some of it."""
    space = NasBench101()
    known = table(tmp_path, space, [space.sample(generator) for _ in range(4)])
    supernet = partial(space.supernet, in_channels=1, num_classes=10)
    return space, partial(space.network, **NET), supernet, known


def test_cells_are_binned_in_a_space_without_a_supernet(modules, tmp_path):
    space, network, supernet, known = modules
    found = NasiAblation(**SMALL).run(
        space, network, supernet, SearchData(Digits(batch_size=8)), known, tmp_path
    )
    assert [one.name for one in found.tables] == ["bins", "conditioned"]
    assert sum(row[1] for row in found.tables[0].rows) == 4
    assert not (tmp_path / "samples").exists()


def test_search_without_supernet_is_refused_before_scoring(modules, tmp_path):
    space, network, supernet, known = modules
    with pytest.raises(InputError, match="needs a space with a supernet"):
        NasiAblation(**{**SMALL, "searches": 1}).run(
            space, network, supernet, SearchData(Digits(batch_size=8)), known, tmp_path
        )
    assert not (tmp_path / "scores").exists()


def test_results_missing_in_the_table_are_empty_cells(tmp_path, generator):
    space = NasBench201()
    samples = TraceSamples(torch.tensor([1.0, 9.0]), torch.randn(2, 30, generator=generator))
    rules = Rule(1.0, 1.0), Rule(0.0, 8.0)
    full = Found(space, table(tmp_path, space, list(islice(space.all(), 2))), {}, {"cifar10_valid": 80.5})
    ends = [full.genotype(step_of(samples, rule)) for rule in rules]
    assert ends[0] != ends[1]
    lacking = table(tmp_path, space, [ends[0]])
    found = Found(space, lacking, {"main": [samples]}, {"cifar10_valid": 80.0})
    grid, picture = grid_table(found, [0.0, 1.0], [1.0, 8.0], "one search")
    cells = {row[0]: row[2:] for row in grid.rows}
    assert cells["100%"][0].value == 80
    assert cells["0%"][1] is None
    assert grid.note.endswith("Empty where a search ended in an architecture that the table lacks")
    assert picture.axes
    both = full._replace(benchmark=table(tmp_path, space, ends), samples={"main": [samples] * 2})
    assert "Empty" not in grid_table(both, [1.0], [1.0], "two searches")[0].note


STEPS = 6


@pytest.fixture
def images() -> SearchData:
    """One batch is all images, so that a search sees the same as the samples."""
    shape = {"shape": (1, 8, 8), "num_classes": 3}
    return SearchData(Fake(**shape, train_size=32, test_size=4, batch_size=16, augment=False))


def small_search(images, **options) -> Nasi:
    torch.manual_seed(1)
    space = NasBench201()
    supernet = space.supernet(in_channels=1, num_classes=3, channels=2, cells=1)
    return Nasi(space, supernet, images, computed="sampled", seed=3, **options)


def samples_of(images, path, steps=STEPS) -> TraceSamples:
    return draw_samples(small_search(images, nu=1.0), images, path, steps=steps, batch_size=16, settings={})


def test_the_step_is_that_of_the_search(images, tmp_path):
    samples = samples_of(images, tmp_path / "samples.csv")
    for mu, share, adaptive in ((2.0, 0.5, False), (0.5, 0.5, False), (2.0, 0.3, True)):
        nu = float(samples.traces.quantile(share))
        search = small_search(images, nu=nu, mu=mu, adaptive=adaptive)
        quiet_trainer(STEPS).fit(search, images)
        step = trace_step(samples, mu, nu, adaptive=adaptive).float()
        assert float(step.norm()) > 0
        torch.testing.assert_close(step.view(6, 5), search.arch["cell"].detach(), rtol=1e-3, atol=1e-5)
        others = trace_step(samples, mu, float(samples.traces.max()), adaptive=adaptive).float()
        assert not torch.allclose(others, step)


def test_saved_samples_are_not_drawn_again(images, tmp_path, monkeypatch):
    whole = samples_of(images, tmp_path / "whole.csv")
    samples_of(images, tmp_path / "part.csv", steps=2)
    drawn = []
    original = Nasi.trace_slopes
    monkeypatch.setattr(Nasi, "trace_slopes", lambda self, *batch: drawn.append(1) or original(self, *batch))
    rest = samples_of(images, tmp_path / "part.csv")
    assert len(drawn) == STEPS - 2
    for one, other in zip(rest, whole, strict=True):
        torch.testing.assert_close(one, other)


def test_the_step_by_hand():
    """Three samples in one decision: G = 1, −2 (above ν), 4; largest norms 1, 2, 4."""
    samples = TraceSamples(torch.tensor([1.0, 9.0, 2.0]), torch.tensor([[1.0], [2.0], [4.0]]))
    assert trace_step(samples, mu=2.0, nu=5.0).tolist() == [pytest.approx((1 - 1 + 1) / 3)]
    # ν_t = 3/1, (3 + 1)/2, (3 + 1 + 9)/3
    assert trace_step(samples, mu=2.0, nu=3.0, adaptive=True).tolist() == [pytest.approx(1 / 3)]
    assert trace_step(samples, mu=2.0, nu=0.5, adaptive=True).tolist() == [pytest.approx((-1 - 1 + 1) / 3)]


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


def test_path_traces_are_those_of_the_files(tmp_path):
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


def test_saved_path_traces_are_not_drawn_again(tmp_path, monkeypatch):
    first = row_of(tmp_path)
    monkeypatch.setattr("nas_lightning.strategies.nasi.Nasi.trace_slopes", None)
    assert row_of(tmp_path) == first
