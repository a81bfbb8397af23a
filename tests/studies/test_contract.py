"""The studies of the package, and those of the folders in NAS_CONFIG_DIR, keep the contract of studies."""

import pytest

from nas_lightning.errors import InputError
from nas_lightning.runs.facts import Findings
from nas_lightning.studies.base import Study
from tests.studies.contract import Options
from tests.yamls import OWN, options

STUDIES = options("study")
OPTIONS = Options(OWN)


LONG = {"front", "correlation", "correlation_settings"}  # their parts have tests of their own


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in STUDIES]
)
def test_runs_small_and_resumes(name, command, table, tmp_path):
    OPTIONS.check_run(name, command, tmp_path)


def test_classes_are_studies():
    for name in STUDIES:
        OPTIONS.check_class(name)


def test_help_lists_every_study(command):
    OPTIONS.check_help(STUDIES, command)


class UnknownPart(Study):
    def run(self, space, weather) -> Findings:
        return Findings([])


def test_unknown_part_is_refused():
    with pytest.raises(
        InputError, match=r"A parameter of `run` must be one of space, .*, got 'weather' \(in UnknownPart"
    ):
        UnknownPart.wants()


REFUSED = [
    ((), "Choose a study: study=<one of "),
    (("study=correlatoin",), "Did you mean `correlation`?"),
    (("study=correlation",), "`benchmark.path` needs a value."),
    (("study=correlation", "benchmark=none"), "The study needs a benchmark: pass benchmark="),
    (("study=correlation", "benchmark.path=table.csv", "space=darts"), "needs space=nasbench201"),
    (("study=correlation", "strategy=darts"), "strategy"),
    (("resume=missing",), "No run in `missing`."),
]


def test_mistakes_are_one_line(command, table):
    for arguments, message in REFUSED:
        code, out, err = command("analyze", *arguments)
        assert code == 1, out
        assert err.startswith("error: ")
        assert len(err.splitlines()) == 1
        assert message in err
