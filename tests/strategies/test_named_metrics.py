"""What a word stands for as metrics, what a pool says of noise, and evaluations by the second."""

import itertools
import warnings

import pytest
import torch
from scipy import stats

from nas_lightning.errors import InputError
from nas_lightning.metrics import Metric, Params
from nas_lightning.objectives import TabularNasBench201
from nas_lightning.objectives.rankings import AT_THE_TOP, COMBINED, TO_WEIGH, log_ranks
from nas_lightning.spaces import ResNet
from nas_lightning.spaces.constrained import Bounds, limit_space
from nas_lightning.strategies import EigenNas, Evolution, Greedy, Hnas, Knas, MetricSearch, Predictor, Robot
from nas_lightning.strategies.black_box.base import self_correlations
from tests.strategies.test_black_box import NETWORK, SPACE, convolutions, write_table


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
def run_round(data, trainer, timed):
    def run(strategy, rounds, **options):
        options = {"evaluation": "table", "pool_size": 8, "images": 4, **options}
        module = strategy(SPACE, NETWORK, data(), timed, **options)
        trainer(rounds, limit_train_batches=1).fit(module, module.data)
        return module

    return run


@pytest.mark.parametrize("strategy", [MetricSearch, Greedy, Robot])
@pytest.mark.parametrize(("word", "metrics"), [("default", COMBINED), ("top", AT_THE_TOP)])
def test_a_word_names_metrics(data, timed, strategy, word, metrics):
    module = strategy(SPACE, NETWORK, data(), timed, metrics=word, evaluation="table")
    assert module.metrics == metrics


@pytest.mark.parametrize("strategy", [MetricSearch, Evolution, Greedy, Predictor])
def test_a_space_says_what_ranks_its_networks(data, strategy):
    """Where depth is a choice, size alone; with limits, too, and a word is obeyed all the same."""
    bounds = Bounds(
        ResNet(), {"width": 40.0}, lambda g: {"width": float(sum(w for w, _ in ResNet().stages(g)))}
    )
    for space in (ResNet(), limit_space(ResNet(), bounds)):
        # an evaluation is evolution's fitness, and nothing is scored then
        options = {} if strategy is Evolution else {"evaluation": "training"}
        assert list(strategy(space, NETWORK, data(), **options).metrics) == ["params"]
        assert strategy(space, NETWORK, data(), metrics="default", **options).metrics == COMBINED


def test_without_a_word_each_has_its_own(data, timed):
    assert Evolution(SPACE, NETWORK, data()).metrics == COMBINED
    assert (
        Evolution(SPACE, NETWORK, data(), timed, evaluation="table").metrics == {}
    )  # its fitness is another
    made = {s: s(SPACE, NETWORK, data(), timed, evaluation="table") for s in (Greedy, Robot)}
    assert made[Greedy].metrics == AT_THE_TOP
    assert made[Robot].metrics == TO_WEIGH


@pytest.mark.parametrize("strategy", [EigenNas, Knas])
def test_a_kernel_s_search_ranks_by_the_kernel_and_the_default(play, strategy):
    module = play(strategy, 2, metrics="default")
    assert set(module.metrics) == {strategy.column, *COMBINED}
    values = log_ranks(list(module.scored.values()), module.metrics)
    order = sorted(zip(values, module.scored, strict=True), reverse=True)
    assert list(module.evaluated) == [name for _, name in order[:2]]


def test_hnas_takes_the_ranking_as_its_metric(play):
    module = play(Hnas, 3, metric="default", starts=3)
    values = module._values(list(module.scored.values()))
    rows = [row for row, value in zip(module.scored.values(), values, strict=True) if value > 0]
    ranks = [stats.rankdata([row[name] for row in rows]) / len(rows) for name in COMBINED]
    assert [value for value in values if value > 0] == pytest.approx(stats.gmean(ranks))
    assert len(module.evaluated) == 3


def test_a_word_that_stands_for_nothing(data):
    with pytest.raises(InputError, match="default"):
        MetricSearch(SPACE, NETWORK, data(), metrics="defualt")


# Metrics against themselves


def test_self_correlations_are_spearmans():
    generator = torch.Generator().manual_seed(0)
    draws = [[{"a": float(x), "same": 1.0} for x in torch.randn(9, generator=generator)] for _ in range(2)]
    expected = stats.spearmanr(*[[row["a"] for row in rows] for rows in draws]).statistic
    assert self_correlations(*draws) == {"a": pytest.approx(expected)}


def test_a_pool_says_which_of_its_metrics_are_noise(play, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        metrics = {"noise": Noise(), "params": Params()}
        module = play(Greedy, 1, metrics=metrics, pool_size=40, agreement=10, pool=tmp_path / "pool.csv")
    (message,) = [str(w.message) for w in caught if "disagree with themselves" in str(w.message)]
    assert "noise" in message
    assert "params" not in message
    assert list(module.self_correlations) == ["noise"]
    assert (tmp_path / "pool_second.csv").read_text().count("\n") == 11


@pytest.mark.parametrize("options", [{"agreement": 0}, {"agreement": 11}])
def test_a_small_pool_is_not_scored_twice(play, options):
    module = play(Greedy, 1, metrics={"noise": Noise()}, pool_size=40, **options)
    assert module.self_correlations is None


# Seconds


def test_evaluations_end_with_their_seconds(play):
    """350 seconds are three evaluations of 100; the fourth ends too late."""
    module = play(Robot, 9, seconds=350, explore=9)
    assert len(module.evaluated) == 3
    assert module.spent["evaluating"] == 300
    assert module.spent["scoring"] > 0
    assert len(module.tried) == 4
    best = max(module.evaluated, key=module.evaluated.get)
    assert SPACE.notation(module.derive()[0]) == best
    assert module.evaluated[best] == pytest.approx(99 - convolutions(best), abs=1e-3)


def test_a_search_goes_on_with_more_seconds(play, timed, data, trainer, tmp_path):
    whole = play(Robot, 9, seconds=550, explore=3, seed=2)
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
        ({"evaluation": "none"}, "expected an evaluation, whose seconds have a limit"),
        ({"evaluation": "table"}, "expected a table with a column of seconds"),
    ],
)
def test_seconds_of_nothing(data, tables, options, message):
    table = TabularNasBench201(tables / "test.csv")
    with pytest.raises(InputError, match=message):
        MetricSearch(SPACE, NETWORK, data(), table, seconds=10.0, **options)


def test_a_file_of_validation_accuracies(tables, timed, tmp_path):
    for arch in itertools.islice(timed.table["cifar10"], 3):
        genotype = SPACE.parse(arch)
        assert timed.valid_accuracy(genotype, epochs=12) == pytest.approx(99 - convolutions(arch))
        assert timed.seconds_of(genotype) == 100
    (tmp_path / "bad.csv").write_text("arch,seconds\n|none~0|,1\n")
    with pytest.raises(InputError, match="expected a column 'cifar10_valid'"):
        TabularNasBench201(tables / "test.csv", validation=tmp_path / "bad.csv")
    with pytest.raises(InputError, match="expected a CSV or Parquet file"):
        TabularNasBench201(tables / "test.csv", validation=tmp_path / "none.csv")


# A share of the pool


def test_the_largest_networks_of_a_pool_are_scored(play):
    everything = play(Greedy, 2, metrics={"params": Params()}, pool_size=30, pool_per_round=10)
    module = play(Greedy, 2, metrics={"params": Params()}, pool_size=30, pool_per_round=10, keep=0.2)
    params = sorted((row["params"] for row in everything.scored.values()), reverse=True)
    assert (
        sorted((row["params"] for row in list(module.scored.values())[:6]), reverse=True)
        == sorted((row["params"] for row in list(everything.scored.values())[:30]), reverse=True)[:6]
    )
    assert {row["params"] for row in module.scored.values()} >= set(params[:8])
    with pytest.raises(InputError, match="`keep` must be greater than 0"):
        play(Greedy, 1, keep=0.0)
