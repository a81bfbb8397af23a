"""Several runs on one page."""

import json

import pytest

from nas_lightning.genotype import write_genotypes
from nas_lightning.report.page import write_report
from nas_lightning.report.rebuild import main
from nas_lightning.report.side_by_side import write_side_by_side
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
