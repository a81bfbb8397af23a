"""Several runs on one page."""

import json

import pytest

from nas_lightning.genotype import write_genotypes
from nas_lightning.report.comparison import _costs, write_side_by_side
from nas_lightning.report.comparison import main_rebuild as main
from nas_lightning.report.page import write_report
from nas_lightning.report.record import RunRecord
from tests.report.reading import Page
from tests.report.searches import GENOTYPES, write_search


@pytest.fixture
def runs(tmp_path):
    """The second has another learning rate and another cell."""
    first, second = (write_search(tmp_path / name) for name in ("first", "second"))
    (second / ".hydra" / "config.yaml").write_text("seed: 3\nstrategy:\n  lr: 0.5\n")
    facts = json.loads((second / "genotype.json").read_text())
    write_genotypes(
        second / "genotype.json", GENOTYPES[1:], **{k: v for k, v in facts.items() if k != "genotypes"}
    )
    return [first, second]


def test_cells_settings_and_numbers_stand_side_by_side(runs, tmp_path, capsys, monkeypatch):
    write_report(runs[0])
    monkeypatch.chdir(tmp_path)
    main(["first", "second"])
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


def test_trained_networks_are_dots_of_accuracy_and_cost_that_lead_to_their_cells(runs, tmp_path):
    for run, accuracy, params in zip(runs, (0.5, 0.75), (2_000_000, 1_000_000), strict=True):
        facts = json.loads((run / "genotype.json").read_text())
        facts |= {"kind": "training", "metrics": {"test_accuracy": accuracy}, "params": params}
        (run / "genotype.json").write_text(json.dumps(facts))
    page = Page(write_side_by_side(runs, tmp_path / "page.html"))
    costs = page.sections["Accuracy against cost"]
    assert "Accuracy (%) against parameters" in costs
    assert "Accuracy (%) against multiply-adds" in costs
    links = [value for key, value in page.attributes if key == "href" and value.startswith("#run-")]
    assert sorted(links) == ["#run-0", "#run-0", "#run-1", "#run-1"]
    assert {("id", "run-0"), ("id", "run-1")} <= set(page.attributes)
    (dots,) = [
        [(dot.name, dot.x > 150, dot.y < 150) for dot in scatter.dots]
        for scatter in _costs({run.name: RunRecord(run) for run in runs})["scatters"][:1]
    ]
    assert dots == [
        ("first", True, False),
        ("second", False, True),
    ]  # left and above is better


def test_runs_of_the_same_name_are_told_apart_and_what_they_lack_is_no_error(runs, tmp_path):
    other = tmp_path / "elsewhere" / "first"
    other.mkdir(parents=True)
    page = Page(write_side_by_side([runs[0], other], tmp_path / "page.html"))
    assert "elsewhere/first" in page.sections["Runs"]
    assert set(page.sections) == {"Runs", "Architectures", "Curves"}


def test_what_is_no_comparison_is_one_line(runs, tmp_path, refusal):
    assert "expected a run's folder" in refusal(
        write_side_by_side, [runs[0], tmp_path / "no"], tmp_path / "p"
    )
    assert "expected different runs" in refusal(write_side_by_side, [runs[0], runs[0]], tmp_path / "p")
