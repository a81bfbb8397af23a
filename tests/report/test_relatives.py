"""Links between the pages of runs, there and back, and what to type in any folder."""

import json
import os
import subprocess
import sys

import pytest

from nas_lightning.errors import InputError
from nas_lightning.genotype import write_genotypes
from nas_lightning.report.page import FOLLOWERS, link_sources, read_relatives, refresh_all, write_report
from nas_lightning.report.record import RunRecord
from nas_lightning.runs.trackers import store_address
from tests.conftest import REPOSITORY
from tests.report.reading import Page
from tests.report.searches import GENOTYPES, write_search


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
    with pytest.raises(InputError, match="expected a folder without pipes and devices"):
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
