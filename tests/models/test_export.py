"""Exported and frozen networks against the networks that they are of."""

import re
import sys

import pytest
import torch
from torch import nn

import nas_lightning
from nas_lightning.cli.export import main
from nas_lightning.errors import InputError
from nas_lightning.models import Ensemble
from nas_lightning.models.export import FrozenNetwork, export
from nas_lightning.models.file import load, save
from nas_lightning.spaces import DartsSpace, NasBench201
from tests.models.test_file import stored

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


@pytest.mark.parametrize("name", [pytest.param("darts", marks=pytest.mark.slow), "nasbench201"])
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["imagenet", "tiny"])
@pytest.mark.parametrize("suffix", FORMATS)
def test_other_image_sizes(tmp_path, monkeypatch, name, suffix):
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
def test_network_of_one_size_raises(tmp_path, refusal, suffix):
    def dynamic(network):
        export(network, tmp_path / f"a.{suffix}", (3, 8, 8), dynamic_size=True)

    assert "The network fails on images of (3, " in refusal(dynamic, FixedSize())
    message = refusal(dynamic, Branching())
    assert "must be the same for all sizes" in message or "differ from those of the network" in message
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
    main([str(tmp_path), str(target), "--batch", "2", "--dynamic-size"])
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
def test_command_measures_latency(tmp_path, capsys, suffix):
    space, genotype, sizes, network = make("nasbench201")
    save(network, tmp_path / "model.safetensors", space, genotype, sizes, image=IMAGE, classes="abcd")
    main([str(tmp_path), str(tmp_path / f"a.{suffix}"), "--benchmark"])
    *_, said = capsys.readouterr().out.strip().splitlines()
    runtime = {"onnx": "ONNX Runtime", "pt2": "torch.export"}[suffix]
    how = rf"\(median of calls; {runtime}, 1 thread, wall clock\)"
    match = re.fullmatch(rf"([\d.]+) ± [\d.e-]+ ms {how} and ([\d.]+) MB for 1 image at a time", said)
    assert match, said
    assert float(match[1]) > 0
    weights = 4 * sum(value.numel() for value in network.state_dict().values()) / 1e6
    assert weights < float(match[2]) < weights + 4 * 40 * 3 * 9 * 11 * 4 / 1e6


def test_a_file_that_differs_is_not_written(tmp_path, refusal):
    assert "by more than 1.0e-05, got 0.001" in refusal(export, Restless(), tmp_path / "a.pt2")
    assert not list(tmp_path.iterdir())


def test_mistakes_raise_one_line(tmp_path, refusal, monkeypatch):
    *_, network = make("nasbench201")
    assert "must end in .onnx or .pt2, got 'a.pt'" in refusal(export, network, tmp_path / "a.pt")
    with pytest.raises(SystemExit, match="error: The path must be the folder of a run"):
        main([str(tmp_path), "a.onnx"])
    with pytest.raises(
        SystemExit,
        match=r"error: `--batch` must be a number below 10,000, or dynamic, got 'many' .in --batch.",
    ):
        main([str(tmp_path), "a.onnx", "--batch", "many"])
    assert "`batch` must be at least 1, got 0" in refusal(
        lambda: export(network, tmp_path / "a.pt2", batch=0)
    )
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert "pip install 'nas-lightning[export]', got 'no onnxscript'" in refusal(
        export, network, tmp_path / "a.onnx"
    )
    assert not list(tmp_path.iterdir())


def test_help(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "--input" in capsys.readouterr().out


# Frozen networks, and networks in ONNX Runtime


def assert_the_same_network(run, with_normalization, **loading):
    """Outputs to 1e-5 in both layouts and for any number of images, without a gradient; one size of image."""
    plain, other = (
        nas_lightning.load(run, with_normalization=with_normalization, **how) for how in ({}, loading)
    )
    for images in (1, 2, 5):
        x = torch.rand(images, 3, 9, 9)
        for layout in (torch.contiguous_format, torch.channels_last):
            found = other(x.contiguous(memory_format=layout).requires_grad_())
            torch.testing.assert_close(found, plain(x).detach(), rtol=1e-5, atol=1e-5)
            assert not found.requires_grad
    with pytest.raises(InputError, match=r"Images must have shape \(3, 9, 9\), got \(3, 8, 8\)"):
        other(torch.rand(1, 3, 8, 8))


def assert_the_same_ensemble(folder, **loading):
    """The mean of two stored networks that are loaded so is the mean of the two."""
    runs = [folder / "one", folder / "two"]
    for seed, run in enumerate(runs):
        run.mkdir()
        stored(run, NasBench201(), seed=seed)
    plain, other = Ensemble.of_runs(runs), Ensemble.of_runs(runs, **loading)
    x = torch.rand(3, 3, 9, 9)
    torch.testing.assert_close(other(x), plain(x).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("space", [NasBench201, DartsSpace])
@pytest.mark.parametrize("with_normalization", [False, True])
def test_frozen_outputs_equal_the_network(tmp_path, space, with_normalization):
    stored(tmp_path, space())
    assert_the_same_network(tmp_path, with_normalization, optimize=True)


def test_ensembles_of_frozen_networks(tmp_path):
    assert_the_same_ensemble(tmp_path, optimize=True)


def test_optimize_needs_torch(tmp_path):
    stored(tmp_path, NasBench201())
    with pytest.raises(InputError, match="`optimize` needs runtime='torch', got 'onnx'"):
        nas_lightning.load(tmp_path, runtime="onnx", optimize=True)


class ByTheBatch(nn.Module):
    """Decides by the number of images, which a trace does not see."""

    def forward(self, x):
        return x.flatten(1)[:, :2] * (1 if len(x) == 2 else 5)


class ByWords(nn.Module):
    def forward(self, x):
        return {"feature": "text"}


class Several(nn.Module):
    def forward(self, x):
        return {"logits": x.flatten(1)[:, :2], "aux": x}


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (ByTheBatch(), "The outputs differ from those of the network by more than"),
        (ByWords(), "torch cannot freeze"),
    ],
)
def test_network_that_cannot_be_frozen_raises(network, message):
    with pytest.raises(InputError, match=message):
        FrozenNetwork(network, (3, 4, 4))


def test_frozen_network_of_several_outputs_returns_logits():
    x = torch.rand(4, 3, 4, 4)
    torch.testing.assert_close(FrozenNetwork(Several(), (3, 4, 4))(x), x.flatten(1)[:, :2])


@pytest.fixture
def onnx():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")


@pytest.mark.parametrize("with_normalization", [False, True])
def test_onnx_outputs_equal_torch(tmp_path, with_normalization, onnx):
    stored(tmp_path, NasBench201())
    assert_the_same_network(tmp_path, with_normalization, runtime="onnx")


def test_ensembles_of_onnx_networks(tmp_path, onnx):
    assert_the_same_ensemble(tmp_path, runtime="onnx")


def test_unknown_runtime_raises(tmp_path, onnx):
    stored(tmp_path, NasBench201())
    with pytest.raises(InputError, match="did you mean 'onnx'"):
        nas_lightning.load(tmp_path, runtime="onx")
