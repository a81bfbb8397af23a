"""The next commands that a run prints can be run, for each space with non-default settings."""

import re
import shlex
from pathlib import Path

import pytest
import torch

import nas_lightning
import nas_lightning.cli.export
from nas_lightning.genotype import read_genotypes
from tests.yamls import options, small

IMAGES = ("dataset=fake", "dataset.shape=[1,8,8]", "dataset.train_size=32", "dataset.test_size=16")
FURTHER = {
    "two nodes": ("darts", "space.nodes=2"),
    "three operations": ("nasbench201", "space.ops=[none,nor_conv_3x3,sep_conv_3x3]"),
}
CASES = {**{name: (name,) for name in options("space")}, **FURTHER}
GHOST = '''
import torch
from torch import nn


class GhostConv(nn.Module):
    """GhostConv (arXiv:1911.11907): half of the channels from a convolution, half from a depthwise one."""

    def __init__(self, channels, stride, norm):
        super().__init__()
        half = (channels + 1) // 2
        self.first = nn.Conv2d(channels, half, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False)
        self.channels, self.norm = channels, norm(channels)

    def forward(self, x):
        x = self.first(x)
        return self.norm(torch.cat([x, self.second(x)], dim=1)[:, : self.channels])
'''
CELL_SPACES = {
    "darts": "skip_connect",
    "darts_nasi": "skip_connect",
    "nasbench201": "none,skip_connect",
    "nasbench101": "maxpool3x3",
    "nasbench1shot1_s1": "maxpool3x3",
}


def some(cases, fast):
    """All cases; `make test` runs some of them."""
    return [case if case in fast else pytest.param(case, marks=pytest.mark.slow) for case in sorted(cases)]


def printed(out: str, purpose: str) -> str:
    """Return the command under a heading of the output."""
    found = re.search(rf"^{purpose}:\n  (.+)$", out, re.MULTILINE)
    assert found, out
    return found[1]


def arguments_of(line: str, program: str) -> list[str]:
    """Return the arguments of a printed command."""
    parts = shlex.split(line)
    place = next(i for i, part in enumerate(parts) if part.endswith(program))
    return parts[place + 1 :]


def run_printed_commands(command, *chosen: str) -> tuple[nas_lightning.models.file.Description, str]:
    """Search, train, and load with the printed commands; return the description and the last arguments."""
    searched = command("search", "strategy=random", "strategy.count=1", *chosen, *IMAGES, "run=searched")
    assert searched.code == 0, searched.err
    quick = ("trainer.max_epochs=1", "run=trained")
    trained = command("train", *arguments_of(printed(searched.out, "Train it"), "nas-train"), *quick)
    assert trained.code == 0, trained.err
    namespace = {"nas_lightning": nas_lightning}
    exec(printed(trained.out, "Use it in Python"), namespace)
    assert namespace["network"](torch.zeros(1, 1, 8, 8)).shape == (1, 4)
    known = nas_lightning.describe("trained")
    assert known.genotype == read_genotypes("searched")[0]
    return known, trained.out


@pytest.mark.parametrize("case", some(CASES, ("resnet", "mlp", "two nodes", "three operations")))
def test_printed_commands(command, case):
    name, *settings = CASES[case]
    known, _ = run_printed_commands(command, f"space={name}", *small("space", name), *settings)
    for override in settings:
        key, value = override.removeprefix("space.").split("=")
        assert str(known.settings[key]).replace("'", "").replace(" ", "") == value


@pytest.fixture
def ghost(tmp_path, monkeypatch) -> str:
    (tmp_path / "ghost_ops.py").write_text(GHOST)
    monkeypatch.syspath_prepend(tmp_path)
    return "ghost_ops.GhostConv"


@pytest.mark.parametrize("name", some(CELL_SPACES, ("darts",)))
def test_custom_operation_is_searched_trained_drawn_and_exported(command, ghost, name):
    ops = f"space.ops=[{CELL_SPACES[name]},{ghost}]"
    known, out = run_printed_commands(command, f"space={name}", *small("space", name), ops)
    assert ghost in known.genotype.ops
    assert "GhostConv" in Path("searched/report.html").read_text()
    target = arguments_of(printed(out, "Export it"), "nas-export")
    nas_lightning.cli.export.main([word.replace(".onnx", ".pt2") for word in target])
    assert Path("trained/model.pt2").is_file()


@pytest.mark.parametrize("name", some(CELL_SPACES.keys() - {"nasbench101"}, ("nasbench1shot1_s1",)))
def test_supernet_with_a_custom_operation(command, ghost, name):
    ops = f"space.ops=[{CELL_SPACES[name]},{ghost}]"
    chosen = (f"space={name}", *small("space", name), ops, *IMAGES, "trainer.max_epochs=1")
    outcome = command("search", "strategy=darts", *chosen, "run=searched")
    assert outcome.code == 0, outcome.err
    weights = torch.load("searched/checkpoints/last.ckpt", weights_only=True)["state_dict"]
    assert any("ghost" in key or "second.weight" in key for key in weights)
