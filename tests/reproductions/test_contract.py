"""The studies of the papers keep the contract of studies, found by `--config-dir reproductions/conf`."""

import pytest

from tests.reproductions.conftest import CONF
from tests.studies.contract import Options

STUDIES = sorted(path.stem for path in (CONF / "study").glob("[!_]*.yaml"))
OPTIONS = Options([CONF])


QUICK = {"coupling", "gates", "path_traces", "skip_convergence", "temperature", "two_layer"}
"""One study for each way of computing: pools, theory, supernets, trainings, and trials."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in STUDIES]
)
def test_runs_small_and_resumes(name, command, table, tmp_path):
    OPTIONS.check_run(name, command, tmp_path)


def test_classes_are_studies():
    for name in STUDIES:
        OPTIONS.check_class(name)


def test_help_lists_every_study(command):
    OPTIONS.check_help(STUDIES, command)
