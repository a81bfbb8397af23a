"""Comparison of ensembles by their own pages."""

import csv
import json

import pytest

from tests.cli.conftest import TINY_DATA


def table(run, name):
    return list(csv.DictReader((run / "tables" / f"{name}.csv").read_text().splitlines()))


@pytest.mark.slow
def test_ensembles_are_compared_on_the_same_images(command, tmp_path):
    words = [*TINY_DATA, "study=ensembles", "study.members=2", "network.channels=2", "network.cells=1"]
    assert command("analyze", *words, "trainer.max_epochs=1", "run=a").code == 0
    rows = table(tmp_path / "a", "ensembles")
    assert [(row["ensemble"], row["members"]) for row in rows] == [
        ("one architecture", "2"),
        ("random architectures", "2"),
    ]
    for row in rows:
        assert float(row["best member's"]) <= float(row["ATE"])
        assert float(row["all wrong"]) <= float(row["error"])
        assert float(row["PPD"]) > 0


@pytest.mark.slow
def test_runs_of_ensembles_are_compared(command, tmp_path):
    """What their own page says of them stands in one table."""
    train = [
        *TINY_DATA,
        "genotype=nasbench201_best",
        "network.channels=2",
        "network.cells=1",
        "trainer.max_epochs=1",
    ]
    assert command("train", *train, "ensemble=deep", "ensemble.count=2", "run=deep").code == 0
    code, _, err = command("analyze", *TINY_DATA, "study=ensembles", "study.runs={mine: deep}", "run=a")
    assert (code, err) == (0, "")
    (row,) = table(tmp_path / "a", "ensembles")
    summary = json.loads((tmp_path / "deep" / "summary.json").read_text())["metrics"]
    for column, name in (("error", "test_error"), ("ATE", "ate"), ("PPD", "ppd")):
        assert float(row[column]) == pytest.approx(100 * summary[name])
    code, _, err = command("analyze", *TINY_DATA, "study=ensembles", "study.runs={mine: nowhere}", "run=b")
    assert code == 1
    assert err.startswith("error: The folder must have an ensemble.json")
