"""Limits that are drawn: of any costs, one or several, tight or not, in any space, whatever searches.

What is derived is counted here anew, by passes over real tensors and a device that is read again.
"""

import re
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import pytorch_lightning as pl
import torch

from nas_lightning.benchmarks.device import Device
from nas_lightning.cli.build import factory_of, searched_parts
from nas_lightning.cost.counts import count_macs, count_parameters
from nas_lightning.cost.limits import OF_NETWORKS
from nas_lightning.cost.memory import inference_memory
from nas_lightning.errors import InputError
from nas_lightning.spaces.limited import bounds, repair
from nas_lightning.spaces.sampling import draw_some
from tests.strategies.conftest import SPACES, STRATEGIES, config, fit_for

OF_NETWORK = ("network.channels=6", "network.cells=2", "network.auxiliary=true")
SHAPE = "dataset.shape=[1,10,12]"
LEAST = {"params": 1.0, "macs": 1.0, "memory_mb": 1e-9, "latency_ms": 1e-9}
"""Below all networks."""


class Case(NamedTuple):
    """A search, what is limited, how tight, and settings beside it."""

    strategy: str
    space: str
    names: list[str]
    level: str
    words: list[str]
    seed: int


def draw_case(seed: int) -> Case:
    random = Random(seed)
    strategy, space = random.choice(STRATEGIES), random.choice(SPACES)
    while not fit_for(strategy, space):
        strategy, space = random.choice(STRATEGIES), random.choice(SPACES)
    level = random.choice(["least", "tight", "middling"])
    names = random.sample(OF_NETWORKS, 1 if level == "least" else random.choice([1, 2, 3]))
    known = config(strategy, space).network
    fit = [word for word in OF_NETWORK if word.partition("=")[0].removeprefix("network.") in known]
    words = [word for word in (*fit, SHAPE) if random.random() < 0.25]
    return Case(strategy, space, names, level, words, seed)


def write_measurements(path: Path, space: Any, seed: int) -> None:
    """A device by hand: operations have their prices, and measurements their noise."""
    random, prices = Random(seed), {}
    rows = []
    for genotype in draw_some(space, 14, torch.Generator().manual_seed(seed)):
        ms = 1 + sum(prices.setdefault(op, random.uniform(0.1, 3)) for op in sorted(genotype.ops))
        rows.append(f'"{space.notation(genotype)}",{ms * random.lognormvariate(0, 0.1):.5g}\n')
    path.write_text("genotype,mine\n" + "".join(rows))


class Counted:
    """What networks cost, however a search may have found that."""

    def __init__(self, case: Case, path: Path) -> None:
        self.parts, self.names = searched_parts(config("random", case.space, *case.words)), case.names
        self.words, self.device = [], None
        if "latency_ms" in self.names:
            write_measurements(path, self.parts.space, case.seed)
            self.words, self.device = [f"limits.device={path}"], Device(str(path), self.parts.space)

    def __call__(self, genotype) -> dict[str, float]:
        network, x = self.parts.network(genotype), torch.zeros(1, *self.parts.data.image)
        count = {
            "params": lambda: count_parameters(network),
            "macs": lambda: count_macs(network, x),
            "memory_mb": lambda: inference_memory(network, x) / 1e6,
            "latency_ms": lambda: self.device(genotype),
        }
        return {name: float(count[name]()) for name in self.names}

    def limits(self, case: Case) -> dict[str, float]:
        """What one of 16 networks costs: the smallest by the first cost, or the middling one."""
        drawn = draw_some(self.parts.space, 16, torch.Generator().manual_seed(case.seed + 1))
        costs = sorted(map(self, drawn), key=lambda cost: cost[self.names[0]])
        if case.level == "least":
            return self.least(case, at_most=costs[0])
        return costs[0 if case.level == "tight" else len(costs) // 2]

    def least(self, case: Case, at_most: dict[str, float]) -> dict[str, float]:
        """What a refusal names, which no network that was drawn is below."""
        (name,) = self.names
        with pytest.raises(InputError, match="which the smallest network of the space has") as error:
            searched_parts(self.config(case, {name: LEAST[name]}))
        number = re.search(r"at least (\S+), which", str(error.value))[1]
        least = float(number.replace(",", ""))
        assert least <= at_most[name] * 1.001  # four digits are named
        return {name: least}

    def config(self, case: Case, limits: dict[str, float]):
        asked = [f"limits.{name}={limit!r}" for name, limit in limits.items()]
        return config(case.strategy, case.space, *case.words, *self.words, *asked)


def check(case: Case, path: Path, trainer, epochs) -> None:
    counted = Counted(case, path)
    limits = counted.limits(case)
    cfg = counted.config(case, limits)
    pl.seed_everything(case.seed, verbose=False)
    parts = searched_parts(cfg)
    strategy = parts.build(factory_of(cfg.strategy))
    trainer(epochs(1, case.strategy)).fit(strategy, parts.data)
    derived = strategy.derive()
    assert derived
    for genotype in [*derived, *map(parts.space.keep_limits, derived)]:
        found = counted(genotype)
        assert {name: cost for name, cost in found.items() if cost > limits[name]} == {}, (case, limits)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The same with less work: fewer networks counted, fewer architectures looked at."""
    monkeypatch.setattr(bounds, "COUNTED", 40)
    monkeypatch.setattr(repair, "MOST", 300)


@pytest.mark.parametrize("seed", range(1000, 1005))
def test_what_is_derived_is_within_limits_that_are_drawn(seed, tmp_path, trainer, epochs):
    check(draw_case(seed), tmp_path / "device.csv", trainer, epochs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_what_is_derived_is_within_many_more(seed, tmp_path, trainer, epochs):
    check(draw_case(seed), tmp_path / "device.csv", trainer, epochs)
