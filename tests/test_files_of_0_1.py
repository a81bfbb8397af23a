"""Files that version 0.1 has written are read and mean what they meant; `files_of_0_1/make.py` made them."""

import json
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from safetensors.torch import load_file

import nas_lightning
from nas_lightning.ensembles import Ensemble
from nas_lightning.genotype import read_genotypes
from nas_lightning.options import config_folder
from tests.cli.conftest import command  # noqa: F401

FILES = Path(__file__).parent / "files_of_0_1"
NAMES = sorted(path.name for path in (FILES / "spaces").iterdir())


def images(*shape):
    """As in `make.py`: the same numbers everywhere and always."""
    count = torch.Size(shape).numel()
    return torch.sin(torch.arange(count, dtype=torch.float64) * 0.7).float().view(shape)


def same(logits, expected):
    torch.testing.assert_close(logits, torch.as_tensor(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_file_has_the_network_that_was_written(name):
    folder = FILES / "spaces" / name
    expected = json.loads((folder / "expected.json").read_text())
    with torch.no_grad():
        same(nas_lightning.load(folder)(images(2, 1, 8, 8)), expected["logits"])
    known = nas_lightning.describe(folder)
    assert (known.classes, known.mean, known.std) == (("cat", "dog", "owl"), (0.1,), (0.9,))
    assert known.make_space().notation(known.genotype) == expected["notation"]
    assert str(known.genotype) == expected["text"]


@pytest.mark.parametrize("name", NAMES)
def test_a_genotype_file_has_the_architecture_of_the_model_beside_it(name):
    (genotype,) = read_genotypes(FILES / "spaces" / name)
    assert genotype.cells == nas_lightning.describe(FILES / "spaces" / name).genotype.cells


def test_the_network_of_a_training_run_and_an_ensemble_predict_what_they_predicted():
    expected = load_file(FILES / "logits.safetensors")
    with torch.no_grad():
        same(nas_lightning.load(FILES / "train")(images(2, 1, 8, 8)), expected["train"])
        same(Ensemble.load(FILES / "ensemble")(images(2, 1, 8, 8)), expected["ensemble"])


def test_a_checkpoint_fills_today_s_supernet():
    words = (FILES / "search" / ".hydra" / "overrides.yaml").read_text().replace("- ", "").split()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose("search", words)
    supernet = instantiate(config.space).supernet(in_channels=1, num_classes=10, **config.supernet)
    stored = torch.load(FILES / "search" / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    supernet.load_state_dict(
        {name.removeprefix("supernet."): v for name, v in stored.items() if name.startswith("supernet.")}
    )
