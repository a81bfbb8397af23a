"""Searches as their yamls compose them, made small enough to run in a blink."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_module
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf
from torch import nn

from nas_lightning.data import Fake, SearchData
from nas_lightning.jobs.arguments import arguments
from nas_lightning.jobs.configured import factory_of, make, searched_parts
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.strategies import RandomSearch, Strategy
from nas_lightning.strategies.oneshot.weight_sharing import WeightSharing

CONF = Path(__file__).parents[2] / "conf"
STRATEGIES = sorted(path.stem for path in (CONF / "strategy").glob("[!_]*.yaml"))
SPACES = sorted(path.stem for path in (CONF / "space").glob("[!_]*.yaml"))
SMALL_NETWORK = ["network.channels=4", "network.cells=3"]
SMALL_SPACE = {
    "darts": [
        "supernet.channels=4",
        "supernet.cells=3",
        "supernet.stem_multiplier=1",
        "space.nodes=1",
        *SMALL_NETWORK,
    ],
    "darts_nasi": [
        "supernet.channels=4",
        "supernet.cells=3",
        "supernet.stem_multiplier=1",
        "space.nodes=2",
        *SMALL_NETWORK,
    ],
    "mlp": ["space.layers=4", "supernet.width=8", "network.width=8"],
    "nasbench101": ["network.channels=8", "network.cells=1"],
    "nasbench1shot1_s1": ["supernet.channels=2", "network.channels=8", "network.cells=1"],
    "nasbench1shot1_s2": ["supernet.channels=2", "network.channels=8", "network.cells=1"],
    "nasbench1shot1_s3": ["supernet.channels=2", "network.channels=8", "network.cells=1"],
    "nasbench201": ["supernet.channels=4", "supernet.cells=1", "network.channels=4", "network.cells=1"],
    "two_layer": ["supernet.width=8", "network.width=8"],
}
ON_EDGES_ONLY = {"pc_darts", "pr_darts"}
"""Strategies that need operations on edges."""
BLACK_BOX = ["strategy.pool=null", "strategy.epochs=1", "strategy.images=4"]
POOL = [*BLACK_BOX, "strategy.pool_size=12"]
GROWING = [*POOL, "strategy.pool_per_round=2"]
FEW = {"two_layer"}
"""Spaces with fewer architectures than these pools."""
SMALL_POOL = {"strategy.pool_size=12": "strategy.pool_size=3", GROWING[-1]: "strategy.pool_per_round=0"}
SMALL_STRATEGY = {
    "random_ws": ["strategy.candidates=10"],
    "nasi": ["strategy.nu_samples=5"],
    "nesbs": ["search_data.train_fraction=0.5", "strategy.svgd_steps=20", "~supernet.partial"],
    "hnas": POOL,
    "eigen_nas": POOL,
    "knas": POOL,
    "metric_search": GROWING,
    "evolution": [*BLACK_BOX, "strategy.population=3", "strategy.sample=2"],
}

LIGHTNING_SAYS = (
    "ignore:.*LeafSpec.*:FutureWarning",
    "ignore:Checkpoint directory .* exists and is not empty",
    "ignore:`LightningModule.configure_optimizers` returned `None`",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for message in LIGHTNING_SAYS:
                item.add_marker(pytest.mark.filterwarnings(message))


@cache
def class_of(strategy: str) -> type[Strategy]:
    loaded = OmegaConf.load(CONF / "strategy" / f"{strategy}.yaml")
    return get_class(loaded.get("_target_") or loaded.strategy._target_)


def pytest_generate_tests(metafunc):
    """A test runs for each of the names that it asks for and a yaml has."""
    choices = {
        "strategy_name": lambda: STRATEGIES,
        "sharing_name": lambda: [name for name in STRATEGIES if issubclass(class_of(name), WeightSharing)],
        "fitted_name": lambda: [name for name in STRATEGIES if not issubclass(class_of(name), RandomSearch)],
        "space_name": lambda: SPACES,
    }
    for name in choices.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(name, choices[name]())


def fit_for(strategy: str, space: str) -> bool:
    """Whether the strategy's assumptions hold in the space."""
    groups = make(config(strategy, space).space).groups
    if "supernet" in (arguments(class_of(strategy)) or {}) and not groups:
        return False
    return strategy not in ON_EDGES_ONLY or all(group.on_edges for group in groups.values())


def composed(strategy: str, space: str, *overrides: str) -> tuple[Strategy, SearchData]:
    """What `search.py strategy=… space=…` would fit, small and from seed 0."""
    cfg = config(strategy, space, *overrides)
    pl.seed_everything(0, verbose=False)
    parts = searched_parts(cfg)
    return parts.build(factory_of(cfg.strategy)), parts.data


@cache
def config(strategy: str, space: str, *overrides: str) -> DictConfig:
    sizes = ["dataset.train_size=24", "dataset.test_size=4", "dataset.batch_size=4"]
    chosen = [f"strategy={strategy}", f"space={space}", "dataset=fake", "run=."]
    with initialize_config_module("nas_lightning.conf", version_base=None):
        small = [*SMALL_SPACE[space], *SMALL_STRATEGY.get(strategy, [])]
        if space in FEW:
            small = [SMALL_POOL.get(word, word) for word in small]
        return compose("search", [*chosen, *sizes, *small, *overrides])


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


def without_norms(network: nn.Module) -> nn.Module:
    """The network with its batch norms taken out: a batch's loss is then the mean of its images' losses."""
    for module in list(network.modules()):
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
    return composed


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
