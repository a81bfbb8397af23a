"""RoBoT and the predictor: what their rounds look at, and that they find what the ranking alone does not."""

import itertools
import math

import numpy as np
import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.metrics import Flops, Metric, Params
from nas_lightning.objectives.rankings import log_ranks
from nas_lightning.spaces import DartsSpace, NasBench101, NasBench201
from nas_lightning.strategies import Predictor, Robot
from nas_lightning.strategies.black_box.pool import expected_improvement, forest, graph_counts, random_weights
from tests.strategies.test_black_box import NETWORK, SPACE, convolutions, write_table


class Fewest(Metric):
    """A metric that misleads: the fewer parameters the better."""

    def compute(self, passes) -> float:
        return -sum(p.numel() for p in passes.parameters)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_table(tmp_path_factory.mktemp("table") / "test.csv", convolutions)


@pytest.fixture
def run_round(data, trainer, table):
    """`play(strategy, rounds, …)`: the strategy after a search by the table."""

    def run(strategy, rounds, **options):
        options = {"evaluation": "table", "pool_size": 60, "images": 4, **options}
        module = strategy(SPACE, NETWORK, data(), table, **options)
        trainer(rounds, limit_train_batches=1).fit(module, module.data)
        return module

    return run


METRICS = {"params": Params(), "fewest": Fewest()}


def best_by(module, weights):
    values = log_ranks(list(module.scored.values()), module.metrics, weights)
    order = dict(zip(module.scored, values, strict=True))
    return sorted(order, key=lambda name: -order[name])


def test_exploring_rounds_take_the_best_by_their_weights(play):
    module = play(Robot, 4, metrics=METRICS, explore=4)
    assert module.tried[0][0] == {"params": 1.0, "fewest": 1.0}
    seen: list[str] = []
    for weights, notation in module.tried:
        assert notation == next(name for name in best_by(module, weights) if name not in seen)
        assert min(weights.values()) >= 0
        seen.append(notation)
    assert list(module.evaluated) == seen


def test_later_rounds_follow_the_best_weights(play):
    module = play(Robot, 7, metrics=METRICS, explore=4, seed=1)
    assert len(module.tried) == 4
    weights, _ = max(module.tried, key=lambda pair: module.evaluated[pair[1]])
    first, rest = list(module.evaluated)[:4], list(module.evaluated)[4:]
    assert rest == [name for name in best_by(module, weights) if name not in first][:3]
    (genotype,) = module.derive()
    assert SPACE.notation(genotype) == max(module.evaluated, key=module.evaluated.get)


def test_without_exploration_it_is_the_greedy_search(play):
    module = play(Robot, 3, metrics={"params": Params(), "flops": Flops()}, explore=0)
    assert list(module.evaluated) == best_by(module, None)[:3]


@pytest.mark.parametrize("proposals", ["random", "bayesian"])
def test_signed_weights(play, proposals):
    module = play(Robot, 5, metrics=METRICS, explore=5, proposals=proposals, signed=True)
    weights = torch.tensor([list(weights.values()) for weights, _ in module.tried[1:]])
    assert bool((weights.abs() <= 1).all())
    assert bool((weights < 0).any())


def test_random_weights_are_uniform_on_the_simplex():
    """Each of three entries has the mean 1/3 and the variance 1/18 of a Dirichlet(1, 1, 1)."""
    draws = np.array([list(random_weights(["a", "b", "c"], seed).values()) for seed in range(2000)])
    assert draws.sum(axis=1) == pytest.approx(1)
    assert draws.mean(axis=0) == pytest.approx(1 / 3, abs=0.025)
    assert draws.var(axis=0) == pytest.approx(1 / 18, rel=0.15)


def test_a_forest_finds_what_the_ranking_hides(play):
    """By the misleading metric alone the best have no convolutions, which is what accuracy counts."""
    greedy = play(Robot, 16, metrics={"fewest": Fewest()}, explore=0)
    module = play(Predictor, 16, metrics={"fewest": Fewest()}, starts=5)
    assert list(module.evaluated)[:5] == list(greedy.evaluated)[:5]
    assert max(module.evaluated.values()) > max(greedy.evaluated.values()) + 10


def test_expected_improvement_is_the_integral():
    random = np.random.default_rng(0)
    for mean, deviation, best in ((1.0, 0.5, 1.2), (2.0, 2.0, 0.0)):
        draws = random.normal(mean, deviation, 400_000)
        expected = np.maximum(draws - best, 0).mean()
        found = expected_improvement(np.array([mean]), np.array([deviation]), best)
        assert found == pytest.approx(expected, rel=0.02)


def test_a_forest_of_one_value_is_that_value():
    mean, deviation = forest(np.zeros((4, 2)), np.full(4, 7.0), np.ones((3, 2)), trees=5, seed=0)
    assert mean == pytest.approx(7)
    assert deviation == pytest.approx(0)


@pytest.mark.parametrize("space", [NasBench201(), DartsSpace(), NasBench101()], ids=lambda space: space.name)
def test_counts_by_listing_all_paths(space, generator):
    for _ in range(5):
        genotype = space.sample(generator)
        counts = graph_counts(genotype)
        for name, cell in genotype:
            edges = [edge for edge in cell.edges if edge.op != "none"]
            paths = [
                chosen
                for size in range(len(edges) + 1)
                for chosen in itertools.islice(itertools.combinations(edges, size), 3000)
                if _is_path(chosen, cell)
            ]
            if len(edges) <= 9 and paths:
                assert counts.get(f"{name}/most/all", 0) == max(map(len, paths))
                assert counts.get(f"{name}/least/all", 0) == min(map(len, paths))
            assert sum(v for k, v in counts.items() if k.startswith(f"{name}/edges/")) == len(edges)
            assert sum(v for k, v in counts.items() if k.startswith(f"{name}/in/")) == len(edges)


def _is_path(edges, cell) -> bool:
    if not edges:
        return any(node < cell.inputs for node in cell.output)
    linked = all(a.target == b.source for a, b in itertools.pairwise(edges))
    return linked and edges[0].source < cell.inputs and edges[-1].target in cell.output


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        (Robot, {"evaluation": "none"}, "expected an evaluation"),
        (Predictor, {"evaluation": "none"}, "expected an evaluation"),
        (Robot, {"explore": -1}, "`explore` must be at least 0"),
        (Robot, {"proposals": "best"}, "must be 'random' or 'bayesian'"),
        (Predictor, {"starts": 0}, "`starts` must be at least 1"),
        (Predictor, {"trees": 0}, "`trees` must be at least 1"),
    ],
)
def test_options_that_cannot_be(data, table, strategy, options, message):
    with pytest.raises(InputError, match=message):
        strategy(SPACE, NETWORK, data(), table, **{"evaluation": "table", **options})


def test_log_ranks_with_weights():
    pool = [{"params": 1.0, "fewest": 3.0}, {"params": 2.0, "fewest": 1.0}]
    expected = [0.25 * math.log(1 / 2), 0.75 * math.log(1 / 2)]
    assert log_ranks(pool, METRICS, {"params": 0.25, "fewest": 0.75}) == pytest.approx(expected)
