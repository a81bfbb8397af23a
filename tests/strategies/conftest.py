"""Searches as their yamls compose them, made small enough to run in a blink."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf
from torch import nn

from nas_lightning.cli.build import build, factory_of, searched_parts
from nas_lightning.data import Fake, SearchData
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.spaces.graph import CellGraph
from nas_lightning.spaces.group import Group
from nas_lightning.spaces.operations import Norm
from nas_lightning.strategies import RandomSearch, Strategy
from nas_lightning.strategies.supernet import SupernetStrategy
from nas_lightning.validation import arguments
from tests.yamls import composed, file, options, small_form

STRATEGIES, SPACES = options("strategy"), options("space")
NEEDS = {
    "pc_darts": lambda groups: all(group.on_edges for group in groups),
    "pr_darts": lambda groups: all(group.on_edges for group in groups),
    "pr_darts_public_code": lambda groups: all(group.on_edges for group in groups),
    "darts_minus": lambda groups: all(group.on_edges for group in groups),
    "lambda_darts": lambda groups: not any("relu" in group.ops for group in groups),
    "oles": lambda groups: not any("relu" in group.ops for group in groups),
    "reinmax": lambda groups: all(group.draw == 1 for group in groups),
    "optuna": lambda groups: len(groups) > 0,
    "fair_nas": lambda groups: len({(len(group.ops), group.draw) for group in groups}) == 1,
}
"""What strategies expect of a space's groups."""

LIGHTNING_SAYS = (
    "ignore:.*LeafSpec.*:FutureWarning",
    "ignore:Checkpoint directory .* exists and is not empty",
    "ignore:`LightningModule.configure_optimizers` returned `None`",
    "ignore:Using ModelCheckpoint with manual optimization",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for message in LIGHTNING_SAYS:
                item.add_marker(pytest.mark.filterwarnings(message))


@cache
def class_of(strategy: str) -> type[Strategy]:
    """The class that its yaml names."""
    config = OmegaConf.load(file("strategy", strategy))
    target = config.get("strategy", config).get("_target_")
    if target is not None:
        return get_class(target)
    return class_of(next(entry for entry in config.defaults if isinstance(entry, str) and entry != "_self_"))


SHARING = [name for name in STRATEGIES if issubclass(class_of(name), SupernetStrategy)]


def pytest_generate_tests(metafunc):
    """A test runs for each of the names that it asks for and a yaml has."""
    choices = {
        "strategy_name": lambda: STRATEGIES,
        "sharing_name": lambda: SHARING,
        "fitted_name": lambda: [name for name in STRATEGIES if not issubclass(class_of(name), RandomSearch)],
        "alone_name": lambda: [
            name for name in STRATEGIES if not issubclass(class_of(name), RandomSearch | SupernetStrategy)
        ],
        "space_name": lambda: SPACES,
    }
    for name in [name for name in choices if name in metafunc.fixturenames]:
        metafunc.parametrize(name, choices[name]())


@cache
def groups_of(space: str) -> Mapping[str, Group]:
    return build(config("random", space).space).groups


@cache
def fit_for(strategy: str, space: str) -> bool:
    """Whether the strategy's assumptions hold in the space."""
    groups = groups_of(space)
    if "supernet" in (arguments(class_of(strategy)) or {}) and not groups:
        return False
    return strategy not in NEEDS or NEEDS[strategy](groups.values())


def build_search(strategy: str, space: str, *overrides: str) -> tuple[Strategy, SearchData]:
    """What `search.py strategy=… space=…` would fit, small and from seed 0."""
    cfg = config(strategy, space, *overrides)
    pl.seed_everything(0, verbose=False)
    parts = searched_parts(cfg)
    return parts.build(factory_of(cfg.strategy)), parts.data


def config(strategy: str, space: str, *overrides: str) -> DictConfig:
    chosen = {"strategy": strategy, "space": space, "dataset": "fake"}
    return composed("search", *small_form(**chosen), "run=.", *overrides)


def at_most(epochs: int, strategy: str) -> int:
    """None for a strategy that fits nothing, as its yaml says."""
    return min(epochs, config(strategy, "nasbench201").trainer.max_epochs)


def quiet_trainer(epochs: int, *callbacks: pl.Callback, **options) -> pl.Trainer:
    """A trainer of the CPU that writes nothing of itself."""
    options = {
        "accelerator": "cpu",
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "num_sanity_val_steps": 0,
        "log_every_n_steps": 1,
    } | options
    return pl.Trainer(max_epochs=epochs, callbacks=list(callbacks), **options)


class NoNorm(Norm):
    """Leaves its input as it is."""

    def __call__(self, channels: int) -> nn.Module:
        return nn.Identity()


def without_norms(network: nn.Module) -> nn.Module:
    """The network with its batch norms taken out: a batch's loss is then the mean of its images' losses."""
    for module in list(network.modules()):
        if isinstance(module, CellGraph):
            module.norm = NoNorm()  # of the operations that it will have once it grows
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, nn.Identity())
    return network


@pytest.fixture(scope="session")
def epochs() -> Callable[[int, str], int]:
    """`epochs(most, strategy)`: how long to fit it."""
    return at_most


@pytest.fixture(scope="session")
def search() -> Callable[..., tuple[Strategy, SearchData]]:
    return build_search


@pytest.fixture(scope="session")
def fits() -> Callable[[str, str], bool]:
    """`fits(strategy, space)`"""
    return fit_for


@pytest.fixture(scope="session")
def sizes() -> Callable[[str], dict[str, Any]]:
    """`sizes(space)`: of small networks."""
    return lambda space: dict(config("random", space).network)


@pytest.fixture(scope="session")
def trainer() -> Callable[..., pl.Trainer]:
    return quiet_trainer


@pytest.fixture
def bare() -> Callable[[nn.Module], nn.Module]:
    return without_norms


@pytest.fixture
def cell_space() -> NasBench201:
    return NasBench201()


@pytest.fixture
def darts_space() -> DartsSpace:
    return DartsSpace(nodes=2)


@pytest.fixture
def supernet() -> Callable[..., nn.Module]:
    """`supernet(space)`: a small one, always from the same start."""

    def make_one(space, channels=2, **size):
        torch.manual_seed(1)
        if isinstance(space, DartsSpace):
            size = {"cells": 3, "stem_multiplier": 1} | size
        return space.supernet(in_channels=1, num_classes=3, channels=channels, **({"cells": 1} | size))

    return make_one


@pytest.fixture
def data() -> Callable[..., SearchData]:
    """`data()`: one-channel images of three classes; four batches an epoch."""

    def make_one(batch_size=4, train_size=32, augment=False, **search):
        images = Fake(
            shape=(1, 8, 8),
            num_classes=3,
            train_size=train_size,
            test_size=4,
            batch_size=batch_size,
            augment=augment,
        )
        return SearchData(images, **search)

    return make_one
