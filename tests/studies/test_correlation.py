"""The studies of correlations, from the command to the files, against what their own scores come to."""

import csv
import json
import math
import signal
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from scipy import stats

from nas_lightning.data import Digits, Fake, SearchData
from nas_lightning.errors import InputError
from nas_lightning.metrics import Flops, GradNorm, NTKCondition, Snip, score
from nas_lightning.metrics import pool as pools
from nas_lightning.objectives.rankings import COMBINED
from nas_lightning.objectives.tables import GenotypeTable, TabularNasBench201, read_nasbench201
from nas_lightning.spaces import DartsSpace, NasBench101, NasBench201
from nas_lightning.studies.correlation import Correlation, CorrelationSettings
from nas_lightning.studies.scoring import (
    Setting,
    accuracies_of,
    batch_sizes,
    draw_genotypes,
    initializations,
    widths,
)
from tests.cli.conftest import run_process

TINY = ("benchmark.path=table.csv", "network.channels=4", "network.cells=1", "dataset.batch_size=8")
FEW = (*TINY, "study=correlation", "study.cells=12", "study.agreement=0", "study.resamples=10")


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture
def counted(monkeypatch) -> list[str]:
    """The architectures that are scored, as they are."""
    seen = []

    def counting(network, *args, **options):
        seen.append(str(network))
        return score(network, *args, **options)

    monkeypatch.setattr(pools, "score", counting)
    return seen


@pytest.fixture
def study(table, tmp_path):
    """`study("a", …)`: the tables of a small study in that folder, without the command."""
    space, data, benchmark = NasBench201(), SearchData(Digits(batch_size=8)), TabularNasBench201(table)

    def network(genotype, **changes):
        return space.network(
            genotype, **{"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1, **changes}
        )

    def run(folder, kind=Correlation, **options):
        given = {"metrics": METRICS, "objective": ["grad_norm"], "cells": 12, "resamples": 10}
        if kind is Correlation:
            given["agreement"] = 0
        findings = kind(**{**given, **options}).run(space, network, data, benchmark, tmp_path / folder)
        return {found.name: list(csv.DictReader(found.csv().splitlines())) for found in findings.tables}

    return run


METRICS = {
    **{"grad_norm": GradNorm(), "grad_norm_whole": GradNorm(per_layer=False), "snip": Snip()},
    **{"ntk_condition": NTKCondition(), "flops": Flops(), **COMBINED},
}


def test_correlations_are_those_of_the_scores(study, table, tmp_path):
    tables = study("a")
    scores = rows(tmp_path / "a" / "scores" / "main.csv")
    accuracies = read_nasbench201(table)
    found = {row["metric"]: row for row in tables["metrics"]}
    assert len(scores) == 12
    assert set(found) == {*METRICS, "combined"}
    for metric, sign in (("snip", 1), ("ntk_condition", -1), ("flops", 1)):
        values = [sign * float(row[metric]) for row in scores]
        for name in ("cifar10", "cifar100", "imagenet16-120"):
            expected = stats.spearmanr(values, [accuracies[name][row["arch"]] for row in scores]).statistic
            assert float(found[metric][f"ρ {name}"]) == pytest.approx(expected)
        truth = [accuracies["cifar10"][row["arch"]] for row in scores]
        assert float(found[metric]["τ cifar10"]) == pytest.approx(stats.kendalltau(values, truth).statistic)
    (pair,) = tables["pairs"]
    one, other = ([float(row[name]) for row in scores] for name in ("grad_norm", "ntk_condition"))
    expected = stats.kendalltau(one, [-value for value in other]).statistic
    assert float(pair["Kendall"]) == pytest.approx(expected)


def test_the_objective_in_its_four_scenarios(study, table, tmp_path):
    (row, *_) = study("a")["objective_spearman"]
    scores = rows(tmp_path / "a" / "scores" / "main.csv")
    truth = [read_nasbench201(table)["cifar10"][row["arch"]] for row in scores]
    m, kappa = ([float(row[name]) for row in scores] for name in ("grad_norm", "ntk_condition"))

    def rho(objective):
        sound = [0 < a < math.inf and k < math.inf for a, k in zip(m, kappa, strict=True)]
        values = [-objective(a, k) if ok else -math.inf for a, k, ok in zip(m, kappa, sound, strict=True)]
        return stats.spearmanr(values, truth).statistic

    assert (row["metric"], row["accuracy"]) == ("grad_norm", "cifar10")
    mu, nu = float(row["μ"]), float(row["√ν"]) ** 2
    assert float(row["alone"]) == pytest.approx(stats.spearmanr(m, truth).statistic)
    assert float(row["with κ"]) == pytest.approx(rho(lambda a, k: k / a))
    assert float(row["with both"]) == pytest.approx(rho(lambda a, k: k / a + mu * (a * a - nu) ** 2))
    assert float(row["with both"]) >= float(row["with κ"]) - 0.02
    assert float(row["both, held out"]) <= float(row["with both"])


def test_stopped_study_scores_only_the_rest(study, tmp_path, counted):
    first = study("a")
    assert len(counted) == 12
    assert study("a") == first
    assert len(counted) == 12
    file = tmp_path / "a" / "scores" / "main.csv"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:8]) + lines[8][:20])
    assert study("a") == first
    assert len(counted) == 12 + 5
    assert file.read_text() == "".join(lines)


def test_more_cells_begin_with_the_fewer(study, tmp_path, counted, capsys):
    study("a")
    capsys.readouterr()
    study("a", cells=20)
    assert capsys.readouterr().out.startswith("3 more scores of 20 architectures: about ")
    study("b", cells=20, scores=tmp_path / "a" / "scores")
    assert len(counted) == 20


def test_command_resumes_with_more_cells_and_refuses_other_settings(command, table, tmp_path, counted):
    few = (*TINY, "study=transfer", "study.cells=4", "study.pool=4", "study.k=[2]", "study.searches=2")
    assert command("analyze", *few, "run=a").code == 0
    code, _, err = command("analyze", "resume=a", "study.cells=6")
    assert (code, err) == (0, "")
    assert len(counted) == 6
    for number, changed in enumerate(("network.channels=2", "study.scheme=xavier", "dataset.batch_size=16")):
        code, _, err = command("analyze", *few, f"run=b{number}", "study.scores=a/scores", changed)
        assert code == 1
        assert err.startswith("error: ")
        assert len(err.splitlines()) == 1
        assert "main.csv" in err
    code, _, err = command("analyze", "resume=a", "study.scheme=xavier")
    assert code == 1
    assert "`study.scheme` cannot change in a resumed run: lecun" in err


MISTAKES = [
    ("study.cells=3", "`cells` must be at least 4, got 3 (in study.cells)"),
    ("study.cells=many", "`cells` must be a valid integer, got 'many' (in study.cells)"),
    ("study.kappa=ntk_conditoin", "did you mean 'ntk_condition'?"),
    ("study.objective=[grad]", "Unknown metric"),
    ("study.scheme=lecunn", "`scheme` must be 'lecun'"),
    ("study.cels=5", "Did you mean `study.cells`?"),
    ("+study.metrics.fisher.x=1", "Unknown argument `x` of study.metrics.fisher. It takes none."),
    ("study.splits=0", "(in study.splits)"),
]


def test_mistakes_are_one_line(command, table):
    for argument, message in MISTAKES:
        code, _, err = command("analyze", *FEW, argument)
        assert code == 1, argument
        assert message in err
        assert len(err.splitlines()) == 1


def test_settings_vary_one_thing(study, table, tmp_path, counted):
    tables = study(
        "a",
        CorrelationSettings,
        cells=8,
        schemes=["lecun", "xavier"],
        batch_sizes=[4, 16],
        channels=[2, 4],
        others={"other": Fake(shape=(3, 8, 8), batch_size=8)},
    )
    folder = tmp_path / "a" / "scores"
    facts = {path.name.split(".")[0]: json.loads(path.read_text()) for path in folder.glob("*.json")}
    differs = {
        "scheme_xavier": {"scheme"},
        **{name: {"batch"} for name in ("batch_4", "batch_16", "random_labels", "gaussian_inputs")},
        "channels_2": {"network"},
        "data_other": {"network", "batch"},
    }
    assert set(facts) == {"main", *differs}  # four channels and batches of eight are the main setting
    for name, keys in differs.items():
        assert {key for key in facts["main"] if facts["main"][key] != facts[name][key]} == keys
    assert len(counted) == 8 * 8

    truth = read_nasbench201(table)["cifar10"]
    xavier = rows(folder / "scheme_xavier.csv")
    found = {(row["metric at"], row["κ at"]): row for row in tables["initialization_spearman"]}
    values = [float(row["grad_norm"]) for row in xavier]
    expected = stats.spearmanr(values, [truth[row["arch"]] for row in xavier]).statistic
    assert float(found["xavier", "alone"]["grad_norm"]) == pytest.approx(expected)
    wide = [(row["metric at"], row["κ at"]) for row in tables["initial_channels_spearman"]]
    assert wide == [("2", "alone"), ("2", "2"), ("4", "alone"), ("4", "2"), ("4", "4")]
    assert {row["images of"] for row in tables["data_sets"]} == {"digits", "other"}


def test_agnosticism_is_the_correlation_of_squares(study, tmp_path):
    options = {"schemes": ["lecun"], "batch_sizes": [], "channels": []}
    tables = study("a", CorrelationSettings, cells=8, **options)
    assert set(tables) == {"data_sets", "agnosticism"}
    true, random = (
        [float(row["grad_norm_whole"]) for row in rows(tmp_path / "a" / "scores" / f"{name}.csv")]
        for name in ("main", "random_labels")
    )
    squares = [(a * a, b * b) for a, b in zip(true, random, strict=True) if a > 0]
    first = tables["agnosticism"][0]
    assert first["metric"] == "t(A)"
    expected = stats.pearsonr(*zip(*squares, strict=True)).statistic
    assert float(first["Pearson, random labels"]) == pytest.approx(expected)


def test_other_data_sets_are_options(command, table, tmp_path):
    small = ("study.cells=4", "study.schemes=[lecun]", "study.batch_sizes=[]", "study.channels=[]")
    other = ("+dataset@study.others.other=fake", "study.others.other.batch_size=8", "study.agnostic=false")
    argv = (*TINY, "study=correlation_settings", *small, *other, "study.resamples=10", "run=a")
    code, _, err = command("analyze", *argv)
    assert (code, err) == (0, "")
    assert {row["images of"] for row in rows(tmp_path / "a" / "tables" / "data_sets.csv")} == {
        "digits",
        "other",
    }


def test_batches_of_all_sizes_begin_alike():
    data = SearchData(Digits(batch_size=8))
    main = Setting(lambda genotype: torch.nn.Identity(), data.train_batches(1)[0])
    sizes = batch_sizes(main, data, [4, 20])
    assert dict(sizes.pools) == {"4": "batch_4", "8": "main", "20": "batch_20"}
    x, y = main.batch
    assert torch.equal(sizes.settings["batch_4"].batch[0], x[:4])
    assert torch.equal(sizes.settings["batch_20"].batch[0][:8], x)
    assert torch.equal(sizes.settings["batch_20"].batch[1][:8], y)
    assert sizes.settings["batch_20"].batch[1].shape == (20,)
    assert sizes.pairs()[-2:] == [("8", "4"), ("8", "20")]
    assert initializations(main, ["lecun", "xavier"]).pairs()[-1] == ("xavier", "xavier")


def test_main_width_is_not_scored_twice():
    space = NasBench201()

    def network(genotype, channels=4):
        return space.network(genotype, in_channels=1, num_classes=3, channels=channels, cells=1)

    main = Setting(network, (torch.zeros(2, 1, 8, 8), torch.tensor([0, 1])))
    found = widths(main, network, [8, 4], draw_genotypes(space, 1, 0)[0])
    assert dict(found.pools) == {"4": "main", "8": "channels_8"}
    genotype = draw_genotypes(space, 1, 0)[0]
    assert str(found.settings["channels_8"].network(genotype)) == str(network(genotype, channels=8))


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_stopped_at_any_moment(table, tmp_path, stop):
    argv = (*FEW, "study.objective=[grad_norm]", "study.cells=40")
    process = run_process("analyze", *argv, "run=a", cwd=tmp_path)
    file = tmp_path / "a" / "scores" / "main.csv"
    while not file.exists() or file.read_bytes().count(b"\n") < 9:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(stop)
    out, _ = process.communicate()
    assert process.returncode != 0
    if stop == signal.SIGINT:
        assert "Resume with:" in out
        assert "nas-analyze resume=a" in out.splitlines()[-1]
    assert not (tmp_path / "a" / "tables").exists()
    for words in (["resume=a"], [*argv, "run=b"]):
        again = run_process("analyze", *words, cwd=tmp_path)
        out, err = again.communicate()
        assert again.returncode == 0, err
    for name in ("scores/main.csv", "tables/metrics.csv", "tables/pairs.md"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.slow
def test_the_real_table(shared_data):
    benchmark = TabularNasBench201(shared_data / "nasbench201" / "test_accuracy.csv")
    genotypes = draw_genotypes(benchmark.space, 5, 0)
    found = accuracies_of(benchmark, genotypes)
    assert found["cifar100"].tolist() == [benchmark.column("cifar100", genotype) for genotype in genotypes]
    assert (found["cifar10"] > found["imagenet16-120"]).all()


def test_table_of_equal_accuracies_is_refused(tmp_path, generator):
    space = NasBench201()
    genotypes = [space.sample(generator) for _ in range(5)]
    with (tmp_path / "cells.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["arch", "v", "w"], *([space.notation(g), 80, 1] for g in genotypes)])
    with pytest.raises(InputError, match="architectures must differ in v, got '80 of all 5'"):
        accuracies_of(GenotypeTable(tmp_path / "cells.csv", space), genotypes)


def test_tables_of_other_spaces(tmp_path, generator):
    """A user's table of genotypes, in a space of two cells and in one of graphs."""
    data = SearchData(Digits(batch_size=8))
    for space in (DartsSpace(nodes=2), NasBench101()):
        lines = [[space.notation(space.sample(generator)), f"{80 + i}"] for i in range(8)]
        path = tmp_path / f"{space.name}.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([["genotype", "cifar10_valid"], *lines])
        network = partial(space.network, in_channels=1, num_classes=10, channels=8, cells=1)
        study = Correlation(metrics=METRICS, objective=["grad_norm"], cells=8, agreement=4, resamples=10)
        folder = tmp_path / space.name
        findings = study.run(space, network, data, GenotypeTable(path, space), folder)
        scores = {row["arch"]: row for row in rows(folder / "scores" / "main.csv")}
        values = [float(scores[name]["params"]) for name, _ in lines]
        table = next(table for table in findings.tables if table.name == "metrics")
        (found,) = [row for row in csv.DictReader(table.csv().splitlines()) if row["metric"] == "params"]
        expected = stats.spearmanr(values, range(8)).statistic
        assert float(found["ρ cifar10_valid"]) == pytest.approx(expected)


def test_reliability_is_of_two_draws_and_of_the_best(study, table, tmp_path):
    found = {row["metric"]: row for row in study("a", cells=20, agreement=6)["reliability"]}
    first, second = (rows(tmp_path / "a" / "scores" / f"{name}.csv") for name in ("main", "second"))
    again = {row["arch"]: float(row["snip"]) for row in second}
    assert len(again) == 6
    pairs = [(float(row["snip"]), again[row["arch"]]) for row in first if row["arch"] in again]
    assert any(a != b for a, b in pairs)
    expected = stats.spearmanr(*zip(*pairs, strict=True)).statistic
    assert float(found["snip"]["ρ with itself"]) == pytest.approx(expected)
    best = sorted(first, key=lambda row: -float(row["snip"]))[:2]
    truth = read_nasbench201(table)["cifar10"]
    mean = sum(truth[row["arch"]] for row in best) / 2
    assert float(found["snip"]["accuracy of the best tenth"]) == pytest.approx(mean)
    assert all(float(row["seconds"]) > 0 for row in found.values())
