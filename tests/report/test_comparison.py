"""Tables over runs, from summaries written by hand, and from a run of the scripts."""

import csv
import json
import shutil
import statistics
import subprocess
import sys

import pytest
import yaml

from nas_lightning.errors import InputError
from nas_lightning.report.comparison import compare, main, read_runs


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
    reasons = ["a run that has not failed", "a run of train.py", "a run that is finished"]
    for line, name, reason in zip(err.splitlines(), ("failed", "search", "unfinished"), reasons, strict=True):
        assert line.startswith("left out: ")
        assert f"/{name} (expected {reason}" in line


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
    with pytest.raises(
        SystemExit, match=r"error: expected a finished run of train\.py, got .*that is finished"
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


def test_the_command_starts_without_torch():
    """What makes a command slow to start is torch and what imports it: none of it is needed here."""
    code = (
        "import sys, nas_lightning.report.comparison;"
        "print(*sorted({'torch', 'pytorch_lightning', 'torchmetrics', 'timm', 'numpy'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


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
                SystemExit, match=r"^error: expected a finished run of train\.py, got [^\n]*$"
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
    with pytest.raises(SystemExit, match="error: expected words without null characters"):
        main(["\0"])
