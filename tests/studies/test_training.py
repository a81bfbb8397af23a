"""Tables of short trainings."""

from functools import partial

import pytest
import torch

from nas_lightning.data import Digits, SearchData
from nas_lightning.errors import InputError
from nas_lightning.objectives import GenotypeTable
from nas_lightning.objectives.short_training import ShortTraining
from nas_lightning.spaces import ResNet
from nas_lightning.spaces.base import draw_distinct
from nas_lightning.studies import ShortTrainings
from nas_lightning.studies.training import FILE

SPACE = ResNet(depths=(1, 2))
NETWORK = partial(SPACE.network, in_channels=1, num_classes=10, channels=4)


@pytest.fixture(scope="module")
def data():
    return SearchData(Digits(batch_size=16, subset=64))


def test_table_has_the_accuracies_of_short_trainings(data, tmp_path, monkeypatch):
    study = ShortTrainings(cells=4, epochs=1, seed=3)
    study.run(SPACE, NETWORK, data, tmp_path)
    table = GenotypeTable(tmp_path / FILE, SPACE)
    genotypes = table.sample(SPACE, 4, 0)
    assert set(genotypes) == set(draw_distinct(SPACE, 4, torch.Generator().manual_seed(3)))
    training = ShortTraining(SPACE, NETWORK, data, epochs=1, seed=3)
    assert table.valid_accuracy(genotypes[0], epochs=1) == training(genotypes[0])
    monkeypatch.setattr(ShortTraining, "__call__", lambda *_: pytest.fail("it was trained already"))
    study.run(SPACE, NETWORK, data, tmp_path)
    with pytest.raises(InputError, match="`epochs` must be 1"):
        ShortTrainings(cells=4, epochs=2, seed=3).run(SPACE, NETWORK, data, tmp_path)
