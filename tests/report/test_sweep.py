"""The tables at the end of a sweep, from summaries written by hand."""

import json
import statistics

import pytest
from omegaconf import OmegaConf

from nas_lightning.report.comparison import (
    SweepTable,
    read_jobs,
    tabulate_jobs,
    tabulate_seeds,
    unknown_objective,
)
from tests.report.reading import Page
from tests.report.searches import write_search


def job(error=None, **metrics):
    return {"overrides": ["lr=1"], "metrics": metrics, "seconds": 1.0} | ({"error": error} if error else {})


def test_a_sweep_without_its_objective_says_so_in_one_line():
    jobs = [job(test_accuracy=0.5), job("out of memory"), job(test_accuracy=0.6)]
    assert list(unknown_objective(jobs, "test_accuracy")) == []
    assert list(unknown_objective(jobs, None)) == []
    (line,) = unknown_objective(jobs, "test_acuracy")
    assert line == (
        "objective=test_acuracy: not among the metrics of job 0, 2 (did you mean 'test_accuracy'?)"
    )
    assert tabulate_jobs([job(test_accuracy=0.5), job()], "test_accuracy").rows[1][2] == "not measured"
    assert tabulate_jobs([job(my_metric=0.5)], "my_metric").columns[2] == "my_metric"


def test_what_a_run_has_cost_is_an_objective():
    known, unknown = {**job(test_accuracy=0.5), "params": 10}, job(test_accuracy=0.5)
    assert list(unknown_objective([known, known], "params")) == []
    assert list(unknown_objective([known], "seconds")) == []
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
    assert "expected a summary in JSON" in table.rows[1][2]
    assert "expected a summary of names and values" in table.rows[2][2]


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
