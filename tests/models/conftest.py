"""A folder of 300 images of three classes, five of them damaged, and a network for them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nas_lightning import save
from nas_lightning.spaces import NasBench201

CLASSES = ("blue", "green", "<b>red")
DAMAGED = ("blue/cut.png", "green/empty.jpg", "<b>red/text.png", "other.gif", "=1+1.webp")
SPACE, SIZES = NasBench201(), {"channels": 4, "cells": 1}


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    root, random = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for number in range(295):
        name = CLASSES[number % 3]
        pixels = random.integers(0, 256, (12, 12, 3), dtype=np.uint8)
        pixels[..., 2 - number % 3] //= 3
        mode = ("RGB", "RGBA", "L", "P")[number % 4]
        path = root / name / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).convert(mode).save(path)
    whole = (root / "blue" / "0.png").read_bytes()
    for name, content in zip(DAMAGED, (whole[:60], b"", b"hello", b"GIF89a", whole[:9]), strict=True):
        (root / name).write_bytes(content)
    return root


def write_network(folder: Path, seed: int, channels: int = 3) -> Path:
    torch.manual_seed(seed)
    genotype = SPACE.sample(torch.Generator().manual_seed(0))
    network = SPACE.network(genotype, in_channels=channels, num_classes=3, **SIZES).eval()
    normalization = {"mean": [0.4] * channels, "std": [0.2] * channels}
    image = (channels, 12, 12)
    save(
        network,
        folder / "model.safetensors",
        SPACE,
        genotype,
        SIZES,
        image=image,
        classes=CLASSES,
        **normalization,
    )
    return folder


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    return write_network(tmp_path_factory.mktemp("run"), seed=0)
