"""Tables and pages that compare runs."""

import csv
import json
import shutil
import statistics

import pytest
import yaml
from omegaconf import OmegaConf

from nas_lightning.cli import SweepTable
from nas_lightning.cli.report import main as write_pages
from nas_lightning.errors import InputError
from nas_lightning.genotype import write_genotypes
from nas_lightning.plots.picture import Group
from nas_lightning.report.comparison import (
    _costs,
    compare,
    main,
    read_jobs,
    read_runs,
    tabulate_jobs,
    tabulate_seeds,
    unknown_objective,
    write_side_by_side,
)
from nas_lightning.report.page import write_report
from nas_lightning.report.record import RunRecord
from tests.report.reading import Page
from tests.report.searches import GENOTYPES, write_search

# Tables over runs, from summaries written by hand, and from a run of the scripts.


def write_run(folder, error, overrides, *, seconds=90.0, genotype="darts_v2", path=None, dataset="digits"):
    (folder / ".hydra").mkdir(parents=True)
    metrics = {"test_error": error, "test_accuracy": 1 - error}
    facts = {"dataset": dataset, "params": 3_300_000, "macs": 528_000_000, "seconds": seconds}
    facts |= {"metrics": metrics, "overrides": overrides}
    (folder / "summary.json").write_text(json.dumps(facts))
    config = {"genotype": {"path": path} if path else {"space": "darts"}, "pretrained": None}
    (folder / ".hydra" / "config.yaml").write_text(yaml.safe_dump(config))
    chosen = {"hydra": {"runtime": {"choices": {"genotype": genotype}}}}
    (folder / ".hydra" / "hydra.yaml").write_text(yaml.safe_dump(chosen))


@pytest.fixture
def runs(tmp_path):
    """Three seeds of one setting, two of them in a sweep; a found architecture; three of no use."""
    errors = {"a": 0.03, "sweep/0": 0.028, "sweep/1": 0.026}
    for seed, (name, error) in enumerate(errors.items()):
        write_run(tmp_path / name, error, ["genotype=darts_v2", f"seed={seed}", f"run={name}"])
    search = tmp_path / "search"
    search.mkdir()
    (search / "summary.json").write_text(
        json.dumps({"strategy": "Darts", "seconds": 7260.0, "metrics": {}, "overrides": []})
    )
    typed = ["genotype=file", f"genotype.path={search}"]
    write_run(tmp_path / "found", 0.05, typed, genotype="file", path=str(search), seconds=30.0)
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed" / "summary.json").write_text('{"error": "out of memory", "overrides": []}')
    return [str(path) for path in sorted(tmp_path.iterdir())]


def cells(line):
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_markdown_has_a_row_for_the_seeds_of_a_setting(runs, capsys):
    main(runs)
    out, err = capsys.readouterr()
    header, _, first, second = (line for line in out.splitlines() if line.startswith("|"))
    assert cells(header) == [
        *("architecture", "data", "settings", "runs", "error (%)"),
        *("parameters", "multiply-adds", "search", "training"),
    ]
    assert cells(first)[:2] + cells(first)[3:] == [
        *("darts_v2", "digits", "3", "2.80 ± 0.20", "3,300,000", "528,000,000", "", "1 min 30 s")
    ]
    assert cells(second)[:2] + cells(second)[3:] == [
        *("Darts", "digits", "1", "5.00", "3,300,000", "528,000,000", "2 h 1 min", "30 s")
    ]
    reasons = ["The run has failed", "The run must be one of nas-train", "The run is not finished"]
    for line, name, reason in zip(err.splitlines(), ("failed", "search", "unfinished"), reasons, strict=True):
        assert line.startswith("left out: ")
        assert f"/{name} ({reason}" in line


def test_csv_has_numbers_only(runs, capsys):
    main([*runs, "--format", "csv"])
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.endswith("runs,error (%),± (%),parameters,multiply-adds,search (s),training (s)")
    error, deviation = (float(value) for value in first.split(",")[4:6])
    values = [3.0, 2.8, 2.6]
    assert (error, deviation) == pytest.approx((statistics.mean(values), statistics.stdev(values)))
    assert second.endswith("1,5.0,,3300000,528000000,7260.0,30.0")


def test_latex_is_a_tabular(runs, capsys):
    main([*runs, "--format", "latex"])
    out = capsys.readouterr().out
    assert r"\begin{tabular}{lrrrrrrrr}" in out
    assert r"2.80 $\pm$ 0.20" in out
    assert r"error (\%)" in out


def test_what_is_no_run_is_told(tmp_path, runs, capsys):
    with pytest.raises(InputError, match="The path must be the folder of a run"):
        read_runs([tmp_path / "nothing"])
    with pytest.raises(
        SystemExit, match=r"error: There must be a finished run of nas-train, got .*not finished"
    ):
        main([str(tmp_path / "unfinished")])


def test_the_same_training_on_other_images_is_another_row(tmp_path):
    for number, name in enumerate(("digits", "cifar10")):
        write_run(tmp_path / name, 0.1 * number, [f"dataset={name}", "seed=0"], dataset=name)
    runs, _ = read_runs([tmp_path / "digits", tmp_path / "cifar10"])
    assert [row[1] for row in compare(runs).rows] == ["digits", "cifar10"]


def test_an_ensemble_of_several_architectures_has_no_single_origin(tmp_path):
    write_run(tmp_path / "a", 0.02, ["ensemble=nes_rs"], genotype=None)
    assert read_runs([str(tmp_path / "a")])[0][0]["architecture"] == "several"


# Damaged runs: every file of a run replaced, every entry of its summary replaced, the summary cut anywhere

DEEP = "[" * 20_000 + "]" * 20_000
ODD = [
    "null",
    "true",
    '"text"',
    "-1",
    "1e999",
    "NaN",
    "1" + "0" * 400,
    "1" * 5000,
    "[]",
    "{}",
    '[["a"]]',
    DEEP,
]
FILES = ("summary.json", ".hydra/config.yaml", ".hydra/hydra.yaml")


def damage(folder):
    """Every damage that this test knows: what it is, and the file and bytes that make it."""
    for file in FILES:
        for text in (
            *ODD,
            "",
            "\x00",
            "{",
            "a: b: c",
            "- x\n- y",
            '{"hydra": 3}',
            '{"hydra": {"runtime": []}}',
        ):
            yield f"{file} is {text[:20]!r}", file, text.encode()
        yield f"{file} is not UTF-8", file, b'{"a": "\xff"}'
    text = (folder / "summary.json").read_text()
    for end in range(1, len(text), 7):
        yield f"the summary ends after {end} letters", "summary.json", text[:end].encode()
    facts = json.loads(text)
    for key in facts:
        without = {name: value for name, value in facts.items() if name != key}
        yield f"no {key}", "summary.json", json.dumps(without).encode()
        for odd in ODD:
            changed = json.dumps({**without, key: "HERE"}).replace('"HERE"', odd)
            yield f"{key} is {odd[:20]}", "summary.json", changed.encode()
    for odd in ODD:
        metrics = json.dumps({**facts, "metrics": {"test_error": "HERE"}}).replace('"HERE"', odd)
        yield f"the error is {odd[:20]}", "summary.json", metrics.encode()
    for path in ("3", "[1]", "/nowhere", '"a\\0b"', '"' + "x" * 5000 + '"'):
        yield f"the genotype is at {path[:20]}", ".hydra/config.yaml", f"genotype: {{path: {path}}}".encode()


def test_damaged_runs_are_one_line_and_cost_no_other_run(tmp_path, capsys):
    write_run(tmp_path / "sound", 0.25, ["lr=7"])
    write_run(tmp_path / "whole", 0.5, ["genotype=file"], genotype="file", path=str(tmp_path / "sound"))
    damages = list(damage(tmp_path / "whole"))
    assert len(damages) > 150
    refused = 0
    for what, file, content in damages:
        broken = tmp_path / "broken"
        shutil.copytree(tmp_path / "whole", broken)
        (broken / file).write_bytes(content)
        for form in ("md", "csv", "latex"):
            main([str(tmp_path / "sound"), str(broken), "--format", form])
            out, err = capsys.readouterr()
            assert "25.0" in out, what
            assert err.count("\n") <= 1, what
        if err:
            with pytest.raises(
                SystemExit, match=r"^error: There must be a finished run of nas-train, got [^\n]*$"
            ):
                main([str(broken)])
            refused += 1
        shutil.rmtree(broken)
    assert 100 < refused < len(damages)


def test_texts_that_a_spreadsheet_would_compute_are_marked(tmp_path, capsys):
    evil = "=HYPERLINK(A1)"
    write_run(tmp_path / "a", 0.1, [evil], dataset="@SUM(1)", genotype="+1+2")
    write_run(tmp_path / "b", 0.2, ["seed=1"], dataset="-2+3")
    main([str(tmp_path / "a"), str(tmp_path / "b"), "--format", "csv"])
    rows = list(csv.reader(capsys.readouterr().out.splitlines()))[1:]
    assert [rows[0][0], rows[0][1], rows[1][1]] == ["'+1+2", "'@SUM(1)", "'-2+3"]
    assert "'=HYPERLINK" in rows[0][2]
    assert all(cell[:1] not in ("=", "+", "-", "@") for row in rows for cell in row)


@pytest.mark.parametrize(
    "wrong",
    [
        {"metrics": {"hypervolume": 1.0}, "seconds": 1.0, "notation": 3},
        {"metrics": {"hypervolume": 1.0}, "seconds": 1.0, "notation": None},
        {"error": "x", "metrics": [1]},
        {"error": "x", "metrics": {"hypervolume": 1.0}},
    ],
    ids=str,
)
def test_a_front_that_is_none_is_left_out_with_a_line(wrong, runs, tmp_path, capsys):
    front = tmp_path / "front"
    front.mkdir()
    (front / "summary.json").write_text(json.dumps({"overrides": [], **wrong}))
    main([*runs, str(front)])
    said = capsys.readouterr()
    assert f"left out: {front} (" in said.err
    assert "ypervolume" not in said.out


def test_a_name_that_no_folder_can_have_is_one_line():
    with pytest.raises(SystemExit, match="error: Arguments must not contain null characters"):
        main(["\0"])


# Several runs on one page.


@pytest.fixture
def runs_of_side_by_side(tmp_path):
    """The second has another learning rate and another cell."""
    first, second = (write_search(tmp_path / name) for name in ("first", "second"))
    (second / ".hydra" / "config.yaml").write_text("seed: 3\nstrategy:\n  lr: 0.5\n")
    facts = json.loads((second / "genotype.json").read_text())
    write_genotypes(
        second / "genotype.json", GENOTYPES[1:], **{k: v for k, v in facts.items() if k != "genotypes"}
    )
    return [first, second]


def test_cells_settings_and_numbers_stand_side_by_side(runs_of_side_by_side, tmp_path, capsys, monkeypatch):
    write_report(runs_of_side_by_side[0])
    monkeypatch.chdir(tmp_path)
    write_pages(["first", "second"])
    assert capsys.readouterr().out.strip() == "comparison.html"
    page = Page(tmp_path / "comparison.html")
    assert list(page.sections) == ["Runs", "Settings that differ", "Architectures", "Curves"]
    assert "Left out" not in page.text
    assert page.sections["Settings that differ"].split() == ["settingfirstsecond", "strategy.lr0.0250.5"]
    assert ("href", "first/report.html") in page.attributes
    assert "62.50 %" in page.sections["Runs"]
    assert {"first: train", "second: train"} <= {text.strip() for text in page.sections["Curves"].split("\n")}
    first, second = (set(dict(genotype.cells)["cell"].edges) for genotype in GENOTYPES)
    marked = [value for key, value in page.attributes if key == "class" and value.endswith(" marked")]
    assert len(marked) == len(first ^ second) > 0


def test_trained_networks_are_dots_of_accuracy_and_cost_that_lead_to_their_cells(
    runs_of_side_by_side, tmp_path
):
    for run, accuracy, params in zip(runs_of_side_by_side, (0.5, 0.75), (2_000_000, 1_000_000), strict=True):
        facts = json.loads((run / "genotype.json").read_text())
        facts |= {"kind": "training", "metrics": {"test_accuracy": accuracy}, "params": params}
        (run / "genotype.json").write_text(json.dumps(facts))
    page = Page(write_side_by_side(runs_of_side_by_side, tmp_path / "page.html"))
    costs = page.sections["Accuracy against cost"]
    assert "Accuracy (%) against parameters" in costs
    assert "Accuracy (%) against multiply-adds" in costs
    links = [value for key, value in page.attributes if key == "href" and value.startswith("#run-")]
    assert sorted(links) == ["#run-0", "#run-0", "#run-1", "#run-1"]
    assert {("id", "run-0"), ("id", "run-1")} <= set(page.attributes)
    charts = _costs({run.name: RunRecord(run) for run in runs_of_side_by_side})["charts"]
    (first, second) = (
        mark for mark in charts[0].marks if isinstance(mark, Group) and mark.link.startswith("#run")
    )
    assert (first.title, second.title) == ("first", "second")
    assert first.marks[0].center[0] > second.marks[0].center[0]  # left and above is better
    assert first.marks[0].center[1] > second.marks[0].center[1]


def test_runs_of_the_same_name_are_told_apart_and_what_they_lack_is_no_error(runs_of_side_by_side, tmp_path):
    other = tmp_path / "elsewhere" / "first"
    other.mkdir(parents=True)
    page = Page(write_side_by_side([runs_of_side_by_side[0], other], tmp_path / "page.html"))
    assert "elsewhere/first" in page.sections["Runs"]
    assert set(page.sections) == {"Runs", "Architectures", "Curves"}


def test_what_is_no_comparison_is_one_line(runs_of_side_by_side, tmp_path, refusal):
    assert "The path must be the folder of a run" in refusal(
        write_side_by_side, [runs_of_side_by_side[0], tmp_path / "no"], tmp_path / "p"
    )
    assert "The runs must differ" in refusal(
        write_side_by_side, [runs_of_side_by_side[0], runs_of_side_by_side[0]], tmp_path / "p"
    )


# The tables at the end of a sweep, from summaries written by hand.


def job(error=None, **metrics):
    return {"overrides": ["lr=1"], "metrics": metrics, "seconds": 1.0} | ({"error": error} if error else {})


def test_a_sweep_without_its_objective_says_so_in_one_line():
    jobs = [job(test_accuracy=0.5), job("out of memory"), job(test_accuracy=0.6)]
    assert list(unknown_objective(jobs, "test_accuracy")) == []
    assert list(unknown_objective(jobs, None)) == []
    (line,) = unknown_objective([job(test_accuracy=0.5), job()], "test_accuracy")
    assert line == "test_accuracy: not measured by job 1"
    (line,) = unknown_objective(jobs, "test_acuracy")
    assert line == (
        "objective=test_acuracy: not among the metrics of job 0, 2 (did you mean 'test_accuracy'?)"
    )
    assert tabulate_jobs([job(test_accuracy=0.5), job()], "test_accuracy").rows[1][2] is None
    of_table = tabulate_jobs([job(), job(**{"table/mine": 91.5, "table/rank": 2})])
    assert of_table.columns[2:4] == ["table/mine", "table/rank"]
    assert [row[2:4] for row in of_table.rows] == [[None, None], ["91.5000", "2"]]
    assert tabulate_jobs([job(my_metric=0.5)], "my_metric").columns[2] == "my_metric"


def test_what_a_run_has_cost_is_an_objective():
    known, unknown = {**job(test_accuracy=0.5), "params": 10}, job(test_accuracy=0.5)
    assert list(unknown_objective([known, known], "params")) == []
    assert list(unknown_objective([known], "seconds")) == []
    unknown["overrides"] = ["objective=params"]
    (line,) = unknown_objective([known, unknown], "params")
    assert line == "objective=params: not among the metrics of job 1"


def test_seeds_are_averaged_where_there_are_several():
    jobs = [{**job(test_accuracy=a), "overrides": [f"seed={s}"]} for s, a in enumerate((0.5, 0.7))]
    (table,) = tabulate_seeds([*jobs, job("broken")])
    (row,) = table.rows
    assert table.columns == ["settings", "seeds", "test_accuracy"]
    assert row == ["–", 2, f"0.6000 ± {statistics.stdev([0.5, 0.7]):.4f}"]
    assert list(tabulate_seeds(jobs[:1])) == []


def test_a_damaged_summary_is_a_job_that_failed(tmp_path):
    for name, text in {
        "0": '{"overrides": [], "metrics": {"test_accuracy": 0.5}, "seconds": 1}',
        "10": "[]",
        "2": "{",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(text)
    (tmp_path / "3").mkdir()  # still running
    jobs = read_jobs(tmp_path)
    assert ["error" in job for job in jobs] == [False, True, True]
    table = tabulate_jobs(jobs)
    assert "The summary must be JSON" in table.rows[1][2]
    assert "The summary must be a mapping" in table.rows[2][2]


def test_a_sweep_ends_in_a_page_of_its_jobs(tmp_path, capsys):
    for number in range(2):
        write_search(tmp_path / str(number))
        facts = {"overrides": [f"seed={number}"], "metrics": {"valid_accuracy": 0.5}, "seconds": 1.0}
        (tmp_path / str(number) / "summary.json").write_text(json.dumps(facts))
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "summary.json").write_text('{"error": "out of memory", "overrides": ["seed=2"]}')
    config = OmegaConf.create({"objective": "valid_accuracy", "hydra": {"sweep": {"dir": str(tmp_path)}}})
    with pytest.raises(SystemExit, match="1"):  # one has failed
        SweepTable().on_multirun_end(config)
    assert capsys.readouterr().out.endswith("report.html\n")
    page = Page(tmp_path / "report.html")
    assert "out of memory" in page.sections["Runs that failed"]
    assert "Architectures" in page.sections


def test_a_sweep_that_has_gone_on_with_another_launcher_has_its_means():
    jobs = [
        {"overrides": [f"seed={seed}", f"launcher={name}"], "metrics": {"test_accuracy": 0.5 + seed / 5}}
        for seed, name in enumerate(("joblib", "dask"))
    ]
    (table,) = tabulate_seeds(jobs)
    assert table.rows == [["–", 2, "0.6000 ± 0.1414"]]
