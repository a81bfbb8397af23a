"""Limits on the cost of the derived network hold for every strategy, with fixed and with random limits."""

import csv
import re
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import pytorch_lightning as pl
import torch

from nas_lightning.cli.build import factory_of, searched_parts
from nas_lightning.errors import InputError
from nas_lightning.objectives.counts import cost, count_macs, count_parameters
from nas_lightning.objectives.latency import Device
from nas_lightning.objectives.limits import OF_NETWORKS
from nas_lightning.objectives.memory import inference_memory
from nas_lightning.spaces import NasBench201, constrained
from nas_lightning.spaces.base import draw_distinct, sample_distinct
from nas_lightning.strategies.supernet import RATE
from tests.strategies.conftest import SPACES, STRATEGIES, config, fit_for

# Limits on what the network costs that is trained: every strategy, in spaces of every kind, keeps them.


KINDS = ("nasbench201", "darts", "nasbench1shot1_s1", "nasbench101", "resnet")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The same with less work: fewer networks counted, fewer architectures looked at."""
    monkeypatch.setattr(constrained, "COUNTED", 40)
    monkeypatch.setattr(constrained, "MAX_EVALUATED", 300)


@cache
def low_limit(space: str) -> int:
    """Parameters that one of six architectures keeps."""
    parts = searched_parts(config("random", space))
    drawn = draw_distinct(parts.space, 24, torch.Generator().manual_seed(1))
    return sorted(cost(parts.network(genotype), parts.data.image).params for genotype in drawn)[3]


ONE_OF_EACH = {
    *("darts", "random_ws", "nesbs", "nasi", "random", "evolution", "metric_search", "optuna"),
}
PAIRS = [
    pytest.param(name, kind, marks=[] if kind == KINDS[0] and name in ONE_OF_EACH else pytest.mark.slow)
    for name in STRATEGIES
    for kind in KINDS
    if fit_for(name, kind)
]


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_every_strategy_derives_within_the_limit(search, sizes, trainer, epochs, name, kind):
    limit = low_limit(kind)
    strategy, data = search(name, kind, f"limits.params={limit}")
    trainer(epochs(1, name)).fit(strategy, data)
    space, genotypes = strategy.space, strategy.derive()
    for genotype in genotypes:
        network = space.network(genotype, in_channels=3, num_classes=4, **sizes(kind))
        assert cost(network, (3, 8, 8)).params <= limit
    evaluated = [space.parse(name) for name in getattr(strategy, "scored", {})]
    assert all(space.bounds.costs(genotype)["params"] <= limit for genotype in evaluated)


def test_multiplier_rises_and_is_in_the_checkpoint(search, trainer):
    strategy, data = search("darts", "nasbench201", f"limits.params={low_limit('nasbench201')}")
    with torch.no_grad():
        strategy.arch["cell"][:, 3] = 1.0  # every edge would be the largest convolution
    strategy.arch_lr = 1e-6
    trainer(2).fit(strategy, data)
    excess = strategy.space.derived_excess(strategy.scores())["params"]
    assert excess > 0
    assert strategy.pressure.multipliers.item() == pytest.approx(6 * RATE * excess, rel=1e-4)
    assert "pressure.multipliers" in strategy.state_dict()


def test_no_multipliers_without_limits(search):
    assert "pressure.multipliers" not in search("darts", "nasbench201")[0].state_dict()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["limits.params=0"], "`params` must be greater than 0, got 0"),
        (["limits.macs=-5"], "`macs` must be greater than 0, got -5"),
        (["limits.memory_mb=nan"], "`memory_mb` must be a finite number, got nan"),
        (
            ["limits.params=10"],
            "`params` must be at least 4,792, as the smallest network of the space has, got '10'",
        ),
        (["limits.latency_ms=2"], "A latency needs a device"),
        (["limits.device=a.csv"], "`limits.device` needs limits.latency_ms"),
        (
            ["limits.latency_ms=2", "limits.device=a.csv"],
            "The table of latencies must be a .csv or .parquet file",
        ),
    ],
)
def test_invalid_limits_are_rejected_early(words, line):
    with pytest.raises(InputError) as error:
        searched_parts(config("random", "nasbench201", *words))
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def pairs_and_bad_limits(count):
    """Strategies in spaces that they take, each with a limit that nothing can keep."""
    random = Random(7)
    pairs = [(name, space) for name in STRATEGIES for space in KINDS if fit_for(name, space)]
    bad = [
        ("limits.params=0", "greater than 0"),
        ("limits.macs=-1", "greater than 0"),
        ("limits.memory_mb=nan", "finite"),
        ("limits.params=3", "as the smallest network of the space has"),
        ("limits.minutes=0", "greater than 0"),
        ("limits.minutes=-2", "greater than 0"),
    ]
    return [(*random.choice(pairs), *bad[number % len(bad)]) for number in range(count)]


@pytest.mark.parametrize(("strategy", "space", "word", "line"), pairs_and_bad_limits(3))
def test_invalid_limits_are_rejected_for_every_strategy(strategy, space, word, line):
    with pytest.raises(InputError) as error:
        searched_parts(config(strategy, space, word))
    assert line in str(error.value)
    assert "\n" not in str(error.value)


DEVICES = (pytest.param("raspi4_latency", marks=pytest.mark.slow), "edgetpu_latency")
"""The second has 10,926 of the cells."""


@pytest.mark.parametrize("device", DEVICES)
def test_limits_on_a_device_of_hw_nas_bench_are_those_of_its_table(shared_data, device):
    path = shared_data / "nasbench201" / "hwnasbench_cifar10.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = {row["arch"]: float(row[device]) for row in csv.DictReader(file)}
    measured = {name: ms for name, ms in rows.items() if ms > 0}  # -1 where it was not
    known = sorted(measured.values())
    limit = known[len(known) // 5]
    words = (f"limits.device={path}:{device}", f"limits.latency_ms={limit}")
    space = searched_parts(config("random", "nasbench201", *words)).space
    generator = torch.Generator().manual_seed(0)
    drawn = [space.notation(space.sample(generator)) for _ in range(40)]
    found = [measured[name] for name in drawn if name in measured]
    assert len(found) > 10
    assert max(found) <= limit


@pytest.mark.slow
def test_measured_latencies_take_precedence_over_predictions(tmp_path):
    """On a busy machine few networks were fast, and their neighbors are foretold as slow."""
    space, generator = NasBench201(), torch.Generator().manual_seed(5)
    cells = [space.notation(cell) for cell in draw_distinct(space, 40, generator)]
    fast, path = cells[17:19], tmp_path / "busy.csv"
    ms = dict(zip(cells, (5 + 15 * torch.rand(40, generator=generator)).tolist(), strict=True))
    ms |= dict.fromkeys(fast, 0.5)
    path.write_text("genotype,busy\n" + "".join(f"{cell},{each}\n" for cell, each in ms.items()))
    words = (f"limits.device={path}", "limits.latency_ms=0.6", "limits.params=1e6")
    limited = searched_parts(config("random", "nasbench201", *words)).space
    drawn = {limited.notation(limited.sample(torch.Generator().manual_seed(seed))) for seed in range(12)}
    assert drawn == set(fast)
    favorite = limited.discretize({"cell": torch.rand(6, 5, generator=generator)})
    assert limited.notation(favorite) in fast


@pytest.mark.slow
def test_limits_below_the_fastest_cell_and_cut_tables_are_one_line(shared_data, tmp_path):
    path = shared_data / "nasbench201" / "hwnasbench_cifar10.csv"
    cut = tmp_path / "cut.csv"
    cut.write_bytes(path.read_bytes()[:5000])
    for words in (
        (f"limits.device={path}:raspi4_latency", "limits.latency_ms=0.001"),
        (f"limits.device={path}:toaster", "limits.latency_ms=5"),
        (f"limits.device={cut}:raspi4_latency", "limits.latency_ms=0.001"),
    ):
        with pytest.raises(InputError) as error:
            searched_parts(config("random", "nasbench201", *words))
        assert "\n" not in str(error.value)


# Limits that are drawn: of any costs, one or several, tight or not, in any space, whatever searches.
#
# What is derived is counted here anew, by passes over real tensors and a device that is read again.

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
    for genotype in sample_distinct(space, 14, torch.Generator().manual_seed(seed)):
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
        drawn = sample_distinct(self.parts.space, 16, torch.Generator().manual_seed(case.seed + 1))
        costs = sorted(map(self, drawn), key=lambda cost: cost[self.names[0]])
        if case.level == "least":
            return self.least(case, at_most=costs[0])
        return costs[0 if case.level == "tight" else len(costs) // 2]

    def least(self, case: Case, at_most: dict[str, float]) -> dict[str, float]:
        """What a refusal names, which no network that was drawn is below."""
        (name,) = self.names
        with pytest.raises(InputError, match="as the smallest network of the space has") as error:
            searched_parts(self.config(case, {name: LEAST[name]}))
        number = re.search(r"at least (\S+), as", str(error.value))[1]
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


@pytest.mark.parametrize("seed", [pytest.param(1000, marks=pytest.mark.slow), 1002])
def test_derived_networks_meet_random_limits(seed, tmp_path, trainer, epochs):
    check(draw_case(seed), tmp_path / "device.csv", trainer, epochs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_derived_networks_meet_many_random_limits(seed, tmp_path, trainer, epochs):
    check(draw_case(seed), tmp_path / "device.csv", trainer, epochs)
