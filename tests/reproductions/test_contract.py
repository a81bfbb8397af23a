"""The studies of the papers keep the contract of studies, found by `--config-dir reproductions/conf`."""

import pytest

from tests.reproductions.conftest import CONF
from tests.studies.contract import Options

STUDIES = sorted(path.stem for path in (CONF / "study").glob("*.yaml"))
OPTIONS = Options([CONF])


@pytest.mark.parametrize("name", STUDIES)
def test_runs_small_and_resumes(name, command, table, tmp_path):
    OPTIONS.check_class(name)
    OPTIONS.check_run(name, command, tmp_path)


def test_help_lists_every_study(command):
    OPTIONS.check_help(STUDIES, command)
