"""Fixtures of the tests of reproductions: the command in an empty folder, and a table of NAS-Bench-201."""

from pathlib import Path

from tests.studies.conftest import command, table  # noqa: F401

CONF = Path(__file__).parents[2] / "reproductions" / "conf"
WITH_CONF = ("--config-dir", str(CONF))
