"""What every study keeps to, whichever yaml names it: small, it runs, writes and shows, and is resumed."""

import csv
import re
from pathlib import Path

import pytest
from hydra.utils import get_class

from nas_lightning.errors import InputError
from nas_lightning.options import description
from nas_lightning.runs.facts import Findings
from nas_lightning.studies.base import PARTS, Study
from tests.yamls import OWN, composed, file, options
from tests.yamls import small as small_settings

STUDIES = options("study")
TYPED = [word for folder in OWN for word in ("--config-dir", str(folder))]
"""What a command has to be told of a stranger's folder."""


def test_there_are_studies():
    assert len(STUDIES) >= 2


@pytest.fixture(params=STUDIES)
def name(request) -> str:
    return request.param


def small(name: str) -> list[str]:
    """The arguments with which the study takes seconds, which its yaml has in a comment."""
    words = small_settings("study", name)
    assert words, "expected a comment `# Small: …` in the yaml"
    return [*TYPED, f"study={name}", *words]


def contents(run: Path) -> dict[str, bytes]:
    found = {path for part in ("tables", "figures") for path in (run / part).glob("*")}
    return {str(path.relative_to(run)): path.read_bytes() for path in found}


def test_its_class_is_a_study_that_asks_for_parts_that_there_are(name):
    target = get_class(composed("analyze", f"study={name}").study._target_)
    assert issubclass(target, Study)
    assert set(target.wants()) <= set(PARTS)
    assert target.run.__doc__


def test_it_runs_small_and_is_resumed(name, command, table, tmp_path):
    code, out, err = command("analyze", *small(name), "run=here")
    assert (code, err) == (0, "")
    assert out.startswith(f"Study {name}, seed ")
    run = tmp_path / "here"
    tables = sorted((run / "tables").glob("*.md"))
    assert any(path.read_text() in out for path in tables)
    for path in tables:
        assert str(path.relative_to(tmp_path)) in out
        header, *rows = csv.reader(path.with_suffix(".csv").read_text().splitlines())
        assert rows
        assert {len(row) for row in rows} == {len(header)}
        assert len(set(header)) == len(header)
        assert r"\toprule" in path.with_suffix(".tex").read_text()
    for svg in (run / "figures").glob("*.svg"):
        assert svg.with_suffix(".png").is_file()
        assert str(svg.with_suffix(".png").relative_to(tmp_path)) in out
    assert not re.search(r"\bnan\b", "".join(path.read_text() for path in tables), re.I)

    before = contents(run)
    code, out, err = command("analyze", *TYPED, "resume=here")
    assert (code, err) == (0, "")
    assert contents(run) == before
    assert command("analyze", *small(name), "run=here").code == 1  # resume= is for that


def test_help_lists_it(name, command):
    out = command("analyze", *TYPED, "--help").out
    assert re.search(rf"^  {name} +{re.escape(description(file('study', name)))}$", out, re.M)


class Curious(Study):
    def run(self, space, weather) -> Findings:
        return Findings([])


def test_a_part_that_there_is_not_is_refused():
    with pytest.raises(InputError, match=r"expected parts of space, .*, got 'weather' \(in Curious.run\)"):
        Curious.wants()


REFUSED = [
    ((), "expected a study: study=<one of "),
    (("study=correlatoin",), "did you mean 'correlation'?"),
    (("study=correlation",), "expected a value, got 'none' (in benchmark.path)"),
    (("study=correlation", "benchmark=none"), "expected a benchmark, which the study needs: benchmark="),
    (("study=correlation", "benchmark.path=table.csv", "space=darts"), "expected space=nasbench201"),
    (("study=correlation", "strategy=darts"), "strategy"),
    (("resume=missing",), "expected the folder of an earlier run, got 'missing'"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_mistakes_are_one_line(command, table, arguments, message):
    code, out, err = command("analyze", *arguments)
    assert code == 1, out
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
    assert message in err
