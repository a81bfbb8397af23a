"""Tables over runs, from summaries written by hand, and from a run of the scripts."""

import json
import statistics

import pytest
import yaml

from nas_lightning.errors import InputError
from nas_lightning.report.comparison import main, read_runs
from nas_lightning.report.sweep import over_seeds, rows, unknown


def write_run(folder, error, overrides, *, seconds=90.0, genotype="darts_v2", path=None, dataset="digits"):
    (folder / ".hydra").mkdir(parents=True)
    metrics = {"test_error": error, "test_accuracy": 1 - error}
    facts = {"dataset": dataset, "params": 3_300_000, "macs": 528_000_000, "seconds": seconds}
    facts |= {"metrics": metrics, "overrides": overrides}
    (folder / "summary.json").write_text(json.dumps(facts))
    config = {"genotype": {"path": path} if path else {"space": "darts"}, "init": None}
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
    (search / "summary.json").write_text(json.dumps({"strategy": "Darts", "seconds": 7260.0, "metrics": {}}))
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
    assert [line.rpartition("/")[2] for line in err.splitlines()] == [
        *("failed (failed)", "search (not of train.py)", "unfinished (not finished)")
    ]


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
    with pytest.raises(InputError, match="expected the folder of a run"):
        read_runs([tmp_path / "nothing"])
    with pytest.raises(SystemExit, match=r"error: expected a finished run of train\.py, got .*not finished"):
        main([str(tmp_path / "unfinished")])


def test_the_same_training_on_other_images_is_another_row(tmp_path):
    for number, name in enumerate(("digits", "cifar10")):
        write_run(tmp_path / name, 0.1 * number, [f"dataset={name}", "seed=0"], dataset=name)
    runs, _ = read_runs([tmp_path / "digits", tmp_path / "cifar10"])
    from nas_lightning.report.comparison import table

    assert [row[1] for row in table(runs).rows] == ["digits", "cifar10"]


def job(error=None, **metrics):
    return {"overrides": ["lr=1"], "metrics": metrics, "seconds": 1.0} | ({"error": error} if error else {})


def test_a_sweep_without_its_objective_says_so_in_one_line():
    jobs = [job(test_accuracy=0.5), job("out of memory"), job(test_accuracy=0.6)]
    assert list(unknown(jobs, "test_accuracy")) == []
    assert list(unknown(jobs, None)) == []
    (line,) = unknown(jobs, "test_acuracy")
    assert line == (
        "objective=test_acuracy: not among the metrics of job 0, 2 (did you mean 'test_accuracy'?)"
    )
    assert rows([job(test_accuracy=0.5), job()], "test_accuracy")[2][2] == "not measured"
    assert rows([job(my_metric=0.5)], "my_metric")[0][2] == "my_metric"


def test_seeds_are_averaged_where_there_are_several():
    jobs = [{**job(test_accuracy=a), "overrides": [f"seed={s}"]} for s, a in enumerate((0.5, 0.7))]
    ((header, row),) = over_seeds([*jobs, job("broken")])
    assert header == ["settings", "seeds", "test_accuracy"]
    assert row == ["–", "2", f"0.6000 ± {statistics.stdev([0.5, 0.7]):.4f}"]
    assert list(over_seeds(jobs[:1])) == []


def test_an_ensemble_of_several_architectures_has_no_single_origin(tmp_path):
    write_run(tmp_path / "a", 0.02, ["ensemble=nes_rs"], genotype=None)
    assert read_runs([str(tmp_path / "a")])[0][0]["architecture"] == "several"
