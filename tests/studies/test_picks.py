"""Short trainings as a table, and what a ranking picks: of the pool's own scores, trained once."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats

from nas_lightning.data import Digits, SearchData
from nas_lightning.errors import InputError
from nas_lightning.objectives import GenotypeTable
from nas_lightning.objectives.rankings import COMBINED, log_ranks
from nas_lightning.objectives.short_training import ShortTraining
from nas_lightning.spaces import ResNet
from nas_lightning.spaces.base import draw_distinct
from nas_lightning.studies import Picks, ShortTrainings
from nas_lightning.studies.ranking import compare
from nas_lightning.studies.training import FILE

SPACE = ResNet(depths=(1, 2))
NETWORK = partial(SPACE.network, in_channels=1, num_classes=10, channels=4)


@pytest.fixture(scope="module")
def data():
    return SearchData(Digits(batch_size=16, subset=64))


def test_the_table_has_what_trainings_came_to(data, tmp_path, monkeypatch):
    study = ShortTrainings(cells=4, epochs=1, seed=3)
    study.run(SPACE, NETWORK, data, tmp_path)
    table = GenotypeTable(tmp_path / FILE, SPACE)
    genotypes = table.sample(SPACE, 4, 0)
    assert set(genotypes) == set(draw_distinct(SPACE, 4, torch.Generator().manual_seed(3)))
    training = ShortTraining(SPACE, NETWORK, data, epochs=1, seed=3)
    assert table.valid_accuracy(genotypes[0], epochs=1) == training(genotypes[0])
    monkeypatch.setattr(ShortTraining, "__call__", lambda *_: pytest.fail("it was trained already"))
    study.run(SPACE, NETWORK, data, tmp_path)
    with pytest.raises(InputError, match="expected epochs 1"):
        ShortTrainings(cells=4, epochs=2, seed=3).run(SPACE, NETWORK, data, tmp_path)


def test_picks_are_the_best_the_largest_and_the_first(data, tmp_path):
    study = Picks(pools=2, pool_size=6, epochs=1, images=8)
    accuracies, _ = study.run(SPACE, NETWORK, data, tmp_path).tables
    table = GenotypeTable(tmp_path / FILE, SPACE)
    for seed in range(2):
        pool = draw_distinct(SPACE, 6, torch.Generator().manual_seed(seed))
        params = [sum(p.numel() for p in NETWORK(genotype).parameters()) for genotype in pool]
        lines = (tmp_path / "scores" / f"{seed}.csv").read_text().splitlines()
        header, *rows = [line.rsplit(",", len(COMBINED) + 1) for line in lines]
        scores = [dict(zip(header[1:], map(float, row[1:]), strict=True)) for row in rows]
        best = pool[int(np.argmax(log_ranks(scores)))]
        expected = [best, pool[int(np.argmax(params))], pool[0]]
        assert accuracies.rows[seed][1:] == [table.valid_accuracy(g, epochs=1) for g in expected]


def test_differences_are_paired():
    ours, others = np.array([50.0, 52.0, 55.0]), np.array([49.0, 52.5, 51.0])
    kind, difference, t, p = compare("random", ours, others)
    assert (kind, difference.value) == ("random", pytest.approx(1.5))
    assert t == pytest.approx(difference.value / difference.error)
    assert p == pytest.approx(2 * stats.t.sf(abs(t), df=2))
    assert compare("largest", ours, ours) == ["largest", (0, 0), None, None]
