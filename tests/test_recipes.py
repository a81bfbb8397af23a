"""The recipes against what the papers specify: each composes to the settings of its column."""

import re

import pytest
from hydra import compose, initialize_config_dir

from nas_lightning.options import config_folder

CIFAR = {"channels": 36, "cells": 20, "epochs": 600, "images": 96, "lr": 0.025, "lr_min": 0.0, "warmup": 0}
CIFAR |= {"schedule": "cosine", "momentum": 0.9, "decay": 3e-4, "auxiliary": 0.4, "drop_path": 0.2}
CIFAR |= {"cutout": 16, "smoothing": 0.0}
IMAGENET = {"cells": 14, "epochs": 250, "images": 1024, "lr": 0.5, "lr_min": 0.0, "warmup": 5}
IMAGENET |= {"schedule": "linear", "momentum": 0.9, "decay": 3e-5, "auxiliary": 0.4, "drop_path": 0.0}
IMAGENET |= {"cutout": 0, "smoothing": 0.1}
HNAS_C100 = {"lr": 0.035, "lr_min": 0.001, "auxiliary": 0.6, "drop_path": 0.3}

PAPERS = {  # the columns: Shu 2022; arXiv:1806.09055, 2109.00817, 2006.16537, 1909.09569
    "darts_cifar10": CIFAR,
    "darts_cifar100": CIFAR,
    "hnas_cifar10": CIFAR,
    "hnas_cifar100": CIFAR | HNAS_C100,
    "nesbs_cifar10": CIFAR,
    "nesbs_cifar100": CIFAR,
    "pr_darts_cifar10": CIFAR | {"images": 128},
    "pr_darts_cifar100": CIFAR | {"images": 128, "drop_path": 0.4},
    "topology_cifar10": CIFAR | {"images": 80},
    "topology_cifar100": CIFAR | {"images": 80},
    "topology_tiny_imagenet": CIFAR | {"images": 80, "epochs": 300},
    "nasi_imagenet": IMAGENET | {"channels": 46},
    "nesbs_imagenet": IMAGENET | {"channels": 44},
    "pr_darts_imagenet": IMAGENET | {"channels": 48},
    "hnas_imagenet": IMAGENET | {"channels": 46, "lr": 0.7, "schedule": "cosine"},
}


def recipe(name, *overrides):
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return compose("train", [f"experiment=retrain/{name}", *overrides])


def settings_in_the_header(name):
    """What a header says to add to its command: a comment of nothing but settings."""
    lines = (config_folder() / "experiment" / "retrain" / f"{name}.yaml").read_text().splitlines()
    (line,) = [line for line in lines if re.fullmatch(r"#   (\S+=\S+ ?)+", line)]
    return line.removeprefix("#   ").split()


@pytest.mark.parametrize("name", PAPERS)
def test_settings_are_the_papers(name):
    config = recipe(name)
    network, retrain, data, trainer = config.network, config.retrain, config.dataset, config.trainer
    assert PAPERS[name] == {
        **{"channels": network.channels, "cells": network.cells, "epochs": trainer.max_epochs},
        **{"images": data.batch_size * trainer.devices, "lr": retrain.lr, "lr_min": retrain.lr_min},
        **{"warmup": retrain.warmup_epochs, "schedule": retrain.schedule, "momentum": retrain.momentum},
        **{"decay": retrain.weight_decay, "auxiliary": retrain.auxiliary_weight},
        **{"drop_path": retrain.drop_path, "cutout": data.cutout, "smoothing": retrain.label_smoothing},
    }
    assert network.auxiliary
    assert (retrain.opt, retrain.decay_norms) == ("momentum", True)  # the published code decays everything
    assert (retrain.mixup, retrain.cutmix, retrain.ema_decay, data.rand_augment) == (0, 0, None, 0)
    stems = {"tiny_imagenet": ("stem_stride", 2), "imagenet": ("stem", "imagenet")}
    for ending, (key, value) in stems.items():
        assert (network.get(key) == value) == (
            data._target_.rpartition(".")[2].lower() == ending.replace("_", "")
        )


@pytest.mark.parametrize("name", [name for name in PAPERS if name.startswith("topology")])
def test_curves_are_compared_without_regularization(name):
    """Shu 2022, appendix A.1.4: it is for the errors of section 4.4 only."""
    config = recipe(name, *settings_in_the_header(name))
    assert not config.network.auxiliary
    assert (config.dataset.cutout, config.retrain.drop_path) == (0, 0)


def test_cells_of_nasbench201_are_trained_as_the_benchmark_does():
    """arXiv:2001.00326, table 1: N = 5, 16 channels, Nesterov's momentum, no regularization."""
    config = recipe("nesbs_nasbench201", "genotype=nasbench201_best")
    retrain, network, data = config.retrain, config.network, config.dataset
    assert (network.channels, network.cells) == (16, 5)
    assert not network.get("auxiliary")
    assert (config.trainer.max_epochs, data.batch_size, data.augment, data.cutout) == (200, 256, True, 0)
    assert (retrain.opt, retrain.lr, retrain.lr_min, retrain.schedule) == ("sgd", 0.1, 0.0, "cosine")
    assert (retrain.momentum, retrain.weight_decay, retrain.decay_norms) == (0.9, 5e-4, True)
    assert (retrain.clip, retrain.drop_path, retrain.label_smoothing) == (None, 0.0, 0.0)


def test_imagenet_as_the_public_code_of_pr_darts_has_it():
    """Its train_imagenet.py: one device, batches of 256, 0.1 without warm-up, smoothing 0.2."""
    config = recipe("pr_darts_imagenet", *settings_in_the_header("pr_darts_imagenet"))
    assert (config.trainer.devices, config.dataset.batch_size) == (1, 256)
    assert "strategy" not in config.trainer or config.trainer.strategy == "auto"
    assert (config.retrain.lr, config.retrain.warmup_epochs, config.retrain.label_smoothing) == (0.1, 0, 0.2)


MODERN = [path.stem for path in (config_folder() / "experiment" / "retrain").glob("modern_*.yaml")]


@pytest.mark.parametrize("name", MODERN)
def test_modern_recipes_have_what_they_are_called_for(name):
    config = recipe(name)
    retrain = config.retrain
    assert retrain.opt in ("adamw", "lamb")
    assert not retrain.decay_norms
    assert min(retrain.mixup, retrain.cutmix, retrain.ema_decay, config.dataset.rand_augment) > 0
    assert config.trainer.precision == "bf16-mixed"
    assert retrain.lr_batch == config.dataset.batch_size * config.trainer.devices
