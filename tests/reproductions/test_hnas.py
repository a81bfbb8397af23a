"""Searches of HNAS by a table: what they chose is worth what the table says, whatever they evaluated by."""

import csv
import json
import re
from functools import partial

import numpy as np
import pytest
from scipy import stats

from nas_lightning.data import Digits, SearchData
from nas_lightning.errors import InputError
from nas_lightning.metrics import GradNorm, Jacov, NTKCondition, Params
from nas_lightning.objectives.tables import TabularNasBench201, read_nasbench201
from nas_lightning.spaces import NasBench201
from reproductions.hnas import SEARCHES_FILE, HnasAblation, KnownPool, SearchTrace, metric_order, values_of
from tests.studies.conftest import write_table

CELLS, POOL, ROUNDS = 24, 12, 5


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


def test_ends_are_worth_what_the_table_says(known):
    """By validation accuracies, which are the reverse of the truth, the worst of those evaluated."""
    tables, columns, records = known
    rows = {(row["search"], row["evaluations by"]): row for row in tables["ends"]}
    assert len(rows) == 6
    for judge, worst in (("valid_accuracy_12_epochs", np.argmin), ("oracle_test_accuracy", np.argmax)):
        for search in ("HNAS", "metric alone", "random"):
            chosen = [record["chosen"] for record in searches(records, search, judge)]
            assert [len(set(cells)) for cells in chosen] == [ROUNDS, ROUNDS]
            ends = [cells[worst(columns["cifar10"][cells])] for cells in chosen]
            for name in ("cifar10", "cifar100"):
                assert float(rows[search, judge][name]) == pytest.approx(columns[name][ends].mean())
                assert float(rows[search, judge][f"± {name}"]) == pytest.approx(
                    columns[name][ends].std(ddof=1)
                )


def test_a_metric_alone_takes_its_largest_first(known):
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
    expected = []
    for record in searches(records, "HNAS", "oracle"):
        worth = columns["cifar10"][record["chosen"]]
        best = [record["parameters"][int(worth[: step + 1].argmax())] for step in range(ROUNDS)]
        expected.append(
            [stats.spearmanr(values_of(pool, one, 1.0), columns["cifar10"]).statistic for one in best]
        )
    found = [
        float(row["Spearman"]) for row in tables["steps"] if row["evaluations by"] == "oracle_test_accuracy"
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


def test_what_is_in_the_file_is_not_searched_again(known, run):
    tables, _, records = known
    (run.folder / SEARCHES_FILE).write_text(json.dumps(dict(list(records.items())[1:])))
    assert run.tables() == tables
    assert run.records() == records


REFUSED = {
    "less is better": (["size"], "grad_norm", "less is better, got GradNorm"),
    "of M": (["kappa"], "kappa", "more is better, got NTKCondition"),
    "below 0": (["jacov"], "kappa", "can be above 0, got Jacov"),
}


@pytest.mark.parametrize(("objective", "kappa", "line"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_in_the_objective_is_refused_before_anything_is_scored(objective, kappa, line):
    metrics = {"grad_norm": GradNorm(), "size": Params(), "kappa": NTKCondition(), "jacov": Jacov()}
    with pytest.raises(InputError, match=re.escape(line)):
        HnasAblation(metrics=metrics, objective=objective, kappa=kappa)


def test_of_equal_metrics_the_first_come_first():
    pool = KnownPool(np.array([1.0, 2.0, 2.0]), np.ones(3), np.ones(3))
    assert metric_order(pool, 2).chosen == [1, 2]
    assert SearchTrace([1, 2], []).best(np.array([0.0, 5.0, 5.0])) == [0, 0]
