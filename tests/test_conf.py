"""The configurations: each composes, and each option is an argument of its target."""

import configparser
import re

import pytest
import yaml
from hydra.utils import get_object
from setuptools import find_packages

from nas_lightning.genotype import read_genotypes
from nas_lightning.options import config_folder, description
from nas_lightning.validation import arguments
from tests.cli.conftest import REPOSITORY
from tests.yamls import chosen, composed, file, small, small_form

FILES = sorted(path.relative_to(config_folder()) for path in config_folder().rglob("*.yaml"))
OPTIONS = [path for path in FILES if len(path.parts) > 1 and not path.name.startswith("_")]
EXPERIMENTS = [
    path.with_suffix("").relative_to("experiment") for path in OPTIONS if path.parts[0] == "experiment"
]
SEARCHES = [str(name) for name in EXPERIMENTS if name.parts[0] != "retrain"]
TRAININGS = [str(name) for name in EXPERIMENTS if name.parts[0] == "retrain"]


def test_the_first_comment_describes_the_option():
    lines = {path: description(config_folder() / path) for path in FILES}
    assert len(lines) > 200
    assert {path: line for path, line in lines.items() if not 10 < len(line) < 140 or line[-1] == "."} == {}


def test_every_genotype_belongs_to_its_space():
    for path in [path for path in OPTIONS if path.parts[0] == "genotype" and path.name != "file.yaml"]:
        chosen = yaml.safe_load((config_folder() / path).read_text())
        config = composed("search", f"space={chosen['space']}")
        space = get_object(config.space._target_)()
        space.check(space.parse(chosen))


# Experiments


def test_experiments_name_their_paper_and_their_command():
    for name in SEARCHES + TRAININGS:
        lines = (config_folder() / "experiment" / f"{name}.yaml").read_text().splitlines()
        header = [line for line in lines if line.startswith("#")]
        assert header[0] == "# @package _global_"
        assert re.search(r"arXiv:\d{4}\.\d{5}|Shu 2022", header[1]), name
        script = "train" if name.startswith("retrain/") else "search"
        assert header[-1].startswith(f"#   nas-{script} "), name
        assert f"experiment={name}" in header[-1].split()


def test_recipes_on_cifar10_train_a_supernet_of_the_papers_size():
    for name in SEARCHES:
        config = composed("search", f"experiment={name}")
        takes_supernet = "supernet" in arguments(get_object(config.strategy._target_))
        if takes_supernet and "Cifar10" in config.dataset._target_:
            space = config.space._target_.rpartition(".")[2]
            cells = {"NasBench1Shot1": 3, "NasBench201": 5}.get(space, 8)  # of a stack, or all
            if name == "pr_darts_cifar10_public_code":
                cells = 6  # N = 2 in its PRDARTS-NASNet-archs.config
            assert (config.supernet.channels, config.supernet.cells) == (16, cells), name


def test_another_strategy_in_a_recipe_of_a_space_keeps_its_own_settings():
    for name in [name for name in SEARCHES if name.startswith("robust_darts")]:
        alone = composed("search", "strategy=gaea")
        assert composed("search", f"experiment={name}", "strategy=gaea").strategy == alone.strategy


QUICK = ("pr_darts_cifar10", "hnas_nasbench201", "nasi_fix_cifar10")
"""Recipes that every run of the tests tries; the slow tests run all."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SEARCHES]
)
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


def test_targets_are_public_names():
    """A package and a name that it exports: `nas_lightning.strategies.PRDarts`."""
    for path in FILES:
        text = (config_folder() / path).read_text(encoding="utf-8")
        for target in re.findall(r"_target_: (nas_lightning\.[\w.]+)", text):
            assert re.fullmatch(r"nas_lightning(\.[a-z_]+)+\.\w+", target), target
            assert callable(get_object(target))
