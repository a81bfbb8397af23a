"""The recipes against the papers and their public code: `recipes.yaml` has each setting with its source."""

import re
from pathlib import Path

import pytest
import torch
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from torch import nn

from nas_lightning.options import config_folder
from nas_lightning.training.optimizers import build_optimizer, build_scheduler
from tests.yamls import composed

TABLE = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("recipes.yaml")))
TRAININGS = [name for name in TABLE if name.startswith("retrain/")]
FROM_PAPERS = [name for name in TRAININGS if TABLE[name]]


def recipe(name, *overrides):
    if name == "retrain/nesbs_nasbench201":  # the sizes of a network are those of its genotype's space
        overrides = (*overrides, "genotype=nasbench201_best")
    return composed("train" if name in TRAININGS else "search", f"experiment={name}", *overrides)


def value(config: DictConfig, setting: str):
    """What a setting is; a number of images counts those of all devices."""
    if setting == "images":
        return config.dataset.batch_size * config.trainer.devices
    if setting == "steps":
        return config.trainer.max_epochs * config.trainer.limit_train_batches
    return OmegaConf.select(config, setting, default="no such setting")


def test_every_recipe_is_in_the_table():
    files = (config_folder() / "experiment").rglob("*.yaml")
    names = {path.relative_to(config_folder() / "experiment").with_suffix("").as_posix() for path in files}
    assert names == set(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_settings_are_those_of_the_sources(name):
    config = recipe(name)
    rows = {
        (source, setting): said
        for source, settings in TABLE[name].items()
        for setting, said in settings.items()
    }
    assert {row: value(config, row[1]) for row in rows} == rows


COMPOSED = re.compile(
    r"network\.stem(_stride)?|dataset\.batch_size|trainer\.(devices|limit_train_batches|max_epochs)"
    r"|strategy\.evaluation|space\..*|hydra\..*"
)
"""What is no number of a source; images and steps have these names in the table."""


def leaves(node: DictConfig, where=""):
    for key, inner in node.items():
        yield from leaves(inner, f"{where}{key}.") if isinstance(inner, DictConfig) else [f"{where}{key}"]


@pytest.mark.parametrize("name", [name for name in TABLE if TABLE[name]])
def test_no_recipe_has_a_setting_without_a_source(name):
    """What its yaml writes, and those that it builds on."""
    written, bases = OmegaConf.create(), [name]
    while bases:
        own = OmegaConf.load(config_folder() / "experiment" / f"{bases.pop()}.yaml")
        bases += [base for base in own.pop("defaults", []) if isinstance(base, str) and base != "_self_"]
        written = OmegaConf.merge(own, written)
    sourced = {setting for settings in TABLE[name].values() for setting in settings}
    assert not [one for one in leaves(written) if one not in sourced and not COMPOSED.fullmatch(one)]
    assert {"trainer.max_epochs", "steps"} & sourced


@pytest.mark.parametrize("name", FROM_PAPERS)
def test_trainings_of_papers_are_nothing_but_sgd(name):
    config = recipe(name)
    retrain, data = config.retrain, config.dataset
    assert retrain.opt in ("momentum", "sgd")
    assert retrain.decay_norms  # the published code decays everything
    assert (retrain.mixup, retrain.cutmix, retrain.ema_decay, data.rand_augment) == (0, 0, None, 0)
    stems = {"tiny_imagenet": ("stem_stride", 2), "imagenet": ("stem", "imagenet")}
    for ending, (key, size) in stems.items():
        is_of = get_object(data._target_).__name__.lower() == ending.replace("_", "")
        assert (config.network.get(key) == size) == is_of


@pytest.mark.parametrize("name", [name for name in TABLE if name.endswith("_public_code")])
def test_a_variant_differs_from_the_papers_recipe_and_says_in_what(name):
    own, papers = recipe(name), recipe(name.removesuffix("_public_code"))
    assert own != papers
    header = (config_folder() / "experiment" / f"{name}.yaml").read_text()
    assert re.search(rf"differs from .*{papers_name(name)}", header.replace("\n# ", " "))


def papers_name(name):
    return f"experiment={name.removesuffix('_public_code')}"


RATES = {  # of some epochs
    "retrain/darts_imagenet": {0: 0.1, 1: 0.097, 249: 0.1 * 0.97**249},
    "retrain/nasi_imagenet": {0: 0.1, 4: 0.5, 5: 0.5 * 240 / 245, 245: 0.5 / 245, 249: 0.1 / 245},
    "retrain/pr_darts_imagenet": {0: 0.1, 4: 0.1 * 241 / 245, 249: 0.02 / 245},
}


@pytest.mark.parametrize("name", RATES)
def test_rates_of_imagenet_trainings(name):
    """DARTS: × 0.97 an epoch. HNAS' public code: linear, with a smaller slope in the last five epochs."""
    config = recipe(name)
    chosen = config.retrain
    optimizer = build_optimizer([nn.Parameter(torch.zeros(1))], chosen.opt, lr=chosen.lr)
    options = {key: chosen[key] for key in ("lr_min", "lr_decay", "warmup_epochs", "warmup_lr")}
    scheduler = build_scheduler(optimizer, chosen.schedule, epochs=config.trainer.max_epochs, **options)
    found = {}
    for epoch in RATES[name]:
        scheduler.step(epoch)
        found[epoch] = optimizer.param_groups[0]["lr"]
    assert found == pytest.approx(RATES[name])


def test_curves_are_compared_without_regularization():
    """Shu 2022, appendix A.1.4: it is for the errors of section 4.4 only."""
    for name in [name for name in TRAININGS if "topology" in name]:
        lines = (config_folder() / "experiment" / f"{name}.yaml").read_text().splitlines()
        (line,) = [line for line in lines if re.fullmatch(r"#   (\S+=\S+ ?)+", line)]
        config = recipe(name, *line.removeprefix("#   ").split())
        assert not config.network.auxiliary
        assert (config.dataset.cutout, config.retrain.drop_path) == (0, 0)


@pytest.mark.parametrize("name", [name for name in TRAININGS if not TABLE[name]])
def test_modern_recipes_have_what_they_are_called_for(name):
    config = recipe(name)
    retrain = config.retrain
    assert "modern" in name
    assert retrain.opt in ("adamw", "lamb")
    assert not retrain.decay_norms
    assert min(retrain.mixup, retrain.cutmix, retrain.ema_decay, config.dataset.rand_augment) > 0
    assert config.trainer.precision == "bf16-mixed"
    assert retrain.lr_batch == config.dataset.batch_size * config.trainer.devices
