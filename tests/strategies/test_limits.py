"""Limits on what the network costs that is trained: every strategy, in spaces of every kind, keeps them."""

from functools import cache

import pytest
import torch

from nas_lightning.cli.factories import searched_parts
from nas_lightning.cost.counts import cost
from nas_lightning.errors import InputError
from nas_lightning.spaces.limited import bounds, repair
from nas_lightning.spaces.sampling import draw_distinct
from nas_lightning.strategies import limit_pressure
from tests.strategies.conftest import config, fit_for

KINDS = ("nasbench201", "darts", "nasbench1shot1_s1", "nasbench101", "resnet")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The same with less work: fewer networks counted, fewer architectures looked at."""
    monkeypatch.setattr(bounds, "COUNTED", 40)
    monkeypatch.setattr(repair, "MOST", 300)


@cache
def low_limit(space: str) -> int:
    """Parameters that one of six architectures keeps."""
    parts = searched_parts(config("random", space))
    drawn = draw_distinct(parts.space, 24, torch.Generator().manual_seed(1))
    return sorted(cost(parts.network(genotype), parts.data.image).params for genotype in drawn)[3]


@pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(n, marks=pytest.mark.slow) for n in KINDS[1:])])
def test_every_strategy_derives_within_the_limit(search, sizes, trainer, epochs, strategy_name, kind):
    if not fit_for(strategy_name, kind):
        pytest.skip("the strategy refuses the space")
    limit = low_limit(kind)
    strategy, data = search(strategy_name, kind, f"limits.params={limit}")
    trainer(epochs(1, strategy_name)).fit(strategy, data)
    space, genotypes = strategy.space, strategy.derive()
    for genotype in genotypes:
        network = space.network(genotype, in_channels=3, num_classes=4, **sizes(kind))
        assert cost(network, (3, 8, 8)).params <= limit
    evaluated = [space.parse(name) for name in getattr(strategy, "scored", {})]
    assert all(space.bounds.costs(genotype)["params"] <= limit for genotype in evaluated)


def test_a_multiplier_rises_while_the_limit_is_exceeded_and_is_in_the_checkpoint(search, trainer):
    strategy, data = search("darts", "nasbench201", f"limits.params={low_limit('nasbench201')}")
    with torch.no_grad():
        strategy.arch["cell"][:, 3] = 1.0  # every edge would be the largest convolution
    strategy.arch_lr = 1e-6
    trainer(2).fit(strategy, data)
    excess = strategy.space.derived_excess(strategy.scores())["params"]
    assert excess > 0
    assert strategy.pressure.multipliers.item() == pytest.approx(6 * limit_pressure.RATE * excess, rel=1e-4)
    assert "pressure.multipliers" in strategy.state_dict()


def test_without_limits_a_checkpoint_is_as_it_was(search):
    assert "pressure.multipliers" not in search("darts", "nasbench201")[0].state_dict()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["limits.params=0"], "expected params above 0 or null, got 0"),
        (["limits.macs=-5"], "expected macs above 0 or null, got -5"),
        (["limits.memory_mb=nan"], "expected memory_mb above 0 or null, got nan"),
        (
            ["limits.params=10"],
            "expected at least 4,792, which the smallest network of the space has, got '10'",
        ),
        (["limits.latency_ms=2"], "expected a device, such as my_laptop.csv"),
        (["limits.device=a.csv"], "expected limits.latency_ms beside it"),
        (["limits.latency_ms=2", "limits.device=a.csv"], "expected a table of latencies, .csv or .parquet"),
    ],
)
def test_a_bad_limit_is_one_line_before_the_work(words, line):
    with pytest.raises(InputError) as error:
        searched_parts(config("random", "nasbench201", *words))
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)
