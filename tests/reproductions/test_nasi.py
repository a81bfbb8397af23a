"""study=nasi where a table lacks cells, and where a space has no supernet."""

import csv
from functools import partial
from itertools import islice

import pytest
import torch

from nas_lightning.data import Digits, SearchData
from nas_lightning.errors import InputError
from nas_lightning.objectives.tables import GenotypeTable
from nas_lightning.spaces import NasBench101, NasBench201
from reproductions.nasi import Found, NasiAblation, Rule, TraceSamples, grid_table, step_of

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


def test_a_search_without_a_supernet_is_refused_before_cells_are_scored(modules, tmp_path):
    space, network, supernet, known = modules
    with pytest.raises(InputError, match="expected a space with a supernet"):
        NasiAblation(**{**SMALL, "searches": 1}).run(
            space, network, supernet, SearchData(Digits(batch_size=8)), known, tmp_path
        )
    assert not (tmp_path / "scores").exists()


def test_what_a_search_ends_in_and_the_table_lacks_is_an_empty_cell(tmp_path, generator):
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
