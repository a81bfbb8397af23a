"""`train.py ensemble=…`: training of the members, and evaluation of the ensemble."""

import csv
import json

import pytest
import torch
from omegaconf import OmegaConf

from nas_lightning import load
from nas_lightning.data import Fake
from nas_lightning.genotype import read_genotypes, write_genotypes
from nas_lightning.models import Ensemble, McDropPath
from nas_lightning.report.comparison import compare, read_runs
from nas_lightning.spaces import NasBench201
from nas_lightning.training.retrain import Retrain
from tests.cli.conftest import CELL, TINY_DATA, TINY_NETWORK

QUICK = (*TINY_DATA, *TINY_NETWORK, "trainer.max_epochs=1")
OTHER = CELL.replace("none~0|nor", "skip_connect~0|nor")


@pytest.fixture
def cells(tmp_path):
    """Two architectures in a file."""
    space = NasBench201()
    return write_genotypes(tmp_path / "cells.json", [space.parse(CELL), space.parse(OTHER)])


def batches():
    return list(Fake(shape=(1, 8, 8), train_size=32, test_size=16, batch_size=8).test_dataloader())


def test_ensemble_of_all_genotypes_of_a_file(tmp_path, command, cells):
    argv = ("genotype=file", "genotype.path=cells.json", "ensemble=all", "run=a")
    code, out, err = command("train", *QUICK, *argv)
    assert (code, err) == (0, "")
    run = tmp_path / "a"
    assert read_genotypes(run) == read_genotypes(cells)
    for number in (1, 2):
        assert read_genotypes(run / f"member_{number}") == read_genotypes(cells)[number - 1 : number]
    (x, y), *_ = batches()
    ensemble = Ensemble.load(run)
    members = [load(run / f"member_{number}") for number in (1, 2)]
    mean = torch.stack([member(x).softmax(dim=1) for member in members]).mean(dim=0)
    torch.testing.assert_close(ensemble.predict_proba(x), mean)

    wrong = [float((load(run / f"member_{n}")(x).argmax(1) != y).float().mean()) for n in (1, 2)]
    wrong.append(float((mean.argmax(1) != y).float().mean()))
    rows = list(csv.DictReader((run / "tables" / "ensemble.csv").read_text().splitlines()))
    assert [float(row["error"]) for row in rows] == pytest.approx(wrong)
    metrics = json.loads((run / "summary.json").read_text())["metrics"]
    assert metrics["test_accuracy"] == pytest.approx(1 - wrong[2])
    assert metrics["ate"] == pytest.approx(sum(wrong[:2]) / 2)
    assert (run / "tables" / "members.md").read_text() in out
    for name in ("member_errors", "member_agreement", "prediction_map", "genotype_1"):
        assert (run / "figures" / f"{name}.png").is_file(), name
    assert "study=defense study.ensemble=a dataset=fake" in out
    page = (run / "report.html").read_text()
    for part in ("study=defense", "ensemble=all seed=1<", "How the members differ", "prediction map"):
        assert part in page
    assert "Left out" not in page
    assert "nas-export" in (run / "member_1" / "report.html").read_text()


FOLDERS = (".", "member_1", "member_2")


class Stopped(KeyboardInterrupt):
    """Interrupt the training of a member, as Ctrl-C does."""


@pytest.mark.slow
def test_interrupted_ensemble_resumes_at_its_member_and_epoch(tmp_path, command, monkeypatch):
    argv = (*QUICK, "trainer.max_epochs=2", "genotype=nasbench201_best", "ensemble=deep", "ensemble.count=2")
    assert command("train", *argv, "run=complete").code == 0
    begin = Retrain.on_train_epoch_start
    epochs = []

    def stop(module):
        epochs.append(module.current_epoch)
        if len(epochs) == 4:  # the second epoch of the second member
            raise Stopped
        begin(module)

    with monkeypatch.context() as patch:
        patch.setattr(Retrain, "on_train_epoch_start", stop)
        code, out, _ = command("train", *argv, "run=a")
    assert code != 0
    assert "resume=a" in out
    assert not (tmp_path / "a" / "ensemble").exists()

    def note(module):
        epochs.append(module.current_epoch)
        begin(module)

    del epochs[:]
    with monkeypatch.context() as patch:
        patch.setattr(Retrain, "on_train_epoch_start", note)
        assert command("train", "resume=a").code == 0
    assert epochs == [1]
    for name in ("member_1.safetensors", "member_2.safetensors"):
        same, other = (load(tmp_path / run / "ensemble" / name).state_dict() for run in ("a", "complete"))
        assert all(torch.equal(same[key], other[key]) for key in other)
    tables = [(tmp_path / run / "tables" / "ensemble.csv").read_text() for run in ("a", "complete")]
    assert tables[0] == tables[1]
    first, second = (load(tmp_path / "a" / f"member_{n}").state_dict() for n in (1, 2))
    assert any(not torch.equal(first[name], second[name]) for name in first)  # seeds differ
    summaries = {n: json.loads((tmp_path / "a" / n / "summary.json").read_text()) for n in FOLDERS}
    alone = summaries["member_1"]["seconds"] + summaries["member_2"]["seconds"]
    assert summaries["."]["seconds"] > alone > 0  # including the first start
    one, both = summaries["member_1"], summaries["."]
    assert (both["params"], both["macs"]) == (2 * one["params"], 2 * one["macs"])
    runs, left_out = read_runs([tmp_path / "a", tmp_path / "a" / "member_1"])
    assert [run["seconds"] for run in runs] == [summaries["."]["seconds"], summaries["member_1"]["seconds"]]
    assert not left_out
    assert "ensemble=deep" in compare(runs).markdown()
    assert command("train", "resume=a/member_2").code == 0
    assert "`ensemble.count` cannot change" in command("train", "resume=a", "ensemble.count=3").err


def test_monte_carlo_drop_path_and_ensemble_of_runs(tmp_path, command):
    argv = (*QUICK, "genotype=nasbench201_best", "ensemble=mc_drop_path", "ensemble.passes=4", "run=a")
    code, out, err = command("train", *argv)
    assert (code, err) == (0, "")
    ensemble = Ensemble.load(tmp_path / "a")
    assert isinstance(ensemble, McDropPath)
    assert (ensemble.rate, ensemble.passes) == (0.01, 4)
    assert "study=defense" not in out
    assert len((tmp_path / "a" / "tables" / "ensemble.csv").read_text().splitlines()) == 1 + 4 + 1

    assert command("train", *QUICK, "genotype=nasbench201_best", "seed=1", "run=sweep/0").code == 0
    members = "ensemble.runs=[a/member_1,sweep]"
    code, _, err = command("train", *TINY_DATA, "ensemble=runs", members, "run=b")
    assert (code, err) == (0, "")
    (x, _), *_ = batches()
    mean = (load("a/member_1")(x).softmax(1) + load("sweep/0")(x).softmax(1)) / 2
    torch.testing.assert_close(Ensemble.load("b").predict_proba(x), mean)
    assert not list((tmp_path / "b").glob("member_*"))

    alone, passes = (json.loads((tmp_path / n / "summary.json").read_text()) for n in ("sweep/0", "a"))
    assert (passes["params"], passes["macs"]) == (alone["params"], 4 * alone["macs"])

    code, _, err = command("train", "dataset=digits", "ensemble=runs", members)
    assert code == 1
    assert "The members were trained on images with" in err


POOL = ("ensemble=nes_rs", "ensemble.space=nasbench201", "dataset.val_fraction=0.25")


def test_forward_selection_from_a_trained_pool(tmp_path, command, monkeypatch):
    argv = (*QUICK, *POOL, "ensemble.pool=3", "ensemble.size=2", "seed=3")
    begin, trained = Retrain.on_train_epoch_start, []

    def stop(module):
        trained.append(module)
        if len(trained) == 2:
            raise Stopped
        begin(module)

    with monkeypatch.context() as patch:
        patch.setattr(Retrain, "on_train_epoch_start", stop)
        code, out, _ = command("train", *argv, "run=a")
    assert code != 0
    assert "resume=a" in out
    run = tmp_path / "a"
    pool = read_genotypes(run / "pool.json")
    assert len({*pool}) == 3
    code, out, err = command("train", "resume=a")
    assert (code, err) == (0, "")
    assert "Candidate 2 of 3" in out
    assert "Candidate 1 of 3" not in out
    assert read_genotypes(run / "pool.json") == pool

    data = Fake(shape=(1, 8, 8), train_size=32, test_size=16, batch_size=8, val_fraction=0.25, seed=3)
    x, y = (torch.cat(part) for part in zip(*data.val_dataloader(), strict=True))
    assert len(y) == 8
    candidates = [load(run / f"candidate_{n}") for n in range(1, 4)]
    p = torch.stack([network(x).softmax(dim=1) for network in candidates]).detach().double()

    def loss(*members):
        return -p[list(members)].mean(dim=0)[torch.arange(8), y].log().mean().item()

    first = min(range(3), key=loss)
    second = min({0, 1, 2} - {first}, key=lambda other: loss(first, other))
    ensemble = Ensemble.load(run)
    for member, number in zip(ensemble.members, (first, second), strict=True):
        torch.testing.assert_close(member(x), candidates[number](x))
    assert read_genotypes(run) == [pool[first], pool[second]]
    rows = list(csv.DictReader((run / "tables" / "pool.csv").read_text().splitlines()))
    assert [float(row["NLL"]) for row in rows] == pytest.approx([loss(n) for n in range(3)], rel=1e-4)
    assert rows[second]["taken as"] == "member 2"
    assert float(rows[second]["NLL with those before"]) == pytest.approx(loss(first, second), rel=1e-4)
    metrics = json.loads((run / "summary.json").read_text())["metrics"]
    assert metrics["valid_loss"] == pytest.approx(loss(first, second), rel=1e-4)
    assert (run / "tables" / "pool.md").read_text() in out

    configs = [OmegaConf.load(run / f"candidate_{n}/.hydra/config.yaml") for n in (1, 2, 3)]
    assert [config.seed for config in configs] == [3, 4, 5]
    assert [config.dataset.seed for config in configs] == [3, 3, 3]  # all hold out the same images
    message = "`ensemble.pool` cannot change in a resumed run: 3 in `a`, 4 now."
    assert message in command("train", "resume=a", "ensemble.pool=4").err


def test_random_ensemble_without_selection(tmp_path, command):
    """URS has one member per architecture and holds out no images."""
    argv = ("ensemble=nes_rs", "ensemble.space=nasbench201", "ensemble.pool=2", "ensemble.size=2")
    code, out, err = command("train", *QUICK, *argv, "run=a")
    assert (code, err) == (0, "")
    assert read_genotypes(tmp_path / "a") == read_genotypes(tmp_path / "a" / "pool.json")
    assert "Member 2 of 2" in out
    assert not (tmp_path / "a" / "tables" / "pool.md").exists()


def test_failed_start_leaves_folder_and_pool_to_the_corrected_command(tmp_path, command):
    argv = (*QUICK, *POOL, "ensemble.size=2", "run=a")
    assert "optimizer of timm" in command("train", *argv, "ensemble.pool=3", "retrain.opt=none").err
    assert command("train", *argv, "ensemble.pool=2").code == 0
    assert len(read_genotypes(tmp_path / "a" / "pool.json")) == 2


INVALID = [
    (POOL[:2], "Selecting members needs held-out images, such as dataset.val_fraction=0.1, got 0.0"),
    ((POOL[0], *POOL[2:]), "`ensemble.space` needs a value"),
    ((*POOL, "ensemble.space=nasbensh201"), "did you mean 'nasbench201'?"),
    ((*POOL, "ensemble.pool=2"), "`pool` must be at least `size`, which is 3, got 2 (in ensemble.pool)"),
    ((*POOL, "ensemble.size=1"), "`size` must be at least 2, got 1 (in ensemble.size)"),
    ((*POOL, "ensemble.space=two_layer", "ensemble.pool=1000"), "does not have so many architectures"),
    ((*POOL, "genotype=nasbench201_best"), "this ensemble draws its architectures"),
    (("ensemble=all", "genotype=nasbench201_best"), "ensemble=all needs a file of several architectures"),
    (("ensemble=all",), "ensemble=all needs a file of several architectures"),
    (
        ("ensemble=all", "genotype=file", "genotype.path=cells.json", "genotype.index=1"),
        "leave out genotype.index",
    ),
    (("ensemble=deep",), "Choose an architecture"),
    (("ensemble=deep", "ensemble.count=1", "genotype=nasbench201_best"), "`count` must be at least 2"),
    (
        ("ensemble=mc_drop_path", "ensemble.rate=0", "genotype=nasbench201_best"),
        "`rate` must be greater than 0",
    ),
    (
        ("ensemble=runs", "ensemble.runs=[nowhere]"),
        "The path must be a run of nas-train or a sweep, got 'nowhere'",
    ),
    (("ensemble=runs",), "`ensemble.runs` needs a value"),
    (("ensemble=al",), "Did you mean `all`?"),
]


def test_invalid_settings(command, cells):
    for arguments, message in INVALID:
        code, _, err = command("train", *QUICK, *arguments)
        assert code == 1
        assert message in err
        assert len(err.splitlines()) == 1
