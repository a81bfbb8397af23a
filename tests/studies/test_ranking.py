"""The choice of a ranking: by correlations that are Spearman's, on cells that it was not made on."""

import numpy as np
import pytest
from scipy import stats

from nas_lightning.errors import InputError
from nas_lightning.metrics import Flops, NTKCondition, Params
from nas_lightning.objectives.rankings import log_ranks
from nas_lightning.studies.ranking import VALUE, Ranking, correlations, read_scores, write_scores

METRICS = {"params": Params(), "flops": Flops()}


def test_a_set_s_correlation_is_that_of_the_suite_s_log_ranks():
    random = np.random.default_rng(0)
    scores = {name: random.normal(size=40) for name in (*METRICS, VALUE)}
    scores["flops"][3] = -np.inf
    rows = np.array([row for row in random.permutation(40)[:20] if row != 3])
    found = correlations(scores, rows, [("params",), ("params", "flops")])
    pool = [{name: scores[name][row] for name in METRICS} for row in rows]
    for chosen, rho in zip(({"params": Params()}, METRICS), found, strict=True):
        values = np.round(log_ranks(pool, chosen), 9)  # 2 · 6 = 3 · 4: products of ranks may be equal
        expected = stats.spearmanr(values, scores[VALUE][rows]).statistic
        assert rho == pytest.approx(expected)


def test_what_is_shown_is_of_the_half_that_was_not_chosen_on():
    random = np.random.default_rng(1)
    scores = {name: random.normal(size=30) for name in (*METRICS, VALUE)}
    table = Ranking(metrics=METRICS, most=1, splits=1, seed=3)._table({"here": scores})
    order = np.random.default_rng(3).permutation(30)
    for row in table.rows:
        first, second = (
            stats.spearmanr(scores[row[0]][half], scores[VALUE][half]).statistic
            for half in (order[:15], order[15:])
        )
        assert row[2].value == pytest.approx(second)
        assert row[2].value != pytest.approx(first)


def test_a_metric_that_knows_is_chosen_in_every_half():
    random = np.random.default_rng(2)
    truth = random.normal(size=50)
    scores = {"params": random.normal(size=50), "flops": truth + 0.1 * random.normal(size=50), VALUE: truth}
    table = Ranking(metrics=METRICS, most=1, splits=10)._table({"a": scores, "b": scores})
    row = next(row for row in table.rows if row[0] == "flops")
    assert row[1] == 10
    assert row[2].value > 0.95
    assert row[3].value == pytest.approx(row[2].value - table.rows[0][2].value)


def test_files_of_scores(tmp_path):
    columns = {"params": [1.0, -np.inf], "flops": [0.1, 2.0], VALUE: [90.0, 10.0]}
    path = tmp_path / "cells.csv"
    write_scores(path, {name: np.array(values) for name, values in columns.items()})
    again = read_scores(path, METRICS)
    assert {name: values.tolist() for name, values in again.items()} == columns
    with pytest.raises(InputError, match="expected a column layers"):
        read_scores(path, {**METRICS, "layers": Params()})
    with pytest.raises(InputError, match="expected a file of scores"):
        read_scores(tmp_path / "none.csv", METRICS)
    with pytest.raises(InputError, match="expected params among the metrics"):
        Ranking(metrics={"flops": Flops()})


def test_all_cells_in_scipys_numbers(monkeypatch):
    """Correlations, paired differences and their deviation over resamples, agreement, the best twentieth."""
    random = np.random.default_rng(4)
    truth = random.normal(size=60)
    values = {"params": truth + random.normal(size=60), "kappa": -truth + 0.3 * random.normal(size=60)}
    second = {name: column[:20] + 0.1 * random.normal(size=20) for name, column in values.items()}
    metrics = {"params": Params(), "kappa": NTKCondition()}  # of which less is better
    monkeypatch.setattr("nas_lightning.studies.ranking.NAMED", {"both": metrics})
    study = Ranking(metrics=metrics, resamples=400)
    seconds = dict.fromkeys(["params", "kappa", "both"], 0.5)
    table = study._all_cells(values, second, {"cifar10": truth}, seconds)
    rows = {row[0]: row[1:] for row in table.rows}
    rho = {
        name: stats.spearmanr(sign * values[name], truth).statistic
        for name, sign in (("params", 1), ("kappa", -1))
    }
    assert rows["kappa"][0].value == pytest.approx(rho["kappa"])
    assert rows["kappa"][1].value == pytest.approx(rho["kappa"] - rho["params"])
    assert rows["params"][1] == (0, 0)
    draws = [random.integers(60, size=60) for _ in range(400)]
    gains = [
        stats.spearmanr(-values["kappa"][d], truth[d]).statistic
        - stats.spearmanr(values["params"][d], truth[d]).statistic
        for d in draws
    ]
    assert rows["kappa"][1].error == pytest.approx(np.std(gains), rel=0.2)
    both = np.log(stats.rankdata(values["params"])) + np.log(stats.rankdata(-values["kappa"]))
    assert rows["both"][0].value == pytest.approx(stats.spearmanr(both, truth).statistic, abs=0.002)
    itself = stats.spearmanr(values["kappa"][:20], second["kappa"]).statistic
    assert rows["kappa"][2].value == pytest.approx(itself)
    best = truth[np.argsort(values["kappa"])[:3]].mean() - truth.mean()
    assert rows["kappa"][3:] == [pytest.approx(best), 0.5]
