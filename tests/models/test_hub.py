"""The Hugging Face Hub: what is uploaded loads again; tested with a folder in place of the network."""

import shutil

import huggingface_hub
import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.models.file import FILE_NAME, save
from nas_lightning.models.hub import CARD, from_pretrained, push_to_hub, save_pretrained
from nas_lightning.spaces import NasBench201

SPACE = NasBench201()


@pytest.fixture
def model(tmp_path):
    """A model file, and its network."""
    genotype = SPACE.sample(torch.Generator().manual_seed(0))
    network = SPACE.network(genotype, in_channels=3, num_classes=2, channels=4, cells=1).eval()
    images = {"image": (3, 8, 8), "classes": ("cat", "dog"), "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.1)}
    return save(
        network, tmp_path / FILE_NAME, SPACE, genotype, {"channels": 4, "cells": 1}, **images
    ), network


def test_a_saved_folder_loads_as_the_network_with_its_normalization(model, tmp_path):
    path, network = model
    folder = save_pretrained(path, tmp_path / "pretrained")
    images = torch.rand(2, 3, 8, 8)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.5, 0.4, 0.3), (0.2, 0.2, 0.1)))
    loaded = from_pretrained(folder, with_normalization=True)
    assert torch.allclose(loaded(images), network((images - mean) / std), atol=1e-6)
    card = (folder / CARD).read_text()
    assert card.startswith("---\nlibrary_name: nas_lightning\n")
    assert "cat, dog" in card
    assert "nasbench201" in card


def test_upload_and_download_use_the_same_files(model, tmp_path, monkeypatch):
    path, network = model
    hub = tmp_path / "hub"

    class Api:
        def create_repo(self, repo_id, private, exist_ok):
            assert (private, exist_ok) == (True, True)

        def upload_folder(self, repo_id, folder_path):
            shutil.copytree(folder_path, hub / repo_id)
            return f"https://hub/{repo_id}"

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(
        huggingface_hub, "hf_hub_download", lambda repo, name, revision: str(hub / repo / name)
    )
    assert push_to_hub(path, "me/cell", private=True) == "https://hub/me/cell"
    assert {file.name for file in (hub / "me/cell").iterdir()} == {FILE_NAME, CARD}
    images = torch.rand(2, 3, 8, 8)
    assert torch.equal(from_pretrained("me/cell")(images), network(images))


def test_a_name_that_is_no_repository_is_one_line(tmp_path):
    with pytest.raises(InputError, match="must be a folder or a repository"):
        from_pretrained("not/a/repository")
