"""Exported files against the network that they are of, run by other programs."""

import re
import sys

import pytest
import torch
from torch import nn

from nas_lightning.models.export import export, main
from nas_lightning.models.file import load, save
from nas_lightning.spaces import DartsSpace, NasBench201

SPACES = {
    "darts": (DartsSpace(), {"channels": 4, "cells": 3}),
    "nasbench201": (NasBench201(), {"channels": 4, "cells": 1}),
}
FORMATS = ("onnx", "pt2")
IMAGE = (3, 9, 11)


def make(name, auxiliary=False, image=IMAGE):
    space, sizes = SPACES[name]
    genotype = space.sample(torch.Generator().manual_seed(1))
    sizes = {**sizes, "auxiliary": auxiliary}
    network = space.network(genotype, in_channels=image[0], num_classes=4, **sizes)
    for _ in range(3):  # statistics that are not those of new batch norms
        network(torch.randn(8, *image))
    return space, genotype, sizes, network


def outputs(path, x):
    if path.suffix == ".pt2":
        return torch.export.load(path).module()(x)
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"images": x.numpy()})[0])


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("suffix", FORMATS)
def test_outputs_are_those_of_the_network(tmp_path, name, suffix):
    """Odd sides, any number of images, an auxiliary head that is left out, a network in training mode."""
    *_, network = make(name, auxiliary=True)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    found = export(network, tmp_path / f"a.{suffix}", IMAGE)
    assert network.training
    assert network.auxiliary is not None
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert found.size == found.path.stat().st_size
    assert [path.name for path in tmp_path.iterdir()] == [f"a.{suffix}"]
    *_, small = make(name)
    stored = 4 * sum(value.numel() for value in small.state_dict().values())
    with_head = 4 * sum(value.numel() for value in before.values())
    assert found.size < stored + (with_head - stored) / 2
    for batch in (1, 4):
        x = torch.randn(batch, *IMAGE)
        with torch.no_grad():
            expected = network.eval()(x)
        torch.testing.assert_close(outputs(found.path, x), expected, rtol=0, atol=1e-5)
    assert found.difference <= 1e-5


LARGE = {
    "imagenet": (DartsSpace(nodes=2), {"channels": 4, "cells": 3, "stem": "imagenet"}),
    "tiny": (DartsSpace(nodes=2), {"channels": 4, "cells": 3, "stem_stride": 2}),
}


@pytest.mark.parametrize("name", ["imagenet", pytest.param("tiny", marks=pytest.mark.slow)])
@pytest.mark.parametrize("suffix", FORMATS)
def test_other_sizes_than_that_of_training(tmp_path, monkeypatch, name, suffix):
    """Of a torch.export program those that differ by a multiple of 32; ONNX takes odd ones, too."""
    monkeypatch.setattr("tests.models.test_export.SPACES", {**SPACES, **LARGE})
    *_, network = make(name, image=(3, 64, 64))
    found = export(network, tmp_path / f"a.{suffix}", (3, 64, 64), dynamic_size=True)
    assert found.difference <= 1e-5
    network.eval()
    for size in [(64, 64), (96, 160)] + [(65, 75)] * (suffix == "onnx"):
        x = torch.randn(3, 3, *size)
        with torch.no_grad():
            torch.testing.assert_close(outputs(found.path, x), network(x), rtol=0, atol=1e-5)


class FixedSize(nn.Module):
    """Its classifier counts pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3 * 8 * 8, 4)

    def forward(self, x):
        return self.head(x.flatten(1))


class Branching(nn.Module):
    """Takes any size, and has another rule for one of them."""

    def forward(self, x):
        return x.amax((2, 3)) if x.shape[-1] == 8 else x.mean((2, 3))


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_network_for_one_size_is_told_in_one_line(tmp_path, refusal, suffix):
    def dynamic(network):
        export(network, tmp_path / f"a.{suffix}", (3, 8, 8), dynamic_size=True)

    assert "a network that takes images of (3, " in refusal(dynamic, FixedSize())
    message = refusal(dynamic, Branching())
    assert "steps are the same for all sizes" in message or "of the network's" in message
    assert not list(tmp_path.iterdir())
    export(FixedSize(), tmp_path / f"a.{suffix}", (3, 8, 8))


@pytest.mark.parametrize("suffix", FORMATS)
def test_command_with_a_fixed_batch_and_normalization(tmp_path, capsys, suffix):
    space, genotype, sizes, network = make("nasbench201")
    scale = {"mean": (0.2, 0.3, 0.4), "std": (0.5, 0.6, 0.7)}
    save(
        network, tmp_path / "model.safetensors", space, genotype, sizes, image=IMAGE, classes="abcd", **scale
    )
    target = tmp_path / "out" / f"a.{suffix}"
    main([str(tmp_path), str(target), "--batch", "2", "--with-normalization", "--dynamic-size"])
    printed = capsys.readouterr().out
    assert f"{target}: {target.stat().st_size:,} bytes, outputs differ by at most" in printed
    x = torch.rand(2, *IMAGE)
    with torch.no_grad():
        expected = load(tmp_path, with_normalization=True)(x)
    torch.testing.assert_close(outputs(target, x), expected, rtol=0, atol=1e-5)
    outputs(target, torch.rand(2, 3, 41, 43))
    with pytest.raises(Exception, match=r"Got: 3 Expected: 2|size\(\)\[0\] == 2"):
        outputs(target, torch.rand(3, *IMAGE))


class Restless(nn.Module):
    """Gives another answer each time, so that no file can agree with it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x.mean(dim=(2, 3)) + 1e-3 * self.calls


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_command_says_how_long_the_file_takes(tmp_path, capsys, suffix):
    space, genotype, sizes, network = make("nasbench201")
    save(network, tmp_path / "model.safetensors", space, genotype, sizes, image=IMAGE, classes="abcd")
    main([str(tmp_path), str(tmp_path / f"a.{suffix}"), "--benchmark"])
    *_, said = capsys.readouterr().out.strip().splitlines()
    match = re.fullmatch(r"([\d.]+) ± [\d.e-]+ ms and ([\d.]+) MB for 1 image at a time", said)
    assert match, said
    assert float(match[1]) > 0
    weights = 4 * sum(value.numel() for value in network.state_dict().values()) / 1e6
    assert weights < float(match[2]) < weights + 4 * 40 * 3 * 9 * 11 * 4 / 1e6


def test_a_file_that_differs_is_not_written(tmp_path, refusal):
    assert "within 1.0e-05 of the network's" in refusal(export, Restless(), tmp_path / "a.pt2")
    assert not list(tmp_path.iterdir())


def test_mistakes_are_one_line(tmp_path, refusal, monkeypatch):
    *_, network = make("nasbench201")
    assert "ends in .onnx or .pt2, got 'a.pt'" in refusal(export, network, tmp_path / "a.pt")
    with pytest.raises(SystemExit, match="error: expected the folder of a run"):
        main([str(tmp_path), "a.onnx"])
    with pytest.raises(
        SystemExit, match=r"error: expected a number below 10,000 or dynamic, got 'many' .in --batch."
    ):
        main([str(tmp_path), "a.onnx", "--batch", "many"])
    assert "at least one image, got 0" in refusal(lambda: export(network, tmp_path / "a.pt2", batch=0))
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert "pip install 'nas-lightning[export]', got 'no onnxscript'" in refusal(
        export, network, tmp_path / "a.onnx"
    )
    assert not list(tmp_path.iterdir())


def test_help_says_what_it_takes(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "--with-normalization" in capsys.readouterr().out
