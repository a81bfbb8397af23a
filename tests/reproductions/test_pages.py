"""The pages with numbers come from their templates and result files; the commands of the papers compose."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from docs.make_pages import Results, page, render, templates
from tests.reproductions.conftest import CONF
from tests.yamls import composed, options

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "reproductions" / "results"
PAPERS = sorted(ROOT.glob("reproductions/*/README.md"))
SEARCHPATH = f"hydra.searchpath=[file://{CONF}]"


def commands(paper):
    """Return the commands of a page, without comments."""
    blocks = re.findall(r"```bash\n(.*?)```", paper.read_text(encoding="utf-8"), re.S)
    return [line for block in blocks for line in block.splitlines() if not line.startswith("#")]


def test_pages_are_up_to_date():
    """`python -m docs.make_pages` writes them."""
    assert len(templates()) >= 9
    assert [str(t) for t in templates() if page(t).read_text(encoding="utf-8") != render(t)] == []


def test_every_paper_has_a_template_and_a_row_in_the_list():
    text = (ROOT / "reproductions" / "README.md").read_text(encoding="utf-8")
    assert len(PAPERS) >= 7
    for paper in PAPERS:
        assert paper.with_name("README.md.jinja") in templates()
        assert f"]({paper.parent.name}/README.md)" in text


def test_rows_are_short():
    for paper in PAPERS:
        rows = [line for line in paper.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
        assert max(map(len, rows)) <= 250


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.parent.name)
def test_commands_compose(paper):
    assert len(commands(paper)) >= 2
    for command in commands(paper):
        check_command(command)


def check_command(command):
    words = shlex.split(command)
    if words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2]) is not None
        return
    script, overrides = words[0].removeprefix("nas-"), [word for word in words[1:] if word != "-m"]
    if overrides[0] == "--config-dir":
        overrides = [*overrides[2:], SEARCHPATH]
    assert composed(script, *overrides)


def test_results_are_of_existing_studies_and_used():
    folders = {folder.name for folder in RESULTS.iterdir()}
    assert folders - {"nasi"} <= {*options("study"), *(path.stem for path in (CONF / "study").glob("*.yaml"))}
    text = "".join(template.read_text(encoding="utf-8") for template in templates())
    assert [
        name for name in sorted(folders) if f'"{name}/' not in text and f"results/{name}/" not in text
    ] == []


def test_a_number_with_its_error(tmp_path):
    path = tmp_path / "kept.csv"
    path.write_text("metric,alone,alone s.e.,with κ\ngrasp,0.25,0.125,1.0\n", encoding="utf-8")
    results = Results(path)
    assert results("grasp", "with κ") == "1.00"
    assert results.pm("grasp", "alone", ".3f") == "0.250 ± 0.125"
    assert results.markdown(["metric", "alone"], ".1f").splitlines()[2] == "| grasp | 0.2 ± 0.1 |"
    with pytest.raises(ValueError, match="0 rows named 'snip'"):
        results("snip", "alone")
