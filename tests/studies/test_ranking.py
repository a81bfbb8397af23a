"""Sets of metrics chosen on halves of the cells, and networks that a ranking picks."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats

from nas_lightning.data import Digits, SearchData
from nas_lightning.errors import InputError
from nas_lightning.metrics import Flops, NTKCondition, Params
from nas_lightning.objectives import GenotypeTable
from nas_lightning.objectives.rankings import COMBINED, log_ranks
from nas_lightning.spaces import ResNet
from nas_lightning.spaces.base import draw_distinct
from nas_lightning.studies import Picks
from nas_lightning.studies.ranking import VALUE, Ranking, compare, correlations, read_scores, write_scores
from nas_lightning.studies.training import FILE

METRICS = {"params": Params(), "flops": Flops()}


def test_correlation_of_a_set_is_that_of_log_ranks():
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


def test_reported_correlations_are_of_the_other_half():
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


def test_accurate_metric_is_chosen_in_every_half():
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
    with pytest.raises(InputError, match="There must be a column layers"):
        read_scores(path, {**METRICS, "layers": Params()})
    with pytest.raises(InputError, match="The file must be one that study=ranking wrote"):
        read_scores(tmp_path / "none.csv", METRICS)
    with pytest.raises(InputError, match="The metrics must include params"):
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


SPACE = ResNet(depths=(1, 2))
NETWORK = partial(SPACE.network, in_channels=1, num_classes=10, channels=4)


@pytest.fixture(scope="module")
def data():
    return SearchData(Digits(batch_size=16, subset=64))


def test_picks_are_the_best_the_largest_and_the_first(data, tmp_path):
    study = Picks(pools=2, pool_size=6, epochs=1, images=8)
    accuracies, _ = study.run(SPACE, NETWORK, data, tmp_path).tables
    table = GenotypeTable(tmp_path / FILE, SPACE)
    for seed in range(2):
        pool = draw_distinct(SPACE, 6, torch.Generator().manual_seed(seed))
        params = [sum(p.numel() for p in NETWORK(genotype).parameters()) for genotype in pool]
        lines = (tmp_path / "scores" / f"{seed}.csv").read_text().splitlines()
        header, *rows = [line.rsplit(",", len(COMBINED) + 1) for line in lines]
        scores = [dict(zip(header[1:], map(float, row[1:]), strict=True)) for row in rows]
        best = pool[int(np.argmax(log_ranks(scores)))]
        expected = [best, pool[int(np.argmax(params))], pool[0]]
        assert accuracies.rows[seed][1:] == [table.valid_accuracy(g, epochs=1) for g in expected]


def test_comparison_is_paired():
    ours, others = np.array([50.0, 52.0, 55.0]), np.array([49.0, 52.5, 51.0])
    kind, difference, t, p = compare("random", ours, others)
    assert (kind, difference.value) == ("random", pytest.approx(1.5))
    assert t == pytest.approx(difference.value / difference.error)
    assert p == pytest.approx(2 * stats.t.sf(abs(t), df=2))
    assert compare("largest", ours, ours) == ["largest", (0, 0), None, None]
