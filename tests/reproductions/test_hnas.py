"""HNAS by a table, kernels of linear networks, and scores by the exact equations."""

import csv
import json
import re
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from torch.func import jacrev

from nas_lightning.data import Digits, SearchData
from nas_lightning.errors import InputError
from nas_lightning.metrics import GradNorm, Jacov, NTKCondition, Params
from nas_lightning.objectives.tables import TabularNasBench201, read_nasbench201
from nas_lightning.spaces import NasBench201
from nas_lightning.utils.randomness import generator, seed_of
from reproductions.hnas import (
    SEARCHES_FILE,
    Coupling,
    HnasAblation,
    KnownPool,
    SearchTrace,
    deep_kernel,
    metric_order,
    orthonormal,
    values_of,
    wide_kernel,
)
from tests.studies.conftest import write_table


def by_jacobian(network, W, x):
    rows = jacrev(lambda w: network(w, x))(W).flatten(1)
    return rows @ rows.T


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_kernels_are_those_of_autograd(layers):
    random = generator(1)
    W = torch.randn(layers, 5, 5, dtype=torch.float64, generator=random)
    x = torch.randn(3, 5, dtype=torch.float64, generator=random)

    def deep(w, x):
        for matrix in w:
            x = x @ matrix.T
        return x.sum(dim=1)

    torch.testing.assert_close(deep_kernel(W, x), by_jacobian(deep, W, x))
    wide = by_jacobian(lambda w, x: (x @ w.sum(dim=0).T).sum(dim=1), W, x)
    torch.testing.assert_close(wide_kernel(W, x), wide)


def test_theorem_7_4():
    random, L, n = generator(2), 3, 4
    x = orthonormal(n, n, random)
    torch.testing.assert_close(x @ x.T, torch.eye(n, dtype=torch.float64))
    draws = torch.randn(4000, L, n, n, dtype=torch.float64, generator=random)
    mean = torch.stack([deep_kernel(W, x) for W in draws]).mean(dim=0) / (L * n**L)
    assert (mean - torch.eye(n)).abs().max() < 0.1
    assert (wide_kernel(draws[0], x) - L * n * torch.eye(n)).abs().max() < 1e-12


CELLS, POOL, ROUNDS = 24, 12, 5
BOTH = {"HNAS, t = 1": 1.0, "HNAS, t = 0.5": 0.5}


class Size(Params):
    """Any positive number does as κ."""

    larger_is_better = False


class Run:
    """A small study in a folder, whose evaluations after 12 epochs are the reverse of the truth."""

    def __init__(self, folder):
        self.folder = folder
        self.truth = read_nasbench201(write_table(folder))
        lines = [f"{arch},{100 - value},{10 + len(arch)}" for arch, value in self.truth["cifar10"].items()]
        (folder / "valid.csv").write_text("\n".join(["arch,cifar10_valid,seconds", *lines]))
        self.benchmark = TabularNasBench201(folder / "table.csv", validation=folder / "valid.csv")

    def tables(self):
        space, data = NasBench201(), SearchData(Digits(batch_size=4))
        network = partial(space.network, in_channels=1, num_classes=10, channels=2, cells=1)
        sizes = {"cells": CELLS, "pool": POOL, "rounds": ROUNDS, "searches": 2, "bins": 4, "resamples": 10}
        metrics = {"grad_norm": GradNorm(), "size": Size()}
        study = HnasAblation(metrics=metrics, objective=["grad_norm"], kappa="size", **sizes)
        findings = study.run(space, network, data, self.benchmark, self.folder)
        return {one.name: list(csv.DictReader(one.csv().splitlines())) for one in findings.tables}

    def columns(self):
        rows = list(csv.DictReader((self.folder / "scores" / "main.csv").read_text().splitlines()))
        found = {name: np.array([float(row[name]) for row in rows]) for name in ("grad_norm", "size")}
        sets = ("cifar10", "cifar100")
        return found | {name: np.array([self.truth[name][row["arch"]] for row in rows]) for name in sets}

    def records(self):
        return json.loads((self.folder / SEARCHES_FILE).read_text())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("hnas"))


@pytest.fixture(scope="module")
def known(run):
    """The tables, and scores, accuracies and searches as the files have them."""
    return run.tables(), run.columns(), run.records()


def searches(records, *words):
    return [record for key, record in records.items() if all(word in key for word in words)]


def test_results_have_the_accuracies_of_the_table(known):
    """By validation accuracies, which are the reverse of the truth, the worst of those evaluated."""
    tables, columns, records = known
    rows = {(row["search"], row["evaluations by"]): row for row in tables["ends"]}
    assert len(rows) == 8
    for judge, worst in (("valid_accuracy_12_epochs", np.argmin), ("oracle_test_accuracy", np.argmax)):
        for search in (*BOTH, "metric alone", "random"):
            chosen = [record["chosen"] for record in searches(records, search, judge)]
            assert [len(set(cells)) for cells in chosen] == [ROUNDS, ROUNDS]
            ends = [cells[worst(columns["cifar10"][cells])] for cells in chosen]
            for name in ("cifar10", "cifar100"):
                assert float(rows[search, judge][name]) == pytest.approx(columns[name][ends].mean())
                assert float(rows[search, judge][f"± {name}"]) == pytest.approx(
                    columns[name][ends].std(ddof=1)
                )


def test_each_exponent_has_its_own_searches(known):
    """Round by round, the best under its own objective of those not evaluated yet."""
    _, columns, records = known
    for search, t in BOTH.items():
        for number, record in enumerate(searches(records, search, "oracle")):
            rows = np.random.default_rng(seed_of(0, number)).permutation(CELLS)[:POOL].tolist()
            pool = KnownPool(*(columns[name][rows] for name in ("grad_norm", "size", "cifar10")))
            seen = []
            for cell, parameters in zip(record["chosen"], record["parameters"], strict=True):
                values = values_of(pool, parameters, t)
                left = [place for place in range(POOL) if rows[place] not in seen]
                assert cell == rows[max(left, key=lambda place: values[place])]
                seen.append(cell)


def test_metric_alone_evaluates_the_largest_first(known):
    _, columns, records = known
    for record in searches(records, "metric alone"):
        values = columns["grad_norm"][record["chosen"]].tolist()
        assert values == sorted(values, reverse=True)


def test_budgets_end_where_searches_do(known):
    tables, columns, records = known
    for row in tables["ends"]:
        (last,) = [
            other
            for other in tables["budgets"]
            if all(other[key] == row[key] for key in ("search", "evaluations by"))
            and other["evaluations"] == "5"
        ]
        assert float(last["cifar10"]) == pytest.approx(float(row["cifar10"]))
        assert float(last["seconds"]) == pytest.approx(float(row["seconds"]))
    first = [row for row in tables["budgets"] if (row["search"], row["evaluations"]) == ("random", "1")]
    chosen = [record["chosen"][0] for record in searches(records, "random", "oracle")]
    assert float(first[1]["cifar10"]) == pytest.approx(columns["cifar10"][chosen].mean())


def test_steps_are_of_the_best_parameters_so_far(known):
    tables, columns, records = known
    pool = KnownPool(columns["grad_norm"], columns["size"], columns["cifar10"])
    for search, t in BOTH.items():
        expected = []
        for record in searches(records, search, "oracle"):
            worth = columns["cifar10"][record["chosen"]]
            best = [record["parameters"][int(worth[: step + 1].argmax())] for step in range(ROUNDS)]
            expected.append(
                [stats.spearmanr(values_of(pool, one, t), columns["cifar10"]).statistic for one in best]
            )
        kind = search, "oracle_test_accuracy"
        found = [
            float(row["Spearman"])
            for row in tables["steps"]
            if (row["search"], row["evaluations by"]) == kind
        ]
        assert found == pytest.approx(np.mean(expected, axis=0))


def test_bins_are_as_large_as_each_other_and_in_order(known):
    tables, columns, _ = known
    order = np.argsort(columns["grad_norm"], kind="stable").reshape(4, 6)
    for row, part in zip(tables["bins"], order, strict=True):
        assert float(row["cifar10"]) == pytest.approx(columns["cifar10"][part].mean())
        assert float(row["best"]) == columns["cifar10"][part].max()
        rho = stats.spearmanr(-columns["size"][part], columns["cifar10"][part]).statistic
        assert float(row["ρ with −κ"]) == pytest.approx(rho)


def test_saved_searches_are_not_repeated(known, run):
    tables, _, records = known
    (run.folder / SEARCHES_FILE).write_text(json.dumps(dict(list(records.items())[1:])))
    assert run.tables() == tables
    assert run.records() == records


REFUSED = {
    "lower is better": (["size"], "grad_norm", "lower is better, got GradNorm"),
    "of M": (["kappa"], "kappa", "higher is better, got NTKCondition"),
    "below 0": (["jacov"], "kappa", "can be above 0, got Jacov"),
}


@pytest.mark.parametrize(("objective", "kappa", "line"), REFUSED.values(), ids=REFUSED)
def test_bad_metrics_of_the_objective_are_refused(objective, kappa, line):
    metrics = {"grad_norm": GradNorm(), "size": Params(), "kappa": NTKCondition(), "jacov": Jacov()}
    with pytest.raises(InputError, match=re.escape(line)):
        HnasAblation(metrics=metrics, objective=objective, kappa=kappa)


def test_ties_are_ordered_by_position():
    pool = KnownPool(np.array([1.0, 2.0, 2.0]), np.ones(3), np.ones(3))
    assert metric_order(pool, 2).chosen == [1, 2]
    assert SearchTrace([1, 2], []).best(np.array([0.0, 5.0, 5.0])) == [0, 0]


FORMS = "by default", "equation"


@pytest.fixture
def space_and_network():
    space = NasBench201()
    return space, partial(space.network, in_channels=1, num_classes=10, channels=4, cells=1)


def test_rows_are_of_the_architectures(space_and_network, tmp_path):
    space, network = space_and_network
    data = SearchData(Digits(batch_size=6))
    (table,) = Coupling(cells=8, resamples=20).run(space, network, data, tmp_path).tables
    rows = {row[0]: row[1:] for row in table.rows}
    assert set(rows) == {"M_Trace", "κ", "M_GraSP"}
    count, ours, theirs, ratio, order = rows["M_Trace"]
    assert 0 < count <= 8
    assert ours != theirs  # norms couple images
    assert -1 <= order.value <= 1
    assert ratio.value == pytest.approx(np.log10(ours / theirs), abs=0.3)


def test_medians_are_of_the_scores(space_and_network, tmp_path):
    space, network = space_and_network
    data = SearchData(Digits(batch_size=4))
    (table,) = Coupling(cells=6, resamples=5).run(space, network, data, tmp_path).tables
    lines = list(csv.DictReader((tmp_path / "scores" / "main.csv").read_text().splitlines()))
    for name, count, *medians, _, _ in table.rows:
        pairs = np.array([[float(line[f"{name}, {form}"]) for form in FORMS] for line in lines])
        sound = pairs[(np.isfinite(pairs) & (pairs > 0)).all(axis=1)]
        assert len(sound) == count
        assert medians == pytest.approx(np.median(sound, axis=0), rel=1e-5)
