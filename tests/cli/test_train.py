"""`train.py`: its output, files, and resuming."""

import csv
import json
import subprocess
import sys

import pytest
import pytorch_lightning as pl

from nas_lightning import callbacks
from nas_lightning.data import Fake
from nas_lightning.genotype import Genotype, read_genotypes, write_genotypes
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.training.retrain import Retrain
from tests.cli.conftest import REPOSITORY, TINY_DATA, TINY_NETWORK

import torch  # isort: skip

QUICK = (*TINY_DATA, *TINY_NETWORK, "trainer.max_epochs=2")


def read_predictions(run):
    with (run / "predictions" / "test" / "predictions.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def facts(run):
    return json.loads((run / "genotype.json").read_text())


def test_files_of_a_training(runs, command):
    code, out, err = command("train", *QUICK, "genotype=file", "genotype.path=searched", "run=a")
    assert (code, err) == (0, "")
    run = runs / "a"
    made = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert made >= {
        *(".hydra/config.yaml", "checkpoints/last.ckpt", "genotype.json", "metrics.csv", "report.html"),
        *("summary.json", "train.log", "figures/genotype.png"),
    }
    assert read_genotypes(run) == read_genotypes(runs / "searched")
    assert "test_accuracy" in out
    assert "epoch 2/2   train " in out
    for line in ("genotype  a/genotype.json", "picture   a/figures/genotype.png", "report    a/report.html"):
        assert line in out.splitlines()


def test_checkpoint_is_the_tested_network(finished):
    """The numbers in the summary come from the weights in the folder."""
    run = finished / "trained"
    (genotype,) = read_genotypes(run)
    network = NasBench201().network(genotype, in_channels=1, num_classes=4, channels=4, cells=1)
    assert facts(run)["params"] == sum(p.numel() for p in network.parameters())
    module = Retrain(network, 4)
    stored = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    module.load_state_dict(stored["state_dict"])
    data = Fake(shape=(1, 8, 8), train_size=32, test_size=16, batch_size=8)
    correct = 0
    with torch.no_grad():
        for x, y in data.test_dataloader():
            correct += int((module.network.eval()(x).argmax(1) == y).sum())
    assert facts(run)["metrics"]["test_accuracy"] == correct / 16


def test_predictions_of_the_test_images(runs):
    rows = read_predictions(runs / "trained")
    assert len(rows) == 16
    right = sum(row["class"] == row["predicted"] for row in rows)
    assert right / 16 == pytest.approx(facts(runs / "trained")["metrics"]["test_accuracy"])
    page = (runs / "trained" / "report.html").read_text(encoding="utf-8")
    assert "Class by class" in page
    assert 'href="predictions/test/predictions.html"' in page


@pytest.mark.slow
def test_two_processes_predict_every_image_once(runs, tmp_path):
    script = [sys.executable, str(REPOSITORY / "train.py"), *QUICK, "genotype=file", "genotype.path=searched"]
    argv = ("trainer=ddp", "trainer.devices=2", "trainer.accelerator=cpu", f"run={tmp_path / 'two'}")
    subprocess.run([*script, *argv], cwd=runs, check=True, capture_output=True)
    rows, alone = read_predictions(tmp_path / "two"), read_predictions(runs / "trained")
    assert [(row["file"], row["class"]) for row in rows] == [(row["file"], row["class"]) for row in alone]
    right = sum(row["class"] == row["predicted"] for row in rows)
    assert right / 16 == pytest.approx(facts(tmp_path / "two")["metrics"]["test_accuracy"])


def test_genotype_index(tmp_path, command):
    random = torch.Generator().manual_seed(0)
    found = [NasBench201().sample(random) for _ in range(3)]
    write_genotypes(tmp_path / "pool.json", found)
    argv = (*QUICK, "trainer.max_epochs=1", "genotype=file", "genotype.path=pool.json", "genotype.index=2")
    assert command("train", *argv, "run=a").code == 0
    assert read_genotypes(tmp_path / "a") == [found[2]]


@pytest.mark.parametrize(("name", "space"), [("darts_v2", DartsSpace()), ("nasbench201_best", NasBench201())])
def test_published_architecture_with_other_sizes(tmp_path, command, name, space):
    argv = (*QUICK, "trainer.max_epochs=1", f"genotype={name}", "network.dropout=0.1", "run=a")
    code, _, err = command("train", *argv)
    assert code == 0, err
    (genotype,) = read_genotypes(tmp_path / "a")
    assert isinstance(genotype, Genotype)
    auxiliary = name == "darts_v2"  # which its space has by default
    sizes = {"in_channels": 1, "num_classes": 4, "channels": 4, "cells": 1, "auxiliary": auxiliary}
    network = space.network(genotype, **sizes)
    assert facts(tmp_path / "a")["params"] == sum(p.numel() for p in network.parameters())


def test_validation_selects_the_best_epoch(tmp_path, command):
    argv = (*QUICK, "genotype=nasbench201_best", "dataset.val_fraction=0.25", "run=a")
    code, out, _ = command("train", *argv)
    assert code == 0
    assert "valid " in out
    assert (tmp_path / "a" / "checkpoints" / "best.ckpt").is_file()


def test_sweep_over_network_sizes(tmp_path, command):
    argv = ("-m", *TINY_DATA, "trainer.max_epochs=1", "genotype=nasbench201_best", "network.cells=1")
    code, _, err = command("train", *argv, "network.channels=2,4", "run=sweep")
    assert (code, err) == (0, "")
    table = (tmp_path / "sweep" / "table.md").read_text().splitlines()
    assert [line.split("|")[2].strip() for line in table[2:]] == ["network.channels=2", "network.channels=4"]
    assert "test_accuracy" in table[0]


def test_requeued_slurm_job_is_resumed(tmp_path, command, monkeypatch):
    """Repeat the command in the same folder; only SLURM's restart count makes it resume."""
    argv = (*QUICK, "trainer=slurm", "genotype=nasbench201_best", "trainer.max_epochs=3")
    complete = command("train", *argv, "run=complete")
    assert complete.code == 0, complete.err

    class Stop(pl.Callback):
        def on_train_epoch_start(self, trainer, module):
            if trainer.current_epoch == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(callbacks.ExpectedTime, "on_train_epoch_start", Stop.on_train_epoch_start)
    assert command("train", *argv, "run=a").code != 0
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    code, out, err = command("train", *argv, "run=a")
    assert (code, err) == (0, "")
    assert "epoch 3/3" in out
    assert "epoch 2/3" not in out
    assert (tmp_path / "a" / "metrics.csv").read_text() == (tmp_path / "complete" / "metrics.csv").read_text()


def test_resume_after_the_last_epoch(runs, command):
    for name, run in (("train", runs / "trained"), ("search", runs / "searched")):
        files = ("genotype.json", "metrics.csv")
        before = [(run / file).read_bytes() for file in files]
        (run / "genotype.json").unlink()
        (run / "summary.json").unlink()
        code, _, err = command(name, f"resume={run}")
        assert (code, err) == (0, "")
        assert [(run / file).read_bytes() for file in files] == before


@pytest.mark.parametrize(("name", "folder"), [("search", "searched"), ("train", "trained")])
def test_seconds_include_earlier_starts(runs, command, name, folder):
    """Add an hour to the time that the checkpoint stores."""
    run = runs / folder
    path = run / "checkpoints" / "last.ckpt"
    seconds = json.loads((run / "summary.json").read_text())["seconds"]
    stored = torch.load(path, weights_only=True)
    assert 0 < stored["nas_lightning_seconds"] <= seconds + 0.05
    torch.save({**stored, "nas_lightning_seconds": 3600.0}, path)
    (run / "summary.json").unlink()
    assert command(name, f"resume={run}").code == 0
    assert 3600 < json.loads((run / "summary.json").read_text())["seconds"] < 3660
    assert "<dt>took</dt><dd>1 h" in (run / "report.html").read_text()
