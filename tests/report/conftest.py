"""A run, and a browser that looks at its page."""

import pytest

from tests.report.browser import CHROMIUM, Browser
from tests.report.searches import write_search


@pytest.fixture
def run(tmp_path):
    return write_search(tmp_path / "outputs" / "search" / "one run")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on the PATH")
    chromium = Browser(tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()
