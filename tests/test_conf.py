"""The configurations: each composes, and each option is an argument of its target."""

import configparser
import copy
import re
from pathlib import Path

import pytest
import yaml
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from setuptools import find_packages

from nas_lightning.cli.build import check_targets
from nas_lightning.genotype import read_genotypes
from nas_lightning.jobs.arguments import arguments
from nas_lightning.options import config_folder, description
from tests.cli.conftest import REPOSITORY
from tests.yamls import chosen, composed, file, small, small_form

FILES = sorted(path.relative_to(config_folder()) for path in config_folder().rglob("*.yaml"))
OPTIONS = [path for path in FILES if len(path.parts) > 1 and not path.name.startswith("_")]
EXPERIMENTS = [
    path.with_suffix("").relative_to("experiment") for path in OPTIONS if path.parts[0] == "experiment"
]
SEARCHES = [str(name) for name in EXPERIMENTS if name.parts[0] != "retrain"]
TRAININGS = [str(name) for name in EXPERIMENTS if name.parts[0] == "retrain"]
FOR_TRAINING = ("genotype", "retrain", "ensemble", "network")


def with_option(path: Path) -> DictConfig:
    """The configuration of the script that the option is for, with it chosen."""
    group, name = path.parts[0], "/".join(path.with_suffix("").parts[1:])
    training = group in FOR_TRAINING or name.startswith("retrain/") or name == "train"
    script = "analyze" if group == "study" else "train" if training else "search"
    return composed(script, f"{group}={name}")


def test_there_are_as_many_as_there_were():
    assert len(FILES) > 70
    assert len(SEARCHES) >= 16
    assert len(TRAININGS) >= 10


@pytest.mark.parametrize("path", FILES, ids=str)
def test_the_first_comment_says_what_it_is(path):
    line = description(config_folder() / path)
    assert 10 < len(line) < 140
    assert not line.endswith(".")


PLUGINS = [Path("launcher/slurm.yaml"), Path("launcher/ray.yaml")]
CHOSEN = [path for path in OPTIONS if path.parts[0] != "metric" and path not in PLUGINS]
"""All that a script can be told to take, but for launchers whose plugin is not installed."""


@pytest.mark.parametrize("path", CHOSEN, ids=str)
def test_every_option_composes_and_fits_its_targets(path):
    config = copy.deepcopy(with_option(path))
    OmegaConf.set_readonly(config, False)
    config.run = "somewhere"  # known only in a run
    for key in OmegaConf.missing_keys(config):
        OmegaConf.update(config, key, "somewhere")
    check_targets(config)


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
    assert re.search(r"arXiv:\d{4}\.\d{5}|Shu 2022", header[1])
    script = "train" if name.startswith("retrain/") else "search"
    assert header[-1].startswith(f"#   python {script}.py ")
    assert f"experiment={name}" in header[-1].split()


@pytest.mark.parametrize("name", SEARCHES)
def test_a_recipe_on_cifar10_trains_a_supernet_of_the_papers_size(name):
    config = composed("search", f"experiment={name}")
    if "supernet" in arguments(get_object(config.strategy._target_)) and "Cifar10" in config.dataset._target_:
        space = config.space._target_.rpartition(".")[2]
        cells = {"NasBench1Shot1": 3, "NasBench201": 5}.get(space, 8)  # of a stack, or all
        assert (config.supernet.channels, config.supernet.cells) == (16, cells)


@pytest.mark.parametrize("name", [name for name in SEARCHES if name.startswith("robust_darts")])
def test_another_strategy_in_a_recipe_of_a_space_has_its_own_rate(name):
    alone, asked = (
        composed("search", "strategy=gaea"),
        composed("search", f"experiment={name}", "strategy=gaea"),
    )
    assert asked.strategy == alone.strategy


@pytest.mark.parametrize("name", SEARCHES)
def test_every_recipe_runs_small(tmp_path, monkeypatch, name):
    """On the digits, at what the yamls of its parts and its own call small."""
    from tests.cli.conftest import run_script

    monkeypatch.chdir(tmp_path)
    parts = {**chosen(file("experiment", name)), "dataset": "digits"}
    less = ("trainer.max_epochs=1", "callbacks.history.figures=false", "run=a")
    assert (
        run_script("search", f"experiment={name}", *small_form(**parts), *small("experiment", name), *less)
        == 0
    )
    found = [
        path.parent for path in (tmp_path / "a").rglob("genotype.json")
    ]  # of the run, or of a sweep's jobs
    assert found
    assert all(read_genotypes(folder) for folder in found)


# The package


def test_every_package_is_installed():
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    script = (REPOSITORY / "setup.py").read_text()
    assert 'package_dir={"nas_lightning.conf": "conf"}' in script
    include = re.findall(r'"(nas_lightning(?:\.\*)?)"', script)
    folders = {file.parent for file in (REPOSITORY / "nas_lightning").rglob("*.py")}
    names = {str(folder.relative_to(REPOSITORY)).replace("/", ".") for folder in folders}
    assert names <= set(find_packages(str(REPOSITORY), include=include))
    patterns = setup["options.package_data"]["nas_lightning.conf"].replace(",", " ").split()
    found = {file for pattern in patterns for file in config_folder().glob(pattern)}
    assert found == set(config_folder().rglob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_target_of_ours_is_a_public_name(path):
    """A room and a class of it, `nas_lightning.strategies.PRDarts`, which one file defines."""
    text = (config_folder() / path).read_text(encoding="utf-8")
    for target in re.findall(r"_target_: (nas_lightning\.[\w.]+)", text):
        assert re.fullmatch(r"nas_lightning\.[a-z]+\.\w+", target), target
        name = target.rpartition(".")[2]
        assert get_object(target).__name__ == name
        folder = REPOSITORY / "nas_lightning" / target.split(".")[1]
        texts = [file.read_text(encoding="utf-8") for file in folder.rglob("*.py")]
        assert sum(bool(re.search(rf"^(class|def) {name}\b", text, re.M)) for text in texts) == 1
