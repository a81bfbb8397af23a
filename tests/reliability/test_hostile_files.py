"""Malicious files: models, architectures, ensembles, tables, histories, checkpoints, pickles.

Malicious code would create the file `marker`. Invalid files must be one-line errors, before memory is filled.
"""

import json
import pickle
import zipfile
from html import escape
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

import nas_lightning
from nas_lightning.cli.predict import main as predict
from nas_lightning.data.files import read_pickle
from nas_lightning.models import Ensemble
from nas_lightning.objectives import TabularNasBench201
from nas_lightning.report.page import write_report
from nas_lightning.runs.facts import read_history
from nas_lightning.runs.metrics_csv import read_metrics
from nas_lightning.spaces import NasBench201
from tests.cli.conftest import TINY_DATA
from tests.reliability.test_hostile_folder import EVIL, MARKER, Payload, outside

NAMES = [
    *(
        "os.system",
        "subprocess.Popen",
        "evil.Evil",
        "evil",
        "torch.load",
        "builtins.exec",
        "nas_lightning.load",
    ),
    *(
        "nas_lightning.models.timm.main",
        "../evil",
        "/evil",
        "darts/../../evil",
        "",
        ".",
        "..",
        "x" * 9999,
    ),
    *("${oc.env:HOME}", "darts\0", "\x1b[2Jdarts"),
]


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A module whose import creates the marker."""
    (tmp_path / "evil.py").write_text(EVIL.format(tmp_path) + "class Evil: ...\n")
    (tmp_path / "evil.yaml").write_text("space: {_target_: evil.Evil}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    space, sizes = NasBench201(), {"channels": 4, "cells": 1}
    genotype = space.sample(torch.Generator().manual_seed(0))
    network = space.network(genotype, in_channels=3, num_classes=2, **sizes)
    path = tmp_path_factory.mktemp("saved") / "model.safetensors"
    nas_lightning.save(network, path, space, genotype, sizes, image=(3, 8, 8), classes=("cat", "dog"))
    return path


def rewrite(saved, target, change):
    """Write a model file with a changed header."""
    with safe_open(saved, framework="pt") as opened:
        header = json.loads(opened.metadata()["nas_lightning"])
        weights = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    change(header)
    target.parent.mkdir(exist_ok=True, parents=True)
    save_file(weights, target, {"nas_lightning": json.dumps(header)})
    return target


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name)[:40])
def test_space_names_in_model_files_import_nothing(saved, evil, refusal, name):
    def current_format(header):
        header["space"]["name"] = header["genotype"]["space"] = name

    def old_format(header):
        header.update(format=1, space={"_target_": name})

    for change in (current_format, old_format):
        message = refusal(nas_lightning.load, rewrite(saved, evil / "his" / "model.safetensors", change))
        assert message is not None
        assert message.isprintable()
    assert not (evil / MARKER).exists()


def test_space_names_in_genotype_files_import_nothing(evil, command):
    genotype = NasBench201().sample(torch.Generator().manual_seed(0)).to_dict()
    for name in ("os.system", "evil.Evil", "../evil", "darts\0"):
        (evil / "genotype.json").write_text(json.dumps({**genotype, "space": name}))
        outcome = command("train", "genotype=file", "genotype.path=genotype.json", "dataset=fake", "run=a")
        assert outcome.code == 1
        assert outcome.err.startswith("error: ")
        assert len(outcome.err.splitlines()) == 1
    assert not (evil / MARKER).exists()


SIZES = [
    *({"cells": 10**7}, {"channels": 200_000}, {"cells": 10**400}, {"channels": 1e300}),
    *({"cells": 1000, "channels": 10_000}, {"channels": -1}, {"cells": "many"}, {"channels": [4]}),
]


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: str(sizes)[:40])
def test_load_rejects_sizes_that_exhaust_memory(saved, tmp_path, refusal, sizes):
    path = rewrite(saved, tmp_path / "model.safetensors", lambda header: header["sizes"].update(sizes))
    assert refusal(nas_lightning.load, path)


def test_training_rejects_sizes_that_exhaust_memory(saved, tmp_path, command):
    for sizes in SIZES[0], SIZES[4], SIZES[6]:
        path = rewrite(saved, tmp_path / "model.safetensors", lambda header: header["sizes"].update(sizes))
        outcome = command("train", f"pretrained={path}", *TINY_DATA, "run=mine")
        assert outcome.err.startswith("error: ")
        assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize("image", [[10**9, 8, 8], [3, 10**9, 8], [3], "abc", None])
def test_load_rejects_image_sizes_that_exhaust_memory(saved, tmp_path, refusal, image):
    path = rewrite(saved, tmp_path / "model.safetensors", lambda header: header.update(image=image))
    assert refusal(nas_lightning.load, path)


@pytest.mark.parametrize(
    "content",
    [
        {"members": ["../model.safetensors"]},
        {"members": ["/etc/passwd"]},
        {"members": "model.safetensors"},
        {"members": [3]},
        {"members": ["m.safetensors"], "drop_path": {"rate": 0.1, "passes": 10**9}},
        {"members": ["m.safetensors"], "drop_path": {"rate": 0.1, "passes": 2, "more": 1}},
        {"members": ["m.safetensors"], "drop_path": 3},
    ],
)
def test_ensemble_files_are_validated(saved, tmp_path, refusal, content):
    folder = tmp_path / "ensemble"
    rewrite(saved, folder / "m.safetensors", lambda header: None)
    rewrite(saved, tmp_path / "model.safetensors", lambda header: None)
    (folder / "ensemble.json").write_text(json.dumps({"format": 1, **content}))
    assert refusal(Ensemble.load, folder)


def name_custom_operation(header):
    cell = header["genotype"]["cells"]["cell"]
    cell["edges"][0][0] = "evil.Evil"


@pytest.mark.parametrize("kind", ["study=defense", "nas-predict"])
@pytest.mark.parametrize(
    "change", [lambda header: header["space"].update(name="evil.Evil"), name_custom_operation]
)
def test_malicious_ensemble_imports_nothing(saved, evil, command, kind, change):
    folder = evil / "his" / "ensemble"
    for name in ("a.safetensors", "b.safetensors"):
        rewrite(saved, folder / name, change)
    members = {"format": 1, "members": ["a.safetensors", "b.safetensors"]}
    (folder / "ensemble.json").write_text(json.dumps(members))
    if kind == "nas-predict":
        Image.new("RGB", (8, 8)).save(evil / "image.png")
        with pytest.raises(SystemExit) as ending:
            predict([str(folder), str(evil / "image.png"), "--out", str(evil / "out")])
        message = str(ending.value)
    else:
        words = ("dataset=fake", "dataset.shape=[3,8,8]", "dataset.num_classes=2", "run=a")
        outcome = command("analyze", "study=defense", f"study.ensemble={folder}", *words)
        assert outcome.code == 1
        message = outcome.err.strip()
    assert message.startswith("error: ")
    assert len(message.splitlines()) == 1
    assert not (evil / MARKER).exists()


def test_predictions_are_not_written_through_a_link(saved, tmp_path):
    run = tmp_path / "run"
    rewrite(saved, run / "model.safetensors", lambda header: None)
    (tmp_path / "elsewhere").mkdir()
    (run / "predictions").symlink_to(tmp_path / "elsewhere")
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    with pytest.raises(SystemExit, match="The folder must not have links to elsewhere"):
        predict([str(run), str(tmp_path / "image.png")])
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_official_table_is_unpickled_only_if_trusted(tmp_path, refusal, command):
    file = tmp_path / "NAS-Bench-201-v1_1.pth"
    file.write_bytes(pickle.dumps(Payload(tmp_path / MARKER)))
    message = refusal(TabularNasBench201, file)
    assert "benchmark.trust=true" in message
    outcome = command("search", "benchmark=nasbench201", f"benchmark.path={file}", "space=nasbench201")
    assert "benchmark.trust=true" in outcome.err
    assert not (tmp_path / MARKER).exists()


def test_pickled_images_contain_only_arrays(tmp_path, refusal):
    file = tmp_path / "data_batch_1"
    file.write_bytes(pickle.dumps({"data": Payload(tmp_path / MARKER)}))
    assert "it imports pathlib.Path.touch" in refusal(read_pickle, file)
    assert not (tmp_path / MARKER).exists()


def test_checkpoints_are_loaded_without_unpickling_objects(runs, command):
    run = runs / "searched"
    (run / "summary.json").unlink()
    torch.save({"state_dict": {}, "more": Payload(runs / MARKER)}, run / "checkpoints" / "last.ckpt")
    with zipfile.ZipFile(run / "checkpoints" / "last.ckpt") as archive:
        assert archive.testzip() is None
    outcome = command("search", "resume=searched")
    assert outcome.err.startswith("error: Cannot read the checkpoint")
    assert not (runs / MARKER).exists()


@pytest.mark.parametrize("name", ["x/../../y", "/y", "..", "../y", "a b", "", "\0", "x\ny"])
def test_group_names_in_histories_are_not_paths(runs, refusal, name):
    run = runs / "searched"
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    for line in lines:
        line["groups"] = {name: next(iter(line["groups"].values()))}
    (run / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "plain name" in refusal(read_history, run / "history.jsonl")
    before = outside(runs)
    write_report(run)
    assert outside(runs) == before


@pytest.mark.parametrize(
    "name",
    [r"$\frac{$", "<script>stolen()</script>", "$x$<script>stolen()</script>", "=1+1", "--><a"],
)
def test_names_are_escaped(runs, name):
    """Names of operations and metrics are escaped in pages, drawings, and tables."""
    run = runs / "searched"
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    for line in lines:
        for group in line["groups"].values():
            group["ops"][1] = name
    (run / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = json.loads((run / "summary.json").read_text())
    summary["metrics"][name] = 1.0
    (run / "summary.json").write_text(json.dumps(summary))
    before = outside(runs)
    page = write_report(run).read_text()
    assert "<script>stolen()" not in page
    assert escape(name) in page
    for svg in (run / "figures").glob("*.svg"):
        assert not [
            part for part in ElementTree.parse(svg).iter() if str(part.tag).endswith(("script", "}a"))
        ]
    assert outside(runs) == before


@pytest.mark.parametrize("column", ["=1+1", " @me", "+a|b", "＝1+1"])
def test_metrics_tables_with_formulas_are_rejected(runs, refusal, column):
    """A resumed run rewrites the table."""
    file = runs / "searched" / "metrics.csv"
    head, *rows = file.read_text().splitlines()
    file.write_text("".join(f"{line}\n" for line in [f"{head},{column}", *(f"{row},1" for row in rows)]))
    assert "must not be formulas" in refusal(read_metrics, file)
    file.write_text("".join(f"{line}\n" for line in [f"{head},a", *(f"{row},{column}" for row in rows)]))
    assert "a number per column at most" in refusal(read_metrics, file)


def test_report_ignores_svg_files_of_the_folder(runs):
    run = runs / "searched"
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><script>stolen()</script></svg>'
    (run / "figures").mkdir(exist_ok=True)
    for name in ("weights_cell", "genotype", "curves", "genotype_1"):
        (run / "figures" / f"{name}.svg").write_text(svg)
    assert "stolen" not in write_report(run).read_text()


@pytest.mark.parametrize("link", ["report.html", "figures", "figures/curves.svg", "figures/curves.png"])
def test_report_is_not_written_through_a_link(runs, refusal, link):
    run, elsewhere = runs / "searched", runs / "elsewhere"
    (run / "figures").mkdir(exist_ok=True)
    if link == "figures":
        (run / "figures").rename(elsewhere)
    else:
        elsewhere.write_text("mine")
        (run / link).unlink(missing_ok=True)
    (run / link).symlink_to(elsewhere)
    before = outside(runs)
    assert "must not have links" in refusal(write_report, run)
    assert outside(runs) == before


def test_partial_files_do_not_follow_links(tmp_path):
    from nas_lightning.utils.files import write_whole

    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    (tmp_path / "new.txt.partial").symlink_to(elsewhere)
    (tmp_path / "new.txt").symlink_to(elsewhere)
    write_whole(Path(tmp_path / "new.txt"), "text")
    assert elsewhere.read_text() == "mine"
    assert not (tmp_path / "new.txt").is_symlink()
