"""The configurations: each composes, each option is an argument of its target, each argument an option."""

import configparser
import dataclasses
import inspect
import re
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_module
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from nas_lightning.genotype import read_genotypes
from nas_lightning.jobs.targets import arguments, check_targets
from nas_lightning.options import config_folder, description
from tests.cli.conftest import REPOSITORY

FILES = sorted(path.relative_to(config_folder()) for path in config_folder().rglob("*.yaml"))
OPTIONS = [path for path in FILES if len(path.parts) > 1 and not path.name.startswith("_")]
EXPERIMENTS = [
    path.with_suffix("").relative_to("experiment") for path in OPTIONS if path.parts[0] == "experiment"
]
SEARCHES = [str(name) for name in EXPERIMENTS if name.parts[0] != "retrain"]
TRAININGS = [str(name) for name in EXPERIMENTS if name.parts[0] == "retrain"]
FOR_TRAINING = ("genotype", "retrain", "ensemble")
PARTS = {"space", "supernet", "network", "data", "benchmark", "num_classes", "params"}
"""Arguments that the scripts hand over."""


def composed(name, *overrides):
    with initialize_config_module("nas_lightning.conf", version_base="1.3"):
        return compose(name, list(overrides))


def with_option(path: Path) -> DictConfig:
    """The configuration of the script that the option is for, with it chosen."""
    group, name = path.parts[0], "/".join(path.with_suffix("").parts[1:])
    training = group in FOR_TRAINING or name.startswith("retrain/") or name == "train"
    script = "analyze" if group == "study" else "train" if training else "search"
    return composed(script, f"{group}={name}")


def targets(config, where=""):
    if isinstance(config, DictConfig):
        if "_target_" in config:
            yield where, config
        for key in config:
            value = config._get_node(key)
            yield from targets(value, f"{where}.{key}" if where else str(key))


def test_there_are_as_many_as_there_were():
    assert len(FILES) > 70
    assert len(SEARCHES) >= 16
    assert len(TRAININGS) >= 10


@pytest.mark.parametrize("path", FILES, ids=str)
def test_the_first_comment_says_what_it_is(path):
    line = description(config_folder() / path)
    assert 10 < len(line) < 140
    assert not line.endswith(".")


CHOSEN = [path for path in OPTIONS if path.parts[0] != "metric" and path.name != "slurm.yaml"]
"""All that a script can be told to take, but for a launcher whose plugin is not installed."""


@pytest.mark.parametrize("path", CHOSEN, ids=str)
def test_every_option_composes_and_fits_its_targets(path):
    config = with_option(path)
    OmegaConf.set_readonly(config, False)
    config.run = "somewhere"  # known only in a run
    for key in OmegaConf.missing_keys(config):
        OmegaConf.update(config, key, "somewhere")
    check_targets(config)


@pytest.mark.parametrize("path", [path for path in OPTIONS if path.parts[0] == "metric"], ids=str)
def test_every_metrics_options_are_its_fields(path):
    config = OmegaConf.load(config_folder() / path)
    fields = dataclasses.fields(get_object(config._target_))
    assert set(config) - {"_target_"} == {field.name for field in fields}


def own_arguments(target) -> set[str]:
    """What can be given to one of our classes or functions, without what it passes on to Lightning's."""
    chain = [target]
    if isinstance(target, type):
        ours = [c for c in target.__mro__ if c.__module__.startswith("nas_lightning")]
        chain = [vars(ancestor)["__init__"] for ancestor in ours if "__init__" in vars(ancestor)]
    found: set[str] = set()
    for function in chain:
        parameters = inspect.signature(function).parameters.values()
        found |= {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        if not any(p.kind == p.VAR_KEYWORD for p in parameters):
            break  # it passes nothing on
    return found - {"self"}


@pytest.mark.parametrize("path", CHOSEN, ids=str)
def test_every_argument_of_ours_is_an_option(path):
    for where, node in targets(with_option(path)):
        if node._target_.startswith("nas_lightning."):
            known = own_arguments(get_object(node._target_))
            missing = known - set(node) - PARTS - NOT_OFFERED.get(node._target_, set())
            assert not missing, f"{where}: {sorted(missing)}"


NOT_OFFERED = {
    "nas_lightning.spaces.DartsSpace": {"ops"},  # a tuple of names: a space of its own
    "nas_lightning.data.SearchData": {"batch_size"},  # that of the data set
    "nas_lightning.callbacks.NTKMonitor": {"batch"},  # for those who have tensors at hand
    "nas_lightning.callbacks.SearchProgressBar": {"refresh_rate"},
    "nas_lightning.strategies.Gaea": {"arch_betas", "arch_weight_decay"},  # of an optimiser that it has not
}


@pytest.mark.parametrize("path", [p for p in OPTIONS if p.parts[0] == "space"], ids=str)
def test_the_sizes_of_a_space_are_those_of_its_networks(path):
    config = OmegaConf.load(config_folder() / path)
    space = get_object(config.space._target_)
    for method, sizes in ((space.supernet, config.supernet), (space.network, config.network)):
        known = set(arguments(method)) - {"self", "genotype", "in_channels", "num_classes", "norm"}
        assert set(sizes) == known


@pytest.mark.parametrize("path", [p for p in OPTIONS if p.parts[0] == "genotype"], ids=str)
def test_every_genotype_is_one_of_its_space(path):
    chosen = yaml.safe_load((config_folder() / path).read_text())
    if path.name != "file.yaml":
        config = composed("search", f"space={chosen['space']}")
        space = get_object(config.space._target_)()
        space.check(space.parse(chosen))


# Experiments


@pytest.mark.parametrize("name", SEARCHES + TRAININGS)
def test_an_experiments_header_has_its_paper_and_its_command(name):
    lines = (config_folder() / "experiment" / f"{name}.yaml").read_text().splitlines()
    header = [line for line in lines if line.startswith("#")]
    assert header[0] == "# @package _global_"
    if not name.startswith("tiny/"):
        assert re.search(r"arXiv:\d{4}\.\d{5}|Shu 2022", header[1])
    script = "train" if name.startswith("retrain/") else "search"
    assert header[-1].startswith(f"#   python {script}.py ")
    assert f"experiment={name}" in header[-1].split()


@pytest.mark.parametrize("name", [name for name in SEARCHES if not name.startswith("tiny/")])
def test_a_recipe_and_its_tiny_twin_differ_in_size_only(name):
    full, tiny = composed("search", f"experiment={name}"), composed("search", f"experiment=tiny/{name}")
    assert full.strategy._target_ == tiny.strategy._target_
    one, other = (OmegaConf.to_container(config.strategy, resolve=False) for config in (full, tiny))
    same = one.keys() - {"warmup_epochs", "epochs", "pool_size", "pool_per_round"}
    assert {key: one[key] for key in same} == {key: other[key] for key in same}
    assert full.dataset._target_.endswith("Cifar10")
    assert tiny.dataset._target_.endswith("Digits")
    assert full.search_data == tiny.search_data
    assert full.supernet.get("partial") == tiny.supernet.get("partial")
    cells = 3 if "NasBench" in full.space._target_ else 8  # a stack, or all
    if "supernet" in own_arguments(get_object(full.strategy._target_)):
        assert (full.supernet.channels, full.supernet.cells) == (16, cells)
    assert tiny.trainer.max_epochs < full.trainer.max_epochs


@pytest.mark.parametrize("name", [name for name in SEARCHES if name.startswith("tiny/")])
def test_every_recipe_runs(tmp_path, monkeypatch, name):
    """One epoch of a few steps, on less than the tiny twin has."""
    from tests.cli.conftest import run_script

    monkeypatch.chdir(tmp_path)
    supernet = composed("search", f"experiment={name}").supernet  # {} in a space that has none
    small = [
        f"supernet.{key}={value}" for key, value in {"channels": 4, "cells": 1}.items() if key in supernet
    ]
    small += ["network.channels=4", "network.cells=2"]
    less = ("dataset.subset=64", "dataset.batch_size=16", "callbacks.history.figures=false")
    assert run_script("search", f"experiment={name}", *small, *less, "trainer.max_epochs=1", "run=a") == 0
    assert read_genotypes(tmp_path / "a")


# The package


def test_every_package_is_installed():
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    listed = set(setup["options"]["packages"].split())
    folders = {file.parent for file in (REPOSITORY / "nas_lightning").rglob("*.py")}
    assert {str(folder.relative_to(REPOSITORY)).replace("/", ".") for folder in folders} <= listed
    assert "nas_lightning.conf" in listed
    patterns = setup["options.package_data"]["nas_lightning.conf"].replace(",", " ").split()
    found = {file for pattern in patterns for file in config_folder().glob(pattern)}
    assert found == set(config_folder().rglob("*.yaml"))
