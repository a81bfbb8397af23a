"""No serious finding of axe-core, which knows the rules of WCAG, on any kind of page.

    npm install --prefix ~/.cache/nas_lightning axe-core

puts it where this test looks; AXE_CORE names another axe.min.js.
"""

import os
from pathlib import Path

import pytest

from tests.report.kinds import PAGES
from tests.report.test_live_page import OPEN

HOME = Path.home() / ".cache" / "nas_lightning" / "node_modules" / "axe-core" / "axe.min.js"
RUN = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
    .filter((rule) => ["serious", "critical"].includes(rule.impact))
    .flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.html}`)))"""
FAULTY = """<!doctype html><title>Faulty</title><html><body><main><h1>Faulty</h1>
<img src="data:image/png;base64,"><p style="color: #aaa; background: #fff">Hardly to be read</p></main>"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def axe():
    file = Path(os.environ.get("AXE_CORE", HOME))
    if not file.is_file():
        pytest.skip(
            f"no axe-core at {file}: npm install --prefix ~/.cache/nas_lightning axe-core, or AXE_CORE=FILE"
        )
    return file.read_text(encoding="utf-8") + "; 0"


@pytest.mark.parametrize("kind", PAGES)
def test_axe_finds_nothing_serious(tmp_path, browser, axe, kind):
    path = PAGES[kind](tmp_path / "a run")
    for width in (390, 1280):
        for dark in (False, True):
            browser.open(path, width, dark)
            browser.run(OPEN)
            browser.run(axe)
            assert browser.run(RUN) == [], (width, dark)


def test_axe_finds_what_is_wrong(tmp_path, browser, axe):
    (tmp_path / "page.html").write_text(FAULTY)
    browser.open(tmp_path / "page.html")
    browser.run(axe)
    assert {line.partition(":")[0] for line in browser.run(RUN)} >= {"image-alt", "color-contrast"}
