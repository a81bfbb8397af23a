"""Pages of runs: sections, links between runs, and pages of running searches."""

import base64
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from markupsafe import escape
from matplotlib.figure import Figure

from nas_lightning.cli.report import main
from nas_lightning.errors import InputError
from nas_lightning.genotype import FILE_NAME, write_genotypes
from nas_lightning.plots.style import INK
from nas_lightning.report.page import (
    FOLLOWERS,
    LivePage,
    link_sources,
    read_relatives,
    refresh_all,
    write_report,
)
from nas_lightning.report.record import RunRecord
from nas_lightning.report.sections import read_curves, read_results
from nas_lightning.runs.facts import Findings
from nas_lightning.runs.programs import program
from nas_lightning.runs.trackers import store_address
from nas_lightning.spaces import DartsSpace
from nas_lightning.spaces.topology import topology_text
from nas_lightning.utils.tables import Table
from tests.conftest import REPOSITORY
from tests.report.kinds import PAGES
from tests.report.reading import Page
from tests.report.searches import GENOTYPES, SPACE, write_search

# The page of a run: whole, in pieces, broken and hostile, read back with an HTML parser.

EVERYTHING = ["genotype.json", "metrics.csv", "history.jsonl", ".hydra"]


def remove(folder, name):
    path = folder / name
    if path.is_dir():
        for inner in path.iterdir():
            inner.unlink()
        path.rmdir()
    else:
        path.unlink()


def test_a_whole_run(run):
    following = {"Train it": "python train.py genotype=file", "Again": "python search.py seed=4"}
    path = write_report(run, seconds=3671.4, following=following)
    assert path == run / "report.html"
    page = Page(path)
    for shown in (
        "Darts: nasbench201 on fake",
        "62.50 %",
        "1,234,567",
        "7,654,321",
        "1 h 1 min",
        "9.9",
        "lr: 0.025",
    ):
        assert shown in page.text
    assert list(page.sections) == [
        "Architecture",
        "Next commands",
        "Results",
        "Curves",
        "Weights over time",
        "Configuration",
    ]
    assert "Left out" not in page.text
    charts = 1 + 1 + 2  # a cell without a title, a panel each of losses and accuracies, a panel an edge
    assert page.tags.count("figure") == 1 + charts
    assert page.tags.count("template") == 2  # different cells
    assert SPACE.notation(GENOTYPES[0]) in page.blocks
    assert topology_text(GENOTYPES[0]) in page.sections["Architecture"]
    here = f"cd {shlex.quote(str(Path.cwd()))} && "
    assert [block for block in page.blocks if block.startswith("cd")] == [
        here + c for c in following.values()
    ]
    assert "Train it" in page.sections["Next commands"]
    figures = {"genotype", "curves", "weights_cell"}
    assert {file.name for file in (run / "figures").iterdir()} == {
        f"{n}.{s}" for n in figures for s in ("svg", "png", "pdf")
    }


def test_the_page_needs_nothing_else_and_its_references_hold(run):
    figure = Figure()
    figure.subplots().plot([0, 1])
    page = Page(write_report(run, findings=Findings([], {"one": figure, "two": figure})))
    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    names = Counter(value for key, value in page.attributes if key == "id")
    assert max(names.values()) == 1
    used = [value for key, value in page.attributes if key in ("href", "xlink:href", "src")]
    used += [value[4:-1] for key, value in page.attributes if value and value.startswith("url(")]
    assert used
    assert {value[0] for value in used} == {"#"}
    assert {value[1:] for value in used} <= set(names)


def test_only_the_script_of_the_page_may_run(run):
    """The policy names the digest of the one script, computed here from the page as it is."""
    text = write_report(run).read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text


def test_drawings_that_lie_in_the_folder_do_not_reach_the_page(run):
    write_report(run)
    evil = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script><text>intruder</text></svg>'
    for file in (run / "figures").glob("*.svg"):
        file.write_text(evil)
        os.utime(file, (2**31, 2**31))  # newer than anything
    text = write_report(run).read_text(encoding="utf-8")
    assert "alert(1)" not in text
    assert "intruder" not in text


def test_drawings_are_text_in_the_colors_of_the_page(run):
    figure = Figure()
    axes = figure.subplots()
    axes.set_title("A <title> & more", color=INK)
    text = write_report(run, findings=Findings([], {"plot": figure})).read_text(encoding="utf-8")
    assert "A &lt;title&gt; &amp; more</text>" in text
    assert "fill: var(--ink)" in text
    assert INK not in text.partition("</style>")[2]


@pytest.mark.parametrize("name", EVERYTHING)
def test_what_is_missing_is_named_and_the_rest_is_there(run, name):
    remove(run, name)
    page = Page(write_report(run))
    missing = {
        "genotype.json": set(),  # history.jsonl has the last epoch's
        "metrics.csv": {"Curves"},
        "history.jsonl": {"Weights over time"},
        ".hydra": {"Configuration"},
    }[name]
    assert {title for title, text in page.sections.items() if "Left out" in text} == missing


def test_an_interrupted_search_says_how_to_go_on(run):
    remove(run, "genotype.json")
    page = Page(write_report(run))
    assert "darts: nasbench201 on fake (not finished)" in page.text
    assert "The current state: the run has not finished." in page.sections["Architecture"]
    assert shlex.join([*program("search"), f'resume="{run}"']) in page.blocks
    assert "1" in page.sections["Results"]  # from the metrics file


def test_an_empty_folder(tmp_path):
    page = Page(write_report(tmp_path))
    assert page.text.count("Left out") == 4


def test_a_training_run_has_no_weights_over_time(run):
    remove(run, "history.jsonl")
    facts = json.loads((run / "genotype.json").read_text())
    del facts["strategy"]
    (run / "genotype.json").write_text(json.dumps(facts))
    (run / ".hydra" / "hydra.yaml").write_text('{"hydra": {"runtime": {"choices": {"dataset": "fake"}}}}')
    page = Page(write_report(run))
    assert "Weights over time" not in page.sections
    assert "Training: nasbench201 on fake" in page.text


def test_a_training_says_its_classes_its_best_epoch_and_what_chance_is(tmp_path):
    page = Page(PAGES["training"](tmp_path / "run"))  # of 8 classes; valid accuracies of 0, 0.25 and 0.5
    assert "3 of 3, 50.00 %" in page.sections["Results"]
    assert "classes8" in page.text.replace("\n", "")
    assert "chance" in page.sections["Curves"]
    loss, accuracy = (chart.label for chart in read_curves(RunRecord(tmp_path / "run"))["charts"])
    assert loss == "Loss over epochs: train"
    assert accuracy == "Accuracy over epochs: valid, chance"


def test_a_training_of_another_task_shows_its_scores(run):
    (run / "history.jsonl").unlink()
    (run / ".hydra" / "config.yaml").write_text('{"task": {"score": "r2"}}')
    rows = ["step,epoch,train_loss,valid_loss,valid_r2,valid_mae"]
    rows += [f"{8 * e},{e},2.0,{1.5 - e},{r2},{3 - e}" for e, r2 in enumerate((-0.5, 0.75, 0.25))]
    (run / "metrics.csv").write_text("\n".join([*rows, ""]))
    metrics = {"test_loss": 7.2, "test_r2": 0.95, "lr": 0.1}
    facts = {"kind": "training", "space": "nasbench201", "dataset": "ages", "metrics": metrics}
    write_genotypes(run / "genotype.json", GENOTYPES[:1], **facts, notation=[SPACE.notation(GENOTYPES[0])])
    record = RunRecord(run)
    labels = [chart.label for chart in read_curves(record)["charts"]]
    assert [label.partition(" ")[0] for label in labels] == ["Loss", "R2", "Mae"]
    results = read_results(record)
    assert results["first"] == {"test_loss": "7.2", "test_r2": "0.95", "best epoch": "2 of 3, 0.75"}
    assert results["rest"] == {"lr": "0.1"}


def test_an_ensemble_shows_every_member(run):
    notation = [SPACE.notation(genotype) for genotype in GENOTYPES]
    write_genotypes(run / "genotype.json", GENOTYPES, strategy="Nesbs", seed=0, notation=notation)
    page = Page(write_report(run))
    assert next(iter(page.sections)) == "Results"  # of all together
    assert "Member 2" in page.text
    assert (run / "figures" / "genotype_2.svg").is_file()
    assert page.sections["Architecture"].count("description") == 2


@pytest.mark.parametrize("name", ["genotype.json", "metrics.csv", "history.jsonl"])
@pytest.mark.parametrize("content", ["", "{", "nonsense,\n1,2\n"])
def test_broken_files_cost_their_own_section_only(run, name, content):
    (run / name).write_text(content)
    page = Page(write_report(run))
    sound = {"genotype.json": "Curves", "metrics.csv": "Architecture", "history.jsonl": "Curves"}[name]
    assert "Left out" not in page.sections[sound]
    broken = {"genotype.json": "Architecture", "metrics.csv": "Curves", "history.jsonl": "Weights over time"}[
        name
    ]
    assert "Left out" in page.sections[broken]


def test_everything_is_escaped(run):
    evil = "</pre><script>alert('x')</script>&amp;"
    (run / ".hydra" / "config.yaml").write_text(f'name: "{evil}"\n')
    (run / ".hydra" / "overrides.yaml").write_text(json.dumps([f"name={evil}"]))
    facts = dict.fromkeys(("strategy", "space", "dataset"), evil)
    facts |= {"versions": {evil: evil}, "metrics": {evil: 1.0, "x_loss": 2.0}, "notation": [evil], "seed": 0}
    write_genotypes(run / "genotype.json", GENOTYPES[:1], **facts)
    table = Table("t", evil, [evil], [[evil]], evil)
    page = Page(write_report(run, following={evil: evil}, findings=Findings([table])))
    assert page.tags.count("script") == 2  # the page's own, and its data
    assert page.text.count(evil) >= 12
    assert str(escape(evil)) in (run / "report.html").read_text()


def test_weights_are_drawn_anew_only_after_the_history_changed(run):
    write_report(run)
    drawn = run / "figures" / "weights_cell.svg"
    before = drawn.stat().st_mtime_ns
    write_report(run)
    assert drawn.stat().st_mtime_ns == before
    history = run / "history.jsonl"
    history.write_text("".join(history.read_text().splitlines(keepends=True)[:2]))
    write_report(run)
    assert drawn.stat().st_mtime_ns > before


def test_the_deepest_published_space_fits(run):
    space = DartsSpace()
    genotype = space.sample(torch.Generator().manual_seed(0))
    write_genotypes(run / "genotype.json", [genotype], notation=[space.notation(genotype)])
    assert space.notation(genotype) in Page(write_report(run)).blocks


def test_no_folder(tmp_path, refusal):
    assert "The path must be the folder of a run" in refusal(write_report, tmp_path / "absent")


def test_findings_stand_in_place_of_curves(run):
    remove(run, "metrics.csv")
    remove(run, "history.jsonl")
    facts = json.loads((run / "genotype.json").read_text())
    del facts["strategy"]
    (run / "genotype.json").write_text(json.dumps(facts))
    figure = Figure()
    figure.subplots().plot([0, 1])
    table = Table(
        "members", "How they differ", ["", "error"], [["first", 0.12345], ["second", None]], "A note"
    )
    findings = Findings([table], {"agreement": figure})
    findings.write(run)
    page = Page(write_report(run, findings=findings))
    assert "Left out" not in page.text
    assert "Curves" not in page.sections
    for part in ("How they differ", "first", "0.1235", "A note"):
        assert part in page.sections["Tables and figures"]
    assert page.tags.count("figure") == 2  # the cell, and the figure


def luminance(color):
    """WCAG 2.2, relative luminance."""
    digits = color.lstrip("#")
    digits = "".join(2 * d for d in digits) if len(digits) == 3 else digits
    channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_contrasts_by_the_formula_of_the_standard(run):
    assert contrast("#000", "#fff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    style = write_report(run).read_text(encoding="utf-8").partition("</style>")[0]
    light, dark = {}, {}
    for theme, text in ((light, re.sub(r"@media.*?\}\s*\}", "", style, flags=re.S)), (dark, style)):
        theme.update(re.findall(r"--([\w-]+): (#\w+)", text))
    for theme in (light, dark):
        backgrounds = [theme[name] for name in ("page", "card", "code", "node")]
        for name, color in theme.items():
            if name in ("ink", "soft"):
                assert min(contrast(color, theme[b]) for b in ("page", "card", "code")) >= 4.5, name
            if name.startswith(("kind-", "series-")) or name == "focus":
                assert contrast(color, theme["card"]) >= 3, name
        assert min(contrast(theme["ink"], color) for color in backgrounds) >= 7
    assert light["card"] != dark["card"]
    assert len(light) == len(dark) >= 20


def study(folder):
    """The folder of a study that has begun."""
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text("space: {}\nstudy: {}\n")
    hydra = {"job": {"config_name": "analyze"}, "runtime": {"choices": {"study": "sizes"}}}
    (folder / ".hydra" / "hydra.yaml").write_text(json.dumps({"hydra": hydra}))
    return folder


def test_a_study_has_a_page_of_its_tables_also_when_it_is_made_anew(tmp_path, capsys):
    folder = study(tmp_path / "study")
    figure = Figure()
    figure.subplots().plot([0, 1])
    table = Table("cells", "Sizes of cells", ["cell", "size"], [["a", 123456], ["b", 0.123456]], "A note")
    findings = Findings([table], {"sizes": figure})
    findings.write(folder)
    (folder / "summary.json").write_text(json.dumps({"study": "sizes", "seconds": 61.0, "overrides": []}))
    first = Page(write_report(folder, findings=findings))
    main([str(folder)])
    assert capsys.readouterr().out.strip().endswith("report.html")
    second = Page(folder / "report.html")
    for page in (first, second):
        assert list(page.sections) == ["Tables and figures", "Configuration"]
        assert page.text.lstrip().startswith("Study sizes")
        assert "not finished" not in page.text
        tables = page.sections["Tables and figures"]
        assert all(text in tables for text in ("Sizes of cells", "123,456", "0.1235"))
    assert first.tags.count("svg") == second.tags.count("img") == 1
    assert "1 min 1 s" in second.text


def test_a_study_that_was_stopped_says_how_to_go_on(tmp_path):
    folder = study(tmp_path / "study")
    page = Page(write_report(folder))
    assert "Study sizes (not finished)" in page.text
    assert page.blocks[0] == shlex.join([*program("analyze"), f"resume={folder}"])


def test_a_search_without_training_shows_its_pool_and_no_curves(run):
    chosen = SPACE.notation(GENOTYPES[0])
    rows = [f"{chosen},3.5,2", "a,1e30,1", "b,-inf,nan", "c,0.5,7"]
    (run / "pool.csv").write_text("arch,synflow,jacov\n" + "\n".join(rows) + "\ncut off,1")
    (run / "history.jsonl").write_text(json.dumps({"epoch": 0, "genotypes": [], "groups": {}}) + "\n")
    page = Page(write_report(run))
    assert "Left out" not in page.text
    assert not {"Curves", "Weights over time"} & set(page.sections)
    pool = page.sections["Pool"]
    assert "jacov against synflow" in pool
    assert all(cell in pool for cell in ("1e+30", "-inf", "nan", "3.5"))
    assert "cut off" not in pool
    assert page.sections["Pool"].count("a") >= 1


def test_a_search_that_only_scores_has_no_curves_where_its_pool_is_in_no_file(run):
    facts = json.loads((run / "genotype.json").read_text())
    facts["metrics"] = {"num_scored": 40, "self_correlation/zen": 0.9}
    (run / "genotype.json").write_text(json.dumps(facts))
    (run / "metrics.csv").write_text("step,epoch,scored\n0,0,40\n")
    page = Page(write_report(run))
    assert "Curves" not in page.sections
    assert "Left out" not in page.text


def test_a_search_of_no_epochs_has_neither_curves_nor_weights(run):
    for name in ("metrics.csv", "history.jsonl"):
        remove(run, name)
    (run / ".hydra" / "config.yaml").write_text("strategy: {}\ntrainer: {max_epochs: 0}\n")
    page = Page(write_report(run))
    assert "Left out" not in page.text
    assert not {"Curves", "Weights over time"} & set(page.sections)


def test_a_page_made_anew_has_commands_that_work_from_any_folder(run, capsys, monkeypatch):
    (run / "summary.json").write_text(json.dumps({"seconds": 62.0}))
    monkeypatch.chdir(run.parent)
    main([run.name])
    page = Page(run / "report.html")
    words = ["genotype=file", f'genotype.path="{run}"', "dataset=fake"]
    assert shlex.join([*program("train"), *words]) in page.blocks
    assert "1 min 2 s" in page.text
    with pytest.raises(SystemExit, match="error: The path must be the folder of a run, got 'nothing'"):
        main(["nothing"])


@pytest.mark.parametrize(
    "front",
    [
        "",
        "index,params\n",
        "index,knee,genotype,params,latency_ms\n0,,g,1,2\n",
        "index,knee,genotype,params,latency_ms\n0,knee,g,nan,2\n",
        "index,knee,genotype,params,latency_ms\n0,knee,g,many,2\n",
        "index,knee,genotype,others\n0,knee,g,1\n",
        "index,knee,genotype\n0,knee,g\n",
        "index,knee,genotype,params,latency_ms\n0,knee,g,1\n",
    ],
)
def test_a_damaged_front_costs_its_own_section_only(tmp_path, front):
    whole = PAGES["front"](tmp_path / "a").read_text()
    assert "The front" in whole
    (tmp_path / "a" / "front.csv").write_text(front)
    page = write_report(tmp_path / "a").read_text()
    assert "Cannot read the tables of the front" in page
    assert "The front" not in page
    assert "valid_accuracy" in page


def test_a_front_has_its_page_though_networks_were_dead(tmp_path):
    PAGES["front"](tmp_path / "a")
    with (tmp_path / "a" / "candidates.csv").open("a") as file:
        file.write("g,inf,inf\n")
    assert "The front" in write_report(tmp_path / "a").read_text()


@pytest.mark.parametrize("text", ["[]", "{}", '{"metrics": 3, "versions": [1], "seconds": NaN}'])
def test_facts_of_the_wrong_type_do_not_end_the_page(run, text):
    facts = json.loads((run / "genotype.json").read_text())
    odd = json.loads(text)
    (run / "genotype.json").write_text(json.dumps({**facts, **odd} if isinstance(odd, dict) else odd))
    (run / ".hydra" / "hydra.yaml").write_text("- a list")
    (run / ".hydra" / "config.yaml").write_bytes(b"\xff: {")
    assert "Configuration" in Page(write_report(run)).sections


# Links between the pages of runs, there and back, and what to type in any folder.


def training_of(search, folder, **config):
    """A finished training that took its architecture from a search, by a path from where it was typed."""
    run = write_search(folder)
    settings = {"genotype": {"path": search.name, "index": 0}, **config}
    (run / ".hydra" / "config.yaml").write_text(json.dumps(settings))
    hydra = json.loads((run / ".hydra" / "hydra.yaml").read_text())["hydra"]
    runtime = {**hydra["runtime"], "cwd": str(search.parent)}
    (run / ".hydra" / "hydra.yaml").write_text(json.dumps({"hydra": {**hydra, "runtime": runtime}}))
    write_genotypes(run / "genotype.json", GENOTYPES[:1], kind="training", metrics={"test_accuracy": 0.5})
    return run


def links(run):
    return [(one.what, one.name) for one in read_relatives(RunRecord(run))]


def test_a_search_and_its_training_lead_to_each_other(run, tmp_path, monkeypatch):
    training = training_of(run, tmp_path / "a place" / "50 % #1")
    page, words = write_report(run, following={"Train it": "python train.py"}), "&& python train.py"
    write_report(training)
    assert links(training) == [("from the search", "one run")]
    link_sources(training)
    link_sources(training)  # a line twice is a link once
    assert links(run) == [("then the training", "50 % #1")]
    text = page.read_text(encoding="utf-8")
    assert 'href="../../../a%20place/50%20%25%20%231/report.html"' in text
    assert words in "".join(Page(page).blocks)  # the rest of the page is as it was
    (run / "report.html").unlink()
    assert links(training) == []
    link_sources(training)
    assert not (run / "report.html").exists()


def test_jobs_lead_to_their_sweep_and_members_to_their_ensemble(run, tmp_path):
    sweep = tmp_path / "sweep"
    for name in ("0", "1/member_1"):
        write_report(write_search(sweep / name))
    assert links(sweep / "0") == []
    (sweep / "multirun.yaml").write_text("")
    (sweep / "report.html").write_text("")
    write_report(write_search(sweep / "1"))
    refresh_all([sweep / "0", sweep / "1" / "member_1", sweep / "gone"])
    assert links(sweep / "0") == [("part of", "sweep")]
    assert links(sweep / "1" / "member_1") == [("part of", "sweep/1"), ("part of", "sweep")]
    assert links(sweep / "1") == [("part of", "sweep"), ("member", "1/member_1")]
    assert "../report.html" in (sweep / "0" / "report.html").read_text()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://wandb.ai/a/b/runs/c\n", ["Weights & Biases"]),
        ("javascript:alert(1)", []),
        ("https://a b", []),
        ("\udcff", []),
    ],
)
def test_the_run_at_weights_and_biases_is_linked_where_its_address_is_known(run, address, expected):
    store_address(run, "wandb", None)  # offline
    assert not (run / "wandb").exists()
    store_address(run, "wandb", "https://wandb.ai")
    (run / "wandb" / "url").write_text(address, errors="surrogateescape")
    assert [one.name for one in read_relatives(RunRecord(run))] == expected


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "${oc.env:HOME}", "/", ".", 3, [None, {"a": 1}], {}])
def test_settings_of_others_lead_nowhere_and_end_nothing(run, tmp_path, path):
    training = training_of(run, tmp_path / "training", pretrained=path, ensemble={"runs": path}, study=path)
    (training / FOLLOWERS).write_text("a\0b\n\n/etc\n" + "y" * 5000 + "\n../nowhere\n")
    write_report(training)
    link_sources(training)
    assert links(training) == []


def test_a_run_that_is_not_ones_own_is_left_alone(run, tmp_path):
    training = training_of(run, tmp_path / "training")
    write_report(run)
    before = (run / "report.html").read_text()
    (run / FOLLOWERS).symlink_to(tmp_path / "elsewhere")
    link_sources(training)
    assert (run / "report.html").read_text() == before
    assert not (tmp_path / "elsewhere").exists()


def test_a_pipe_in_place_of_a_file_is_not_waited_for(run, tmp_path):
    training = training_of(run, tmp_path / "training")
    os.mkfifo(run / FOLLOWERS)
    (run / "wandb").mkdir()
    os.mkfifo(run / "wandb" / "url")
    link_sources(training)
    with pytest.raises(InputError, match="The folder must not have pipes or devices"):
        write_report(run)


@pytest.mark.slow
def test_what_a_page_says_to_type_works_in_any_folder(tmp_path):
    """A search, and its training as the fresh page and as the page made anew say, typed elsewhere."""
    there, elsewhere = tmp_path / "it's here", tmp_path / "elsewhere"
    for folder in (there, elsewhere):
        folder.mkdir()
    sizes = ["space=nasbench201", "network.channels=4", "network.cells=1", "dataset.subset=80"]
    words = ["strategy=random", "strategy.count=1", *sizes, 'run="my run"']
    start = [sys.executable, REPOSITORY / "search.py", *words]
    subprocess.run(start, cwd=there, check=True, capture_output=True)
    fresh = Page(there / "my run" / "report.html")
    anew = Page(write_report(there / "my run"))
    for number, page in enumerate((fresh, anew)):
        (typed,) = [block for block in page.blocks if "genotype=file" in block]
        target = elsewhere / f"trained {number}"
        further = f"{typed} trainer.max_epochs=1 'run=\"{target}\"'"
        done = subprocess.run(["bash", "-c", further], cwd=elsewhere, capture_output=True, text=True)
        assert done.returncode == 0, (typed, done.stderr)
        assert (target / "summary.json").is_file()
        load = next(block for block in Page(target / "report.html").blocks if "nas_lightning.load" in block)
        code = f"import nas_lightning; {load}; assert network"
        subprocess.run([sys.executable, "-c", code], cwd=elsewhere, check=True)


# The page of a run that goes on.


@pytest.fixture
def going(tmp_path):
    """A search after its third epoch."""
    folder = write_search(tmp_path / "search")
    (folder / FILE_NAME).unlink()
    return folder


def end_epoch(callback, epoch=0, should_stop=False):
    steps = {"max_steps": -1, "global_step": 0, "max_epochs": 10, "callbacks": []}
    trainer = SimpleNamespace(current_epoch=epoch, should_stop=should_stop, **steps)
    callback.on_train_epoch_end(trainer, None)


def test_it_shows_the_last_cell_and_loads_itself_again(going):
    callback = LivePage(going, seconds=7.4)
    callback.on_train_start(None, None)
    callback._due = 0.0
    end_epoch(callback)
    text = (going / "report.html").read_text(encoding="utf-8")
    assert '<meta http-equiv="refresh" content="7">' in text
    page = Page(going / "report.html")
    assert "(not finished)" in page.text
    assert "as of" in page.text
    assert "resume=" in page.sections["Next commands"]
    assert "Left out" not in page.sections["Architecture"]


def test_a_page_that_was_made_anew_stays_as_it_is(going):
    assert "refresh" not in write_report(going).read_text(encoding="utf-8")


def test_pages_lie_apart_by_the_time_that_was_asked_for(going):
    callback = LivePage(going, seconds=1000)
    callback.on_train_start(None, None)
    end_epoch(callback)
    assert not (going / "report.html").exists()
    callback._due = 0.0
    end_epoch(callback)
    (going / "report.html").unlink()
    end_epoch(callback)
    assert not (going / "report.html").exists()


@pytest.mark.parametrize("last", [{"epoch": 9}, {"should_stop": True}])
def test_the_end_of_the_last_epoch_waits_for_no_page(going, last):
    callback = LivePage(going, seconds=1)
    callback._due = 0.0
    end_epoch(callback, **last)
    assert not (going / "report.html").exists()


def test_a_page_that_cannot_be_written_ends_no_training(tmp_path):
    callback = LivePage(tmp_path / "nowhere", seconds=5)
    with pytest.warns(
        UserWarning, match="report.html is written at the end only: The path must be the folder of a run"
    ):
        end_epoch(callback)
    end_epoch(callback)  # said once


def test_the_cell_is_that_of_the_last_epoch(going):
    history = (going / "history.jsonl").read_text(encoding="utf-8").splitlines()
    for epochs, genotype in ((3, GENOTYPES[0]), (2, GENOTYPES[1])):
        (going / "history.jsonl").write_text("\n".join(history[:epochs]) + "\n", encoding="utf-8")
        assert str(genotype) in Page(write_report(going)).blocks
