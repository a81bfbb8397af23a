"""Pages in a browser: they fit every screen, work by keyboard, and are accessible."""

import json
import os
from pathlib import Path

import pytest

from nas_lightning.report.page import write_report
from tests.report.kinds import EVIL, PAGES
from tests.report.searches import GENOTYPES

# The page in a browser: it fits every screen, moves by keyboard, and stands without its script.

OPEN = """for (const folded of document.querySelectorAll("details")) folded.open = true;
document.querySelector(".edge[tabindex]")?.focus()"""

SMALLEST = """Math.min(...[...document.querySelectorAll("body *")]
    .filter((e) => e.getClientRects().length)
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()))
    .map((e) => {
        const svg = e.closest("svg");
        const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
        return parseFloat(getComputedStyle(e).fontSize) * scale;
    }))"""


@pytest.mark.parametrize("kind", PAGES)
def test_pages_fit_phones_and_screens_in_both_themes(tmp_path, browser, kind):
    path = PAGES[kind](tmp_path / "a run")
    for width in (390, 1280):
        for dark in (False, True):
            browser.open(path, width, dark)
            browser.run(OPEN)
            assert browser.run("document.documentElement.scrollWidth") <= width
            assert browser.run(SMALLEST) >= 10.99
            background = browser.run("getComputedStyle(document.body).backgroundColor")
            assert (background == "rgb(21, 24, 28)") == dark
    assert browser.errors == []


@pytest.mark.parametrize("kind", PAGES)
def test_names_of_others_are_text_on_every_page(tmp_path, browser, kind):
    path = PAGES[kind](tmp_path / "<img src=x onerror='window.evil = 1'>", EVIL)
    browser.open(path)
    browser.run(OPEN)
    assert browser.run("window.evil") is None
    assert browser.run("document.documentElement.textContent").count(EVIL) > 1
    assert browser.run("document.querySelectorAll('script').length") <= 2  # the page's own, and its data
    assert browser.errors == []


def test_the_keyboard_moves_through_the_epochs_and_the_edges(run, browser):
    browser.open(write_report(run))
    output = "document.querySelector('.player output').textContent"
    edges = "[...document.querySelectorAll('.cells .edge title')].map((e) => e.textContent)"
    labels = {}
    browser.run("document.querySelector('.player input').focus()")
    for number in (2, 1, 0):
        browser.press("ArrowLeft", 37)
        assert browser.run(output).startswith(f"{number + 1} of 3")
        labels[number] = browser.run(edges)
    assert labels[0] == labels[2] != labels[1]
    browser.press("ArrowRight", 39)
    first, second = (set(dict(genotype.cells)["cell"].edges) for genotype in GENOTYPES)
    new = len(second - first)
    assert browser.run(output) == f"2 of 3, {new} edge{'s' * (new > 1)} changed"
    assert browser.run("document.querySelectorAll('.cells .marked').length") == new
    browser.run("document.querySelector('.player label').focus()")
    for _ in range(10):
        browser.press("Tab", 9)
        if browser.run("document.activeElement.classList.contains('edge')"):
            break
    assert browser.run("document.activeElement.dataset.row") == "cell/0"
    cells = "(row) => [...row.cells].map((cell) => cell.textContent)"
    rows = f"[...document.querySelectorAll('.edge-weights tbody tr')].map({cells})"
    assert browser.run(rows) == [["1", "skip", "0.750", "75.0 %"], ["2", "none", "0.250", "25.0 %"]]
    assert browser.run("document.querySelectorAll('.edge-weights svg .now').length") == 1
    assert browser.errors == []


def test_play_goes_to_the_end_and_stops(run, browser):
    browser.open(write_report(run))
    browser.run("document.querySelector('.play').click()")
    assert browser.run("document.querySelector('.play').textContent") == "Pause"
    over = "document.querySelector('.play').textContent === 'Play'"
    ended = f"new Promise((done) => setInterval(() => {over} && done(1), 50))"
    assert browser.run(ended) == 1
    assert browser.run("document.querySelector('.player output').textContent").startswith("result")


def test_without_its_script_the_page_has_the_cell_and_all_tables(run, browser):
    browser.open(write_report(run), scripts=False)
    browser("Emulation.setScriptExecutionDisabled", value=False)  # the script of the page has not run
    assert browser.run("document.querySelectorAll('.cells svg.cell').length") == 1
    assert browser.run("getComputedStyle(document.querySelector('.player')).display") == "none"
    assert browser.run("document.querySelectorAll('.charts.small .chart').length") == 2
    assert browser.run("document.querySelectorAll('table td').length") > 2


def test_a_press_on_copy_copies(run, browser):
    browser.open(write_report(run))
    browser("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    pressed = """(async () => {
        const block = [...document.querySelectorAll("pre.copy")].pop();
        let copied = "";
        navigator.clipboard.writeText = async (text) => { copied = text; };
        block.nextElementSibling.click();
        await new Promise((done) => setTimeout(done, 50));
        return copied === block.textContent && block.nextElementSibling.textContent;
    })()"""
    assert browser.run(pressed) == "Copied"


def test_fifty_epochs_are_small(run, browser):
    entries = []
    for epoch in range(50):
        rows = {
            "edges": [[s, t] for t in range(2, 6) for s in range(t)],
            "ops": [f"op_{n}" for n in range(8)],
        }
        weights = {**rows, "scores": [[(epoch + n) / 60 for n in range(8)]] * 14}
        groups = {"normal": weights, "reduce": weights}
        entries.append({"epoch": epoch, "genotypes": [GENOTYPES[epoch % 2].to_dict()], "groups": groups})
    (run / "history.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    path = write_report(run)
    assert path.stat().st_size < 1_000_000
    browser.open(path)
    assert browser.run("document.querySelectorAll('template[data-cell]').length") == 2
    assert browser.errors == []


def test_a_press_on_a_head_sorts_the_table(tmp_path, browser):
    browser.open(PAGES["search_without_training"](tmp_path / "run"))
    head = "document.querySelectorAll('table.sort th button')[1]"
    column = (
        "[...document.querySelectorAll('table.sort tbody tr')].map((r) => parseFloat(r.cells[1].textContent))"
    )
    for descending in (True, False):
        browser.run(f"{head}.click()")
        values = browser.run(column)
        assert values == sorted(values, reverse=descending)
        assert len(values) == 40


# No serious finding of axe-core, which knows the rules of WCAG, on any kind of page.

HOME = Path.home() / ".cache" / "nas_lightning" / "node_modules" / "axe-core" / "axe.min.js"
RUN = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
    .filter((rule) => ["serious", "critical"].includes(rule.impact))
    .flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.html}`)))"""
FAULTY = """<!doctype html><title>Faulty</title><html><body><main><h1>Faulty</h1>
<img src="data:image/png;base64,"><p style="color: #aaa; background: #fff">Hardly to be read</p></main>"""


@pytest.fixture(scope="module")
def axe():
    file = Path(os.environ.get("AXE_CORE", HOME))
    if not file.is_file():
        pytest.skip(
            f"no axe-core at {file}: npm install --prefix ~/.cache/nas_lightning axe-core, or AXE_CORE=FILE"
        )
    return file.read_text(encoding="utf-8") + "; 0"


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAGES)
def test_axe_finds_nothing_serious(tmp_path, browser, axe, kind):
    path = PAGES[kind](tmp_path / "a run")
    for width in (390, 1280):
        for dark in (False, True):
            browser.open(path, width, dark)
            browser.run(OPEN)
            browser.run(axe)
            assert browser.run(RUN) == [], (width, dark)


@pytest.mark.slow
def test_axe_finds_what_is_wrong(tmp_path, browser, axe):
    (tmp_path / "page.html").write_text(FAULTY)
    browser.open(tmp_path / "page.html")
    browser.run(axe)
    assert {line.partition(":")[0] for line in browser.run(RUN)} >= {"image-alt", "color-contrast"}
