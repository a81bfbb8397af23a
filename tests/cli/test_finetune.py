"""The weights that a training saves, and fine-tuning that starts from them."""

import json

import pytest
import torch

import nas_lightning
from nas_lightning.data import Fake
from nas_lightning.models.file import describe
from tests.cli.conftest import TINY_DATA, TINY_NETWORK

QUICK = (*TINY_DATA, *TINY_NETWORK, "genotype=nasbench201_best")
OTHERS = (*TINY_DATA, "dataset.num_classes=3", "retrain=finetune", "trainer.max_epochs=1")


def state(run):
    return nas_lightning.load(run).state_dict()


def checkpoint(run, name, prefix="network."):
    found = torch.load(run / "checkpoints" / name, weights_only=True)["state_dict"]
    return {key.removeprefix(prefix): value for key, value in found.items() if key.startswith(prefix)}


def equal_names(one, other):
    return {name for name, value in one.items() if name in other and torch.equal(value, other[name])}


def accuracy(run):
    """Return the test accuracy of the saved network on the images that the runs use."""
    data, network = Fake(shape=(1, 8, 8), train_size=32, test_size=16, batch_size=8), nas_lightning.load(run)
    with torch.no_grad():
        return sum(int((network(x).argmax(1) == y).sum()) for x, y in data.test_dataloader()) / 16


def reported_accuracy(run):
    return json.loads((run / "summary.json").read_text())["metrics"]["test_accuracy"]


def test_saves_the_last_epoch_without_validation(tmp_path, command):
    code, out, err = command("train", *QUICK, "trainer.max_epochs=2", "run=a")
    assert (code, err) == (0, "")
    assert len(equal_names(state("a"), checkpoint(tmp_path / "a", "last.ckpt"))) == len(state("a"))
    assert accuracy("a") == reported_accuracy(tmp_path / "a")
    for line in (
        "model     a/model.safetensors",
        f"  network = nas_lightning.load('{tmp_path / 'a'}', with_normalization=True)",
        "nas-export a a/model.onnx",
        "nas-train pretrained=a retrain=finetune dataset=image_folder dataset.root=…",
    ):
        assert line in out
    known = describe("a")
    data = Fake(shape=(1, 8, 8), train_size=32, test_size=16, batch_size=8)
    assert (known.image, known.classes) == (data.image, data.classes)
    assert (known.mean, known.std) == (data.mean, data.std)


def test_saves_the_best_epoch(tmp_path, command):
    """With a learning rate that diverges, the first epoch is the best."""
    spoilt = ("retrain.lr=0.5", "retrain.clip=null", "dataset.noise=0.1", "dataset.val_fraction=0.5")
    argv = (*QUICK, *spoilt, "trainer.max_epochs=4", "seed=1", "run=a")
    assert command("train", *argv).code == 0
    found, best = state("a"), checkpoint(tmp_path / "a", "best.ckpt")
    assert len(equal_names(found, best)) == len(found)
    assert len(equal_names(found, checkpoint(tmp_path / "a", "last.ckpt"))) < len(found)
    assert accuracy("a") == pytest.approx(reported_accuracy(tmp_path / "a"))


def test_saves_averaged_weights(tmp_path, command):
    argv = (*QUICK, "retrain.ema_decay=0.9", "trainer.max_epochs=1", "run=a")
    assert command("train", *argv).code == 0
    found = state("a")
    assert len(equal_names(found, checkpoint(tmp_path / "a", "last.ckpt", "average.module."))) == len(found)
    assert len(equal_names(found, checkpoint(tmp_path / "a", "last.ckpt"))) < len(found)
    assert accuracy("a") == reported_accuracy(tmp_path / "a")


def test_finetuning_starts_from_the_pretrained_weights(runs, command):
    """Steps that are too small for float32 keep the weights."""
    still = ("retrain.lr=1e-30", "network.auxiliary=true", "run=b")
    code, out, err = command("train", "pretrained=trained", *OTHERS, *still)
    assert (code, err) == (0, "")
    assert "from trained with a new classifier of 3 classes" in out
    before, after = state("trained"), state("b")
    moved = before.keys() - equal_names(before, after)
    assert {name for name in moved if "running" not in name and "tracked" not in name} == {
        "head.weight",
        "head.bias",
    }
    assert describe("b").genotype == describe("trained").genotype
    assert describe("b").sizes == describe("trained").sizes


def test_finetuning_keeps_the_classifier_of_the_same_classes(runs, command):
    still = ("retrain.lr=1e-30", "trainer.max_epochs=1", "run=b")
    code, out, _ = command(
        "train", "pretrained=trained/model.safetensors", "retrain=finetune", *TINY_DATA, *still
    )
    assert code == 0
    assert "new classifier" not in out
    assert {"head.weight", "head.bias"} <= equal_names(state("trained"), state("b"))


def test_resumed_finished_run_saves_the_same_network(runs, command):
    assert command("train", "pretrained=trained", *OTHERS, "dataset.val_fraction=0.25", "run=b").code == 0
    before = (runs / "b" / "model.safetensors").read_bytes()
    (runs / "b" / "model.safetensors").unlink()
    code, _, err = command("train", "resume=b")
    assert (code, err) == (0, "")
    assert (runs / "b" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("epochs", [1, 2])
def test_frozen_backbone(runs, command, epochs):
    """Frozen for two of two epochs, no bit changes; for one of two, weights change in the second."""
    argv = (*OTHERS, "trainer.max_epochs=2", f"callbacks.frozen.epochs={epochs}", "run=b")
    assert command("train", "pretrained=trained", *argv).code == 0
    before, after = state("trained"), state("b")
    backbone = {name for name in before if name.startswith("backbone.")}
    assert (backbone <= equal_names(before, after)) == (epochs == 2)


INVALID = [
    (("pretrained=searched",), "The path must be the folder of a run of nas-train, or its model.safetensors"),
    (("pretrained=nowhere",), "The path must be the folder of a run of nas-train, or its"),
    (
        ("pretrained=trained", "genotype=darts_v2"),
        "Choose one architecture, got pretrained=… and genotype=…",
    ),
    (
        ("pretrained=trained", "dataset.shape=[3,8,8]"),
        "as those of `pretrained`, got 3",
    ),
    (("pretrained=trained", "network.channels=8"), "The network must be the same"),
    (("pretrained=trained", "network.chanels=8"), "Did you mean `network.channels`?"),
    (("pretrained=trained", "callbacks.frozen.epochs=-1"), "callbacks.frozen.epochs"),
]


def test_invalid_settings(runs, command):
    for argv, message in INVALID:
        code, _, err = command("train", *OTHERS, *argv, "run=b")
        assert code == 1
        assert message in err
        assert len(err.splitlines()) == 1
