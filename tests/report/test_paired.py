"""Paired comparisons of strategies over seeds."""

import csv
import itertools
import json
import math
import shutil
from itertools import product

import pytest
import torch
from scipy import stats

from nas_lightning.report.paired import (
    Question,
    RankComparison,
    compare_folders,
    compare_ranks,
    critical_difference,
    holm,
    least_p,
    main,
    needed_pairs,
    permutation,
    t_interval,
    t_test,
    wilcoxon,
)
from nas_lightning.runs.facts import RunFacts
from nas_lightning.runs.folder import RunFolder
from nas_lightning.runs.record import Record
from nas_lightning.spaces import NasBench201
from tests.cli.conftest import REPOSITORY, TINY_DATA, TINY_NETWORK, TINY_SEARCH, run_script

# The tests behind a comparison, against scipy, against tables that are printed, and by their definitions.


def normal(count, seed=0, shift=0.3):
    return (shift + torch.randn(count, generator=torch.Generator().manual_seed(seed))).double().tolist()


@pytest.mark.parametrize("count", [2, 3, 6, 13, 40])
def test_signed_ranks_are_scipys(count):
    differences = normal(count)
    expected = stats.wilcoxon(differences, method="exact").pvalue
    assert wilcoxon(differences) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("differences", [[1, 1, 1, -1], [2, -2, 2, 5, 5, -1, 0], [0.5, 0.5, 0.5], [0, 0, 1]])
def test_signed_ranks_with_shared_ones_are_what_all_signs_give(differences):
    kept = [d for d in differences if d]
    ranks = stats.rankdata([abs(d) for d in kept])
    center = sum(ranks) / 2
    sums = [sum(r for r, up in zip(ranks, signs, strict=True) if up) for signs in signs_of(len(kept))]
    seen = abs(sum(r for r, d in zip(ranks, kept, strict=True) if d > 0) - center)
    assert wilcoxon(differences) == sum(abs(s - center) >= seen for s in sums) / len(sums)


def signs_of(count):
    return list(itertools.product((False, True), repeat=count))


@pytest.mark.parametrize("count", [2, 3, 8, 12])
def test_permutations_are_scipys(count):
    differences = normal(count, seed=1)
    expected = stats.permutation_test(
        (differences,), sum, permutation_type="samples", n_resamples=math.inf, alternative="two-sided"
    )
    assert permutation(differences) == pytest.approx(expected.pvalue, rel=1e-12)


def test_equal_sums_count_though_they_are_rounded():
    assert permutation([0.1, 0.2, 0.3]) == 0.25  # 0.1 + 0.2 + 0.3 ≠ 0.3 + 0.2 + 0.1 in the last bit
    assert permutation([0.1] * 10) == least_p(10)


@pytest.mark.parametrize("count", [2, 5, 30])
def test_students_t_is_scipys(count):
    differences = normal(count, seed=2)
    expected = stats.ttest_1samp(differences, 0)
    assert t_test(differences) == pytest.approx(expected.pvalue, rel=1e-9)
    assert t_interval(differences) == pytest.approx(tuple(expected.confidence_interval()), rel=1e-9)


def test_without_spread_only_nothing_is_like_nothing():
    assert (t_test([0.0, 0.0]), t_test([0.1, 0.1])) == (1.0, 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_holm_is_the_closed_test_of_bonferronis(seed):
    p = torch.rand(5, generator=torch.Generator().manual_seed(seed)).pow(3).double().tolist()
    subsets = [s for n in range(1, 6) for s in itertools.combinations(range(5), n)]
    expected = [max(min(1.0, len(s) * min(p[j] for j in s)) for s in subsets if i in s) for i in range(5)]
    assert holm(p) == pytest.approx(expected, rel=1e-12)
    assert holm([]) == []


@pytest.mark.parametrize("pairs", range(1, 9))
def test_no_differences_give_less_than_the_least_p(pairs):
    assert wilcoxon([float(i) for i in range(1, pairs + 1)]) == least_p(pairs)
    assert permutation([1.0] * pairs) == least_p(pairs)


def test_three_seeds_show_nothing_and_six_are_needed():
    assert least_p(3) == 0.25
    assert least_p(5) > 0.05 >= least_p(6)
    assert needed_pairs(0.05) == 6
    assert needed_pairs(0.05, comparisons=10) == 9  # 10 · 2⁻⁸ = 0.039, 10 · 2⁻⁷ = 0.078


# Over data sets


Q = {2: 1.960, 3: 2.343, 4: 2.569, 5: 2.728, 6: 2.850, 7: 2.949, 8: 3.031, 9: 3.102, 10: 3.164}
"""Table 5(a) of Demšar 2006."""


@pytest.mark.parametrize("ways", Q)
def test_critical_differences_are_those_of_demsars_table(ways):
    q = critical_difference(ways, sets=1) / math.sqrt(ways * (ways + 1) / 6)
    assert round(q, 3) == pytest.approx(Q[ways], abs=0.0011)


@pytest.mark.parametrize("decimals", [6, 1])  # and with ties
def test_friedmans_test_is_scipys(decimals):
    table = torch.rand(4, 9, generator=torch.Generator().manual_seed(3)).double().round(decimals=decimals)
    scores = dict(zip("abcd", table.tolist(), strict=True))
    ranked = compare_ranks(scores)
    assert ranked.p == pytest.approx(stats.friedmanchisquare(*table.tolist()).pvalue, rel=1e-9)
    expected = stats.rankdata(-table.numpy(), axis=0).mean(axis=1)
    assert [*ranked.ranks.values()] == pytest.approx(expected)


def test_ways_that_are_equal_everywhere_are_not_told_apart():
    ranked = compare_ranks({"a": [1.0, 2.0], "b": [1.0, 2.0]})
    assert (ranked.p, ranked.ranks) == (1.0, {"a": 1.5, "b": 1.5})
    assert ranked.cliques() == [("a", "b")]


@pytest.mark.parametrize(
    ("ranks", "difference", "cliques"),
    [
        ({"a": 1.0, "b": 2.5, "c": 4.0}, 1.4, []),
        ({"c": 3.0, "a": 1.0, "b": 2.0}, 1.4, [("a", "b"), ("b", "c")]),
        ({"a": 1.0, "b": 1.2, "c": 1.4, "d": 5.0}, 1.4, [("a", "b", "c")]),
        ({"a": 1.0, "b": 1.2, "c": 2.3, "d": 2.5}, 1.31, [("a", "b", "c"), ("b", "c", "d")]),
    ],
)
def test_bars_join_the_largest_groups_alone(ranks, difference, cliques):
    assert RankComparison(ranks, 3, 0.01, difference).cliques() == cliques


# Searches and the trainings of what they found, joined and compared: from folders to files.

SPACE = NasBench201()


def record(script, config, sweep=False, **choices):
    hydra = {"job": {"config_name": script, "num": "???" if sweep else 0}, "runtime": {"choices": choices}}
    return Record(("seed=0,1",) if sweep else (), config, {**hydra, "mode": "MULTIRUN" if sweep else "RUN"})


def write_search(folder, strategy, seed, *, metrics=None, settings=None, data="digits"):
    run = RunFolder(folder)
    config = {"seed": seed, "strategy": {"lr": 0.1, **(settings or {})}}
    run.create(record("search", config, strategy=strategy))
    genotype = SPACE.sample(torch.Generator().manual_seed(1000 * seed + len(strategy)))
    facts = RunFacts("search", seed, metrics or {}, 10.0, dataset=data, strategy=strategy.title())
    run.finish(facts, [genotype])
    return run


def write_training(folder, search, seed, accuracy, *, data="digits", lr=0.1, **metrics):
    run = RunFolder(folder)
    config = {
        "genotype": {"path": f"searched/{search.path.name}"},
        "seed": seed,
        "retrain": {"lr": lr},
        "task": {"score": "accuracy"},
    }
    run.create(record("train", config, genotype="file"))
    facts = RunFacts("training", seed, {"test_accuracy": accuracy, **metrics}, 10.0, dataset=data)
    run.finish(facts, search.genotypes)


QUALITY = {"random": 0.5, "darts": 0.5, "gdas": 0.7}


def accuracy(strategy, seed, training, data="digits"):
    """gdas is above random by 0.2 + 0.01 · seed; a training seed adds ±0.05, which its mean leaves out."""
    better = 0.01 * seed if strategy == "gdas" else 0.0
    return QUALITY[strategy] + 0.02 * seed + better + (-1) ** training * 0.05 + (0.1 if data == "fake" else 0)


def write_sweeps(folder, seeds=6, sets=("digits",)):
    for name, script in (("searched", "search"), ("trained", "train")):
        RunFolder(folder / name).create(record(script, {}, sweep=True))
    searches = list(product(QUALITY, range(seeds)))
    for number, (strategy, seed) in enumerate(searches):
        search = write_search(folder / f"searched/{number}", strategy, seed)
        for place, data in enumerate(sets):
            for training in range(2):
                job = f"trained/{len(sets) * 2 * number + 2 * place + training}"
                value = accuracy(strategy, seed, training, data)
                write_training(folder / job, search, training, value, data=data)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    write_sweeps(folder)
    return folder


@pytest.fixture
def sweeps(written, tmp_path, monkeypatch):
    """Six searches of each strategy, each trained twice."""
    monkeypatch.chdir(tmp_path)
    for name in ("searched", "trained"):
        shutil.copytree(written / name, tmp_path / name)
    return tmp_path


def rows(file):
    with file.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_trainings_are_joined_to_searches_and_compared_to_random(sweeps, capsys):
    main(["searched", "trained"])
    out, err = capsys.readouterr()
    assert err == ""
    means = {row["strategy"]: row for row in rows(sweeps / "trained/comparison/tables/means.csv")}
    assert means["gdas"] | {"mean": "", "mean sd": ""} == {
        **{"strategy": "gdas", "data": "digits", "seeds": "6", "trainings": "12", "mean": "", "mean sd": ""}
    }
    assert float(means["gdas"]["mean"]) == pytest.approx(0.7 + 0.03 * 2.5)
    assert float(means["gdas"]["mean sd"]) == pytest.approx(
        0.03 * (17.5 / 5) ** 0.5
    )  # of searches: 0, 1, … 5
    found = {row["strategy"]: row for row in rows(sweeps / "trained/comparison/tables/differences.csv")}
    assert [*found] == ["gdas", "darts"]
    assert found["darts"] | {"95 % from": "", "to": ""} == {
        **{
            "strategy": "darts",
            "data": "digits",
            "pairs": "6",
            "difference": "0.0",
            "95 % from": "",
            "to": "",
        },
        **{"p": "1.0", "p (Holm)": "1.0"},
    }
    assert float(found["gdas"]["difference"]) == pytest.approx(0.225)
    assert (found["gdas"]["p"], found["gdas"]["p (Holm)"]) == ("0.03125", "0.0625")
    assert "With 6 pairs no p is below 0.0312, and none of Holm's below 0.0625" in out
    for path in out.splitlines()[-3:]:
        assert (sweeps / path).is_file()
    assert (sweeps / "trained/comparison/tables/means.md").read_text() in out + "\n"


def test_trainings_alone_know_their_searches(sweeps):
    both, _ = compare_folders(["searched", "trained"], Question())
    alone, left_out = compare_folders(["trained"], Question())
    assert alone.outcomes == both.outcomes
    assert left_out == []


def test_a_sweep_of_searches_that_was_renamed_is_found_where_it_is_given(sweeps):
    before, _ = compare_folders(["trained"], Question())
    (sweeps / "searched").rename(sweeps / "elsewhere")
    after, left_out = compare_folders(["elsewhere", "trained"], Question())
    assert (after.outcomes, left_out) == (before.outcomes, [])


def test_two_data_sets_have_ranks_and_their_diagram(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_sweeps(tmp_path, seeds=2, sets=("digits", "fake"))
    main(["trained", "--out", "out"])
    assert "Over 2 data sets. Friedman's test: p =" in capsys.readouterr().out
    ranks = {row["strategy"]: float(row["mean rank"]) for row in rows(tmp_path / "out/tables/ranks.csv")}
    assert ranks == {"gdas": 1.0, "random": 2.5, "darts": 2.5}
    assert (tmp_path / "out/figures/critical_difference.svg").is_file()
    assert len(rows(tmp_path / "out/tables/differences.csv")) == 4


def test_searches_are_compared_by_a_tables_accuracy(tmp_path):
    for strategy, value in (("random", 0.9), ("darts", 0.8)):
        for seed in range(3):
            folder = tmp_path / f"{strategy}{seed}"
            write_search(folder, strategy, seed, metrics={"true_accuracy": value, "true_rank": seed})
    folders = sorted(tmp_path.iterdir())
    compared, _ = compare_folders(folders, Question())
    assert compared.metric == "true_accuracy"
    assert compared.differences().rows[0][3] == pytest.approx(-0.1)
    ranked, _ = compare_folders(folders, Question(metric="true_rank"))
    assert ranked.less


def test_searches_are_compared_by_a_table_of_ones_own(tmp_path):
    """What the table lacks is left out."""
    for strategy, value in (("random", 91.0), ("darts", 93.0)):
        for seed in range(3):
            known = (
                {"table/rank": seed, "table/mine": value + seed} if (strategy, seed) != ("darts", 0) else {}
            )
            write_search(tmp_path / f"{strategy}{seed}", strategy, seed, metrics=known)
    compared, left_out = compare_folders(sorted(tmp_path.iterdir()), Question())
    assert compared.metric == "table/mine"
    assert compared.differences().rows[0][2:4] == [2, pytest.approx(2.0)]
    assert left_out == [f"{tmp_path / 'darts0'} (its architecture is not in the table)"]


@pytest.mark.parametrize(
    "argv", [["--by", "strategy.lr", "--baseline", "0.1"], ["--by", "strategy,strategy.lr"]]
)
def test_any_setting_makes_arms(argv, tmp_path, capsys):
    for number, (lr, seed) in enumerate(product((0.1, 0.2), range(3))):
        metrics = {"true_accuracy": lr}
        write_search(tmp_path / str(number), "random", seed, settings={"lr": lr}, metrics=metrics)
    argv = argv if "--baseline" in argv else [*argv, "--baseline", "random 0.1"]
    main([str(tmp_path), *argv, "--out", str(tmp_path / "out")])
    (row,) = rows(tmp_path / "out/tables/differences.csv")
    assert [*row.values()][:4] == [argv[-1].replace("0.1", "0.2"), "digits", "3", "0.1"]


def failed(folder):
    summary = folder / "trained/0/summary.json"
    summary.write_text(json.dumps({"error": "out of memory", "overrides": []}))


def other_training(folder):
    search = RunFolder(folder / "searched/0")
    write_training(folder / "trained/99", search, 2, 0.5, lr=0.2)


def without(folder, *strategies):
    for number, strategy in enumerate(name for name in QUALITY for _ in range(12)):
        if strategy in strategies:
            shutil.rmtree(folder / f"trained/{number}")


def twice(folder):
    search = write_search(folder / "searched/99", "random", 0)
    write_training(folder / "trained/99", search, 0, 0.5)


@pytest.mark.parametrize(
    ("spoil", "argv", "message"),
    [
        (None, ["nowhere"], "The path must be the folder of a sweep or a run, got 'nowhere'"),
        (None, ["searched"], "Pass trainings of the architectures, a table (benchmark=…), or --metric NAME"),
        (None, ["trained", "--by", "stratgy"], "Unknown setting (did you mean 'strategy'?)"),
        (
            None,
            ["trained", "--by", "retrain.lr"],
            "The searches of 0.1 must differ in their seeds only, got",
        ),
        (lambda f: without(f, "random"), ["trained"], "Pass --baseline, one of darts, gdas, got 'none'"),
        (lambda f: without(f, "darts", "gdas"), ["trained"], "A comparison needs at least two values of"),
        (lambda f: without(f, "random", "gdas"), ["trained"], "A comparison needs at least two values of"),
        (
            None,
            ["trained", "--baseline", "rando"],
            "There are no runs of the baseline (did you mean 'random'?)",
        ),
        (
            None,
            ["trained", "--metric", "acc"],
            "Unknown metric (choose from test_accuracy), got 'acc'",
        ),
        (None, ["trained", "--test", "sign"], "Invalid arguments: argument --test"),
        (
            other_training,
            ["trained"],
            "The trainings must differ in their seeds and architectures only, got",
        ),
        (twice, ["trained"], "There must be one search of random on digits with seed 0, got"),
        (
            lambda f: shutil.rmtree(f / "searched"),
            ["trained"],
            "There must be finished searches, or trainings of their architectures",
        ),
        (
            lambda f: (f / "f").touch(),
            ["trained", "--out", "f"],
            "Cannot read or write",
        ),
    ],
)
def test_what_cannot_be_compared_is_one_line(spoil, argv, message, sweeps, capsys):
    if spoil is not None:
        spoil(sweeps)
    with pytest.raises(SystemExit) as end:
        main(argv)
    assert str(end.value).startswith(f"error: {message}")
    assert len(str(end.value).splitlines()) == 1


def test_runs_that_have_failed_or_say_nothing_are_left_out_with_the_reason(sweeps, capsys):
    failed(sweeps)
    RunFolder(sweeps / "trained/77").create(record("train", {}, genotype="file"))
    write_search(sweeps / "searched/99", "random", 9)
    main(["searched", "trained"])
    err = capsys.readouterr().err
    assert "left out: trained/0 (failed: out of memory)" in err
    assert "left out: trained/77 (The run is not finished" in err
    assert "left out: searched/99 (none of the trainings is of its architecture)" in err
    (row,) = [r for r in rows(sweeps / "trained/comparison/tables/means.csv") if r["strategy"] == "random"]
    assert (row["seeds"], row["trainings"]) == ("6", "11")


@pytest.mark.slow
def test_three_lines_from_searching_to_the_comparison(tmp_path, monkeypatch, capsys):
    """As docs/sweeps.md has them, at a size of seconds."""
    monkeypatch.chdir(tmp_path)
    lines = (REPOSITORY / "docs" / "sweeps.md").read_text(encoding="utf-8").splitlines()
    (searching,) = [line for line in lines if "strategy=random,darts,pr_darts seed=" in line]
    (training,) = [line for line in lines if "genotype.path=searched seed=" in line]
    (comparing,) = [line for line in lines if line.startswith("nas-compare ")]
    quick = ("trainer.max_epochs=1", "callbacks.history.figures=false")
    search = [word for word in searching.split()[2:] if not word.startswith("space=")]
    assert run_script("search", "-m", *search, *TINY_SEARCH, *quick) == 0
    train = training.split()[2:]
    assert run_script("train", "-m", *train, *TINY_DATA, *TINY_NETWORK, "trainer.max_epochs=1") == 0
    capsys.readouterr()
    main(comparing.split()[1:])
    assert capsys.readouterr().err == ""
    found = rows(tmp_path / "trained/comparison/tables/differences.csv")
    assert [row["pairs"] for row in found] == ["6", "6"]
