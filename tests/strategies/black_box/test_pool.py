"""Searches in a pool: metrics by name, noise warnings, time limits, RoBoT, predictor, random search."""

import itertools
import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from nas_lightning.errors import InputError
from nas_lightning.metrics import Flops, Metric, Params
from nas_lightning.objectives import TabularNasBench201
from nas_lightning.objectives.rankings import AT_THE_TOP, COMBINED, TO_WEIGH, log_ranks
from nas_lightning.spaces import DartsSpace, NasBench101, NasBench201, ResNet
from nas_lightning.spaces import base as sampling
from nas_lightning.spaces.constrained import Bounds, limit_space
from nas_lightning.strategies import (
    EigenNas,
    Evolution,
    Greedy,
    Hnas,
    Knas,
    MetricSearch,
    Predictor,
    RandomSearch,
    Robot,
)
from nas_lightning.strategies.black_box.base import self_correlations
from nas_lightning.strategies.black_box.pool import expected_improvement, forest, graph_counts, random_weights
from tests.strategies.black_box.test_base import NETWORK, SPACE, convolutions, write_table

# What a word stands for as metrics, what a pool says of noise, and evaluations by the second.


class Noise(Metric):
    """What the draw of weights alone decides."""

    def compute(self, passes) -> float:
        return float(passes.parameters[0].detach().sum())


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A table of test accuracies, and a file of validation accuracies with 100 seconds an evaluation."""
    folder = tmp_path_factory.mktemp("tables")
    table = write_table(folder / "test.csv", convolutions)
    lines = [f"{arch},{99 - convolutions(arch)},100" for arch in table.table["cifar10"]]
    (folder / "valid.csv").write_text("\n".join(["arch,cifar10_valid,seconds", *lines]))
    return folder


@pytest.fixture(scope="module")
def timed(tables):
    return TabularNasBench201(tables / "test.csv", validation=tables / "valid.csv")


@pytest.fixture
def run_rounds(data, trainer, timed):
    def run(strategy, rounds, **options):
        options = {"evaluation": "table", "pool_size": 8, "images": 4, **options}
        module = strategy(SPACE, NETWORK, data(), timed, **options)
        trainer(rounds, limit_train_batches=1).fit(module, module.data)
        return module

    return run


@pytest.mark.parametrize("strategy", [MetricSearch, Greedy, Robot])
@pytest.mark.parametrize(("word", "metrics"), [("default", COMBINED), ("top", AT_THE_TOP)])
def test_metrics_by_name(data, timed, strategy, word, metrics):
    module = strategy(SPACE, NETWORK, data(), timed, metrics=word, evaluation="table")
    assert module.metrics == metrics


@pytest.mark.parametrize("strategy", [MetricSearch, Evolution, Greedy, Predictor])
def test_default_metrics_of_a_space(data, strategy):
    """Where depth is a choice, size alone; with limits, too, and a word is obeyed all the same."""
    bounds = Bounds(
        ResNet(), {"width": 40.0}, lambda g: {"width": float(sum(w for w, _ in ResNet().stages(g)))}
    )
    for space in (ResNet(), limit_space(ResNet(), bounds)):
        # an evaluation is evolution's fitness, and nothing is scored then
        options = {} if strategy is Evolution else {"evaluation": "training"}
        assert list(strategy(space, NETWORK, data(), **options).metrics) == ["params"]
        assert strategy(space, NETWORK, data(), metrics="default", **options).metrics == COMBINED


def test_default_metrics_of_strategies(data, timed):
    assert Evolution(SPACE, NETWORK, data()).metrics == COMBINED
    assert (
        Evolution(SPACE, NETWORK, data(), timed, evaluation="table").metrics == {}
    )  # its fitness is another
    made = {s: s(SPACE, NETWORK, data(), timed, evaluation="table") for s in (Greedy, Robot)}
    assert made[Greedy].metrics == AT_THE_TOP
    assert made[Robot].metrics == TO_WEIGH


@pytest.mark.parametrize("strategy", [EigenNas, Knas])
def test_a_kernel_s_search_ranks_by_the_kernel_and_the_default(run_rounds, strategy):
    module = run_rounds(strategy, 2, metrics="default")
    assert set(module.metrics) == {strategy.column, *COMBINED}
    values = log_ranks(list(module.scored.values()), module.metrics)
    order = sorted(zip(values, module.scored, strict=True), reverse=True)
    assert list(module.evaluated) == [name for _, name in order[:2]]


def test_hnas_takes_the_ranking_as_its_metric(run_rounds):
    module = run_rounds(Hnas, 3, metric="default", starts=3)
    values = module._values(list(module.scored.values()))
    rows = [row for row, value in zip(module.scored.values(), values, strict=True) if value > 0]
    ranks = [stats.rankdata([row[name] for row in rows]) / len(rows) for name in COMBINED]
    assert [value for value in values if value > 0] == pytest.approx(stats.gmean(ranks))
    assert len(module.evaluated) == 3


def test_unknown_name_of_metrics_is_rejected(data):
    with pytest.raises(InputError, match="default"):
        MetricSearch(SPACE, NETWORK, data(), metrics="defualt")


# Metrics against themselves


def test_self_correlations_are_spearmans():
    generator = torch.Generator().manual_seed(0)
    draws = [[{"a": float(x), "same": 1.0} for x in torch.randn(9, generator=generator)] for _ in range(2)]
    expected = stats.spearmanr(*[[row["a"] for row in rows] for rows in draws]).statistic
    assert self_correlations(*draws) == {"a": pytest.approx(expected)}


def test_noisy_metrics_warn(run_rounds, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        metrics = {"noise": Noise(), "params": Params()}
        module = run_rounds(
            Greedy, 1, metrics=metrics, pool_size=40, agreement=10, pool=tmp_path / "pool.csv"
        )
    (message,) = [str(w.message) for w in caught if "disagree with themselves" in str(w.message)]
    assert "noise" in message
    assert "params" not in message
    assert list(module.self_correlations) == ["noise"]
    assert (tmp_path / "pool_second.csv").read_text().count("\n") == 11


@pytest.mark.parametrize("options", [{"agreement": 0}, {"agreement": 11}])
def test_a_small_pool_is_not_scored_twice(run_rounds, options):
    module = run_rounds(Greedy, 1, metrics={"noise": Noise()}, pool_size=40, **options)
    assert module.self_correlations is None


# Seconds


def test_time_limit_ends_evaluations(run_rounds):
    """350 seconds are three evaluations of 100; the fourth ends too late."""
    module = run_rounds(Robot, 9, seconds=350, explore=9)
    assert len(module.evaluated) == 3
    assert module.spent["evaluating"] == 300
    assert module.spent["scoring"] > 0
    assert len(module.tried) == 4
    best = max(module.evaluated, key=module.evaluated.get)
    assert SPACE.notation(module.derive()[0]) == best
    assert module.evaluated[best] == pytest.approx(99 - convolutions(best), abs=1e-3)


def test_resume_with_a_longer_time_limit(run_rounds, timed, data, trainer, tmp_path):
    whole = run_rounds(Robot, 9, seconds=550, explore=3, seed=2)
    first = Robot(SPACE, NETWORK, data(), timed, evaluation="table", pool_size=8, images=4, explore=3, seed=2)
    first.seconds = 250
    fit = trainer(9, limit_train_batches=1)
    fit.fit(first, first.data)
    fit.save_checkpoint(tmp_path / "last.ckpt")
    more = Robot(SPACE, NETWORK, data(), timed, evaluation="table", pool_size=8, images=4, explore=3, seed=2)
    more.seconds = 550
    trainer(9, limit_train_batches=1).fit(more, more.data, ckpt_path=tmp_path / "last.ckpt")
    assert list(more.evaluated)[:2] == list(whole.evaluated)[:2]
    assert len(more.evaluated) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"evaluation": "none"}, "A limit of seconds needs an evaluation"),
        ({"evaluation": "table"}, "The table must have a column of seconds"),
    ],
)
def test_time_limit_needs_times(data, tables, options, message):
    table = TabularNasBench201(tables / "test.csv")
    with pytest.raises(InputError, match=message):
        MetricSearch(SPACE, NETWORK, data(), table, seconds=10.0, **options)


def test_a_file_of_validation_accuracies(tables, timed, tmp_path):
    for arch in itertools.islice(timed.table["cifar10"], 3):
        genotype = SPACE.parse(arch)
        assert timed.valid_accuracy(genotype, epochs=12) == pytest.approx(99 - convolutions(arch))
        assert timed.seconds_of(genotype) == 100
    (tmp_path / "bad.csv").write_text("arch,seconds\n|none~0|,1\n")
    with pytest.raises(InputError, match="There must be a column 'cifar10_valid'"):
        TabularNasBench201(tables / "test.csv", validation=tmp_path / "bad.csv")
    with pytest.raises(InputError, match="Validation accuracies need a CSV or Parquet file"):
        TabularNasBench201(tables / "test.csv", validation=tmp_path / "none.csv")


# A share of the pool


def test_the_largest_networks_of_a_pool_are_scored(run_rounds):
    everything = run_rounds(Greedy, 2, metrics={"params": Params()}, pool_size=30, pool_per_round=10)
    module = run_rounds(Greedy, 2, metrics={"params": Params()}, pool_size=30, pool_per_round=10, keep=0.2)
    params = sorted((row["params"] for row in everything.scored.values()), reverse=True)
    assert (
        sorted((row["params"] for row in list(module.scored.values())[:6]), reverse=True)
        == sorted((row["params"] for row in list(everything.scored.values())[:30]), reverse=True)[:6]
    )
    assert {row["params"] for row in module.scored.values()} >= set(params[:8])
    with pytest.raises(InputError, match="`keep` must be greater than 0"):
        run_rounds(Greedy, 1, keep=0.0)


# RoBoT and the predictor: what their rounds look at, and that they find what the ranking alone does not.


class Fewest(Metric):
    """A metric that misleads: the fewer parameters the better."""

    def compute(self, passes) -> float:
        return -sum(p.numel() for p in passes.parameters)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_table(tmp_path_factory.mktemp("table") / "test.csv", convolutions)


@pytest.fixture
def run_by_table(data, trainer, table):
    """`run_by_table(strategy, rounds, …)`: the strategy after a search by the table."""

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


def test_exploring_rounds_take_the_best_by_their_weights(run_by_table):
    module = run_by_table(Robot, 4, metrics=METRICS, explore=4)
    assert module.tried[0][0] == {"params": 1.0, "fewest": 1.0}
    seen: list[str] = []
    for weights, notation in module.tried:
        assert notation == next(name for name in best_by(module, weights) if name not in seen)
        assert min(weights.values()) >= 0
        seen.append(notation)
    assert list(module.evaluated) == seen


def test_later_rounds_follow_the_best_weights(run_by_table):
    module = run_by_table(Robot, 7, metrics=METRICS, explore=4, seed=1)
    assert len(module.tried) == 4
    weights, _ = max(module.tried, key=lambda pair: module.evaluated[pair[1]])
    first, rest = list(module.evaluated)[:4], list(module.evaluated)[4:]
    assert rest == [name for name in best_by(module, weights) if name not in first][:3]
    (genotype,) = module.derive()
    assert SPACE.notation(genotype) == max(module.evaluated, key=module.evaluated.get)


def test_without_exploration_it_is_the_greedy_search(run_by_table):
    module = run_by_table(Robot, 3, metrics={"params": Params(), "flops": Flops()}, explore=0)
    assert list(module.evaluated) == best_by(module, None)[:3]


@pytest.mark.parametrize("proposals", ["random", "bayesian"])
def test_signed_weights(run_by_table, proposals):
    module = run_by_table(Robot, 5, metrics=METRICS, explore=5, proposals=proposals, signed=True)
    weights = torch.tensor([list(weights.values()) for weights, _ in module.tried[1:]])
    assert bool((weights.abs() <= 1).all())
    assert bool((weights < 0).any())


def test_random_weights_are_uniform_on_the_simplex():
    """Each of three entries has the mean 1/3 and the variance 1/18 of a Dirichlet(1, 1, 1)."""
    draws = np.array([list(random_weights(["a", "b", "c"], seed).values()) for seed in range(2000)])
    assert draws.sum(axis=1) == pytest.approx(1)
    assert draws.mean(axis=0) == pytest.approx(1 / 3, abs=0.025)
    assert draws.var(axis=0) == pytest.approx(1 / 18, rel=0.15)


def test_a_forest_finds_what_the_ranking_hides(run_by_table):
    """By the misleading metric alone the best have no convolutions, which is what accuracy counts."""
    greedy = run_by_table(Robot, 16, metrics={"fewest": Fewest()}, explore=0)
    module = run_by_table(Predictor, 16, metrics={"fewest": Fewest()}, starts=5)
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
        (Robot, {"evaluation": "none"}, "need an evaluation"),
        (Predictor, {"evaluation": "none"}, "need an evaluation"),
        (Robot, {"explore": -1}, "`explore` must be at least 0"),
        (Robot, {"proposals": "best"}, "must be .random. or .bayesian."),
        (Predictor, {"starts": 0}, "`starts` must be at least 1"),
        (Predictor, {"trees": 0}, "`trees` must be at least 1"),
    ],
)
def test_invalid_options_are_rejected(data, table, strategy, options, message):
    with pytest.raises(InputError, match=message):
        strategy(SPACE, NETWORK, data(), table, **{"evaluation": "table", **options})


def test_log_ranks_with_weights():
    pool = [{"params": 1.0, "fewest": 3.0}, {"params": 2.0, "fewest": 1.0}]
    expected = [0.25 * math.log(1 / 2), 0.75 * math.log(1 / 2)]
    assert log_ranks(pool, METRICS, {"params": 0.25, "fewest": 0.75}) == pytest.approx(expected)


# Architectures drawn uniformly.


def test_distinct_and_reproducible():
    found = RandomSearch(NasBench201(), count=200, seed=3).derive()
    assert len(set(found)) == 200
    assert RandomSearch(NasBench201(), count=200, seed=3).derive() == found
    assert RandomSearch(NasBench201(), count=200, seed=4).derive() != found


def test_operations_are_uniform():
    """1,200 architectures of 6 edges: 1,440 of each of the five operations expected."""
    ops = [op for genotype in RandomSearch(NasBench201(), count=1200).derive() for op in genotype.ops]
    counts = [ops.count(op) for op in NasBench201().groups["cell"].ops]
    assert sum((count - 1440) ** 2 / 1440 for count in counts) < 23.5  # 4 degrees of freedom, p = 10⁻⁴


def test_the_whole_of_a_small_space():
    found = RandomSearch(DartsSpace(nodes=1, ops=["none", "skip_connect"]), count=1).derive()
    assert len(found) == 1


def test_more_than_a_space_has(monkeypatch):
    monkeypatch.setattr(sampling, "_MAX_REPEATS", 100)
    with pytest.raises(InputError, match="The space has too few architectures: found 1, got 2"):
        RandomSearch(DartsSpace(nodes=1, ops=["skip_connect"]), count=2)


@pytest.mark.parametrize("count", [0, -1])
def test_none_at_all(count):
    with pytest.raises(InputError, match="`count` must be at least 1"):
        RandomSearch(NasBench201(), count=count)


def test_random_search_rejects_several_processes():
    """DistributedDataParallel refuses a module without parameters; its reason is found before it is built."""
    search = RandomSearch(NasBench201())
    search.trainer = SimpleNamespace(world_size=2)
    with pytest.raises(InputError, match="A search that trains nothing needs a single process, got 2"):
        search.setup("fit")
