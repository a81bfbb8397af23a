"""Correlations against SciPy and plain loops, standard errors against many samples."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import stats

from nas_lightning.objectives.rankings import trade_off
from nas_lightning.studies.correlation import GRID, Parameters, TradeOffObjective
from nas_lightning.studies.scoring import estimate, kendall, pearson, spearman


def sample(count: int, seed: int = 0, digits: int | None = None):
    random = np.random.default_rng(seed)
    x = random.normal(size=count)
    y = 0.8 * x + 0.6 * random.normal(size=count)
    return (x, y) if digits is None else (x.round(digits), y.round(digits))


@pytest.mark.parametrize("digits", [None, 0])  # many ties
def test_correlations_are_those_of_scipy(digits):
    x, y = sample(60, digits=digits)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    assert kendall(x, y) == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)


def test_kendall_counts_pairs():
    x, y = sample(30)
    signs = [np.sign((x[i] - x[j]) * (y[i] - y[j])) for i, j in combinations(range(30), 2)]
    assert kendall(x, y) == pytest.approx(np.mean(signs))


def test_the_worst_score_is_the_last_rank():
    x, y = sample(20)
    infinite, low = x.copy(), x.copy()
    infinite[:3], low[:3] = -np.inf, x.min() - 1
    assert spearman(infinite, y) == spearman(low, y)
    assert kendall(infinite, y) == kendall(low, y)
    assert pearson(infinite, y) == pytest.approx(pearson(x[3:], y[3:]))


def test_synflows_magnitudes():
    x, y = sample(20)
    assert pearson(1e200 * x, y) == pytest.approx(pearson(x, y))


@pytest.mark.parametrize("statistic", [spearman, kendall, pearson])
def test_the_standard_error_is_the_deviation_over_samples(statistic):
    values = [statistic(*sample(200, seed)) for seed in range(1, 301)]
    errors = [estimate(statistic, *sample(200, seed)).error for seed in range(1, 21)]
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)


def test_constants_have_no_correlation():
    x = np.arange(5.0)
    for statistic in (spearman, kendall, pearson):
        assert estimate(statistic, np.ones(5), x) is None
        assert estimate(statistic, np.full(5, -np.inf), x) is None


# HNAS' objective


def test_the_objective_is_its_formula():
    random = np.random.default_rng(0)
    kappa, metric = random.uniform(1, 100, 7), random.uniform(1, 9, 7)
    for power in (1.0, 2.0, 4.0):
        expected = [k / m + 0.3 * abs(m**2 - 20) ** power for k, m in zip(kappa, metric, strict=True)]
        found = trade_off(torch.tensor(kappa), torch.tensor(metric), 0.3, 20.0, power)
        assert found.numpy() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kappa", "metric"), [(torch.inf, 1.0), (1.0, -torch.inf), (1.0, 0.0), (1.0, -2.0), (1.0, torch.inf)]
)
def test_architectures_without_objective_are_the_worst(kappa, metric):
    assert trade_off(torch.tensor(kappa), torch.tensor(metric), 0.0, 1.0) == torch.inf


def problem(count=80, scale=1.0):
    """Accuracies that are best at M = 3, with some noise, and two degenerate networks."""
    random = np.random.default_rng(3)
    metric = random.uniform(1, 10, count)
    accuracy = -((metric - 3) ** 2) + random.normal(size=count)
    kappa = random.uniform(1, 50, count)
    metric[:2], accuracy[:2], kappa[1] = -np.inf, -100, np.inf
    return metric * scale, kappa, accuracy


def test_the_grid_finds_the_best_of_plain_loops():
    metric, kappa, accuracy = problem()
    for condition in (None, kappa):
        objective = TradeOffObjective(metric, condition)
        found = {p: stats.spearmanr(objective.scores(p), accuracy).statistic for p in GRID}
        assert found[objective.best(accuracy)] == pytest.approx(max(found.values()), abs=1e-12)
    assert max(found.values()) > stats.spearmanr(metric, accuracy).statistic + 0.5


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e40])
def test_raw_parameters_are_those_of_the_formula(scale):
    metric, kappa, accuracy = problem(scale=scale)
    objective = TradeOffObjective(metric, kappa)
    mu, nu = objective.raw(Parameters(-1.0, 0.4))
    plain = -trade_off(torch.tensor(kappa), torch.tensor(metric), mu, nu).numpy()
    assert stats.spearmanr(plain, objective.scores(Parameters(-1.0, 0.4))).statistic == pytest.approx(1)
    assert objective.best(accuracy) == TradeOffObjective(problem()[0], kappa).best(
        accuracy
    )  # whatever the scale


def test_held_out_is_chosen_on_the_other_half():
    """Where there is nothing to find, the best of the grid finds something, the held-out value does not."""
    random = np.random.default_rng(5)
    metric, accuracy = random.uniform(1, 10, 60), random.normal(size=60)
    objective = TradeOffObjective(metric)
    flattering = spearman(objective.scores(objective.best(accuracy)), accuracy)
    assert flattering > 0.05
    assert objective.held_out(accuracy, [spearman], splits=10)[0] < flattering / 2
    true = problem()
    chosen = TradeOffObjective(true[0])
    assert chosen.held_out(true[2], [spearman], splits=3)[0] == pytest.approx(
        spearman(chosen.scores(chosen.best(true[2])), true[2]), abs=0.05
    )


def test_an_objective_of_nothing_sound():
    objective = TradeOffObjective(np.full(4, -np.inf), np.ones(4))
    assert (objective.scores(objective.best(np.arange(4.0))) == -np.inf).all()
