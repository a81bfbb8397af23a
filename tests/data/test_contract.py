"""The contract of every data set that a yaml in conf/dataset names."""

import pytest
import torch
from hydra.utils import instantiate

from nas_lightning.data import ExternalData, ImageData
from nas_lightning.data.search import as_data
from tests.yamls import composed, options, small_form


@pytest.fixture(params=options("dataset"))
def config(request, tmp_path, monkeypatch):
    """Its configuration, small, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return request.param, composed("search", *small_form(dataset=request.param), "seed=3").dataset


def batches(data: ImageData) -> list[tuple[torch.Tensor, torch.Tensor]]:
    loader = data.train_dataloader()
    loader.set_epoch(1)
    return list(loader)


def test_name_and_seed_come_from_the_configuration(config):
    name, dataset = config
    data = instantiate(dataset)
    if "seed" not in dataset:  # somebody's data module, which is asked for no more than Lightning does
        data = ExternalData(data, name=name, seed=3)
    assert isinstance(data, (ImageData, ExternalData))
    assert (data.name, data.seed) == (name, 3)


def test_batches_match_the_properties_and_repeat(config):
    """What has no folder of files to look for has its images at hand."""
    _, dataset = config
    if "root" in dataset:
        return
    data, again = (as_data(instantiate(dataset)) for _ in range(2))
    found = batches(data)
    assert found
    for (x, y), (same_x, same_y) in zip(found, batches(again), strict=True):
        assert x.shape[1:] == data.image
        assert x.is_floating_point()
        assert bool(torch.isfinite(x).all())
        assert 0 <= int(y.min()) <= int(y.max()) < data.num_classes
        assert torch.equal(x, same_x)
        assert torch.equal(y, same_y)
    assert {int(label) for _, y in found for label in y} == set(range(data.num_classes))


def test_missing_files_are_explained(config, refusal):
    _, dataset = config
    if "root" in dataset:
        message = refusal(instantiate(dataset).prepare)
        assert "dataset.root=FOLDER" in message
        assert ("dataset.download=true" in message) == ("download" in dataset)
