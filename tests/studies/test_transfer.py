"""What is chosen by one data set is looked up on the others."""

import csv
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from nas_lightning.data import Digits, SearchData
from nas_lightning.metrics import Params
from nas_lightning.objectives.tables import TabularNasBench201, read_nasbench201
from nas_lightning.spaces import NasBench201
from nas_lightning.studies.transfer import RANDOM, Transfer
from nas_lightning.utils.randomness import seed_of
from tests.studies.conftest import write_table

CELLS, POOL, SEARCHES = 20, 10, 3


@pytest.fixture
def rows(tmp_path):
    space, data = NasBench201(), SearchData(Digits(batch_size=4))
    network = partial(space.network, in_channels=1, num_classes=10, channels=2, cells=1)
    benchmark = TabularNasBench201(write_table(tmp_path))
    study = Transfer(
        metrics={"params": Params()}, by=["params"], cells=CELLS, pool=POOL, k=[4, 99], searches=SEARCHES
    )
    (table,) = study.run(space, network, data, benchmark, tmp_path).tables
    return {tuple(row[:3]): row[3:] for row in table.rows}


@pytest.fixture
def known(rows, tmp_path):
    """Scores and accuracies of the cells in their order."""
    scored = list(csv.DictReader((tmp_path / "scores" / "main.csv").read_text().splitlines()))
    truth = read_nasbench201(tmp_path / "table.csv")
    sizes = np.array([float(row["params"]) for row in scored])
    return sizes, {name: np.array([of[row["arch"]] for row in scored]) for name, of in truth.items()}


def test_rows_by_hand(rows, known):
    sizes, truth = known
    sets = list(truth)
    for source in sets:
        ends, lost = [], []
        for number in range(SEARCHES):
            part = np.random.default_rng(seed_of(0, number)).permutation(CELLS)[:POOL]
            some = sorted(part, key=lambda cell: -sizes[cell])[:4]
            best = max(some, key=lambda cell: truth[source][cell])
            ends.append([truth[name][best] for name in sets])
            others = [name for name in sets if name != source]
            lost.append(np.mean([max(truth[name][some]) - truth[name][best] for name in others]))
        found = rows["params", 4, source]
        assert [one.value for one in found[:-1]] == pytest.approx(np.mean(ends, axis=0))
        assert found[-1].value == pytest.approx(np.mean(lost))
        assert found[-1].value >= 0
    assert any(rows["params", 4, source][-1].value > 0 for source in sets)  # the data sets' noise differs


def test_choices_of_the_whole_pool_are_equal(rows, known):
    for source in known[1]:
        assert rows["params", POOL, source] == rows[RANDOM, POOL, source]


def test_table_of_one_data_set_is_refused(tmp_path, refusal):
    study = Transfer(metrics={"params": Params()}, by=["params"], cells=CELLS)
    one = SimpleNamespace(datasets=["cifar10"])
    message = refusal(study.run, NasBench201(), None, None, one, tmp_path)
    assert "The table must have accuracies on several data sets, got 'cifar10'" in message
