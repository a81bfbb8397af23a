"""Exported runs predict raw images through ONNX Runtime alone as accurately as the run says."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nas_lightning.cli.export import main
from tests.cli.conftest import TINY_NETWORK, command  # noqa: F401

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
CLASSES = ("blue", "green", "red")
SIDE = 8
OWN = ("genotype=nasbench201_best", *TINY_NETWORK)
RUNS = {
    "own": OWN,
    "cells": ("genotype=darts_v2", "network.channels=4", "network.cells=3"),
    "timm": ("network=timm", "network.name=resnet10t"),
    "ensemble": (*OWN, "ensemble=deep", "ensemble.count=2"),
}


@pytest.fixture
def images(tmp_path):
    """Images of noise in which one channel is brighter."""
    random = np.random.default_rng(0)
    for part, count in (("train", 32), ("test", 20)):
        for label, name in enumerate(CLASSES):
            folder = tmp_path / "images" / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 150, size=(SIDE, SIDE, 3))
                pixels[..., 2 - label] += 40
                Image.fromarray(pixels.astype("uint8")).save(folder / f"{number}.png")
    return tmp_path / "images"


def raw_images(folder: Path, classes: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return bytes (n, 3, h, w) and labels, read without this package."""
    files = [(path, label) for label, name in enumerate(classes) for path in (folder / name).iterdir()]
    pixels = [np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1) for path, _ in files]
    return np.stack(pixels), np.array([label for _, label in files])


def accuracy_of_file(path: Path, folder: Path) -> float:
    """Return the accuracy of an exported file, fed as its metadata says."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    known = {name: json.loads(about[name]) for name in ("classes", "mean", "std", "size")}
    assert (known["classes"], known["size"]) == ([*CLASSES], [3, SIDE, SIDE])
    pixels, labels = raw_images(folder, known["classes"])
    mean, std = (np.array(known[name], dtype="float32").reshape(1, 3, 1, 1) for name in ("mean", "std"))
    x = {
        "uint8 from 0 to 255": pixels,
        "float32 from 0 to 1": (pixels / 255).astype("float32"),
        "float32, normalized with mean and std": ((pixels / 255 - mean) / std).astype("float32"),
    }[about["input"]]
    (outputs,) = session.run(None, {session.get_inputs()[0].name: x})
    return float((outputs.argmax(axis=1) == labels).mean())


@pytest.mark.parametrize(
    "kind", [kind if kind == "own" else pytest.param(kind, marks=pytest.mark.slow) for kind in RUNS]
)
def test_accuracy_on_raw_images_equals_the_page(kind, tmp_path, command, images, capsys):  # noqa: F811
    data = ("dataset=image_folder", f"dataset.root={images}", "dataset.batch_size=16")
    outcome = command("train", *RUNS[kind], *data, "trainer.max_epochs=4", "run=trained")
    assert outcome.code == 0, outcome.err
    stated = json.loads(Path("trained/summary.json").read_text())["metrics"]["test_accuracy"]
    assert 0.4 < stated < 1
    for values in ("float", "uint8", "normalized"):
        main(["trained", f"{values}.onnx", "--input", values])
        assert accuracy_of_file(tmp_path / f"{values}.onnx", images / "test") == pytest.approx(stated)
    assert "its metadata has classes, mean, std, and size" in capsys.readouterr().out

    main(["trained", "bytes.pt2", "--input", "uint8"])
    more = {"classes": "", "input": ""}
    network = torch.export.load("bytes.pt2", extra_files=more).module()
    pixels, labels = raw_images(images / "test", json.loads(more["classes"]))
    right = network(torch.from_numpy(pixels)).argmax(dim=1).numpy() == labels
    assert float(right.mean()) == pytest.approx(stated)


def test_random_passes_cannot_be_exported(tmp_path, command, images):  # noqa: F811
    data = ("dataset=image_folder", f"dataset.root={images}", "dataset.batch_size=16")
    chosen = (*OWN, *data, "retrain.drop_path=0.1", "ensemble=mc_drop_path", "trainer.max_epochs=1")
    assert command("train", *chosen, "run=trained").code == 0
    with pytest.raises(SystemExit, match="Passes with random drop path cannot be exported"):
        main(["trained", "a.onnx"])
