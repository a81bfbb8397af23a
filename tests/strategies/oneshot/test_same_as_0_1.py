"""The strategies of version 0.1, which were classes, are compositions that take the same steps."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.layout_step import PLAIN
from nas_lightning.spaces import DartsSpace, darts, graph
from nas_lightning.spaces.depthwise import DepthwiseConv2d
from nas_lightning.strategies.derivation import Perturbation
from tests.strategies.oneshot.fits_of_0_1 import SEARCHES, digest, images, record

RECORD = json.loads(Path(__file__).with_name("fits_of_0_1.json").read_text())
ROUNDING = "90c422c3fd59bd16"
"""`rounding()` where version 0.1 was recorded."""


def rounding():
    """A digest of what torch itself computes, which processors and versions of torch round differently."""
    draw = torch.Generator().manual_seed(9)
    x, _ = images(draw)
    found = []
    for kernel, groups, dilation in [(1, 1, 1), (3, 1, 1), (3, 4, 2), (5, 4, 2)]:
        shape = (4, 4 // groups, kernel, kernel)
        weight = (torch.rand(shape, generator=draw, dtype=torch.float64) - 0.5).requires_grad_()
        y = F.batch_norm(x.expand(-1, 4, -1, -1), None, None, training=True)
        y = F.conv2d(y, weight, padding="same", dilation=dilation, groups=groups).relu()
        loss = F.cross_entropy(F.avg_pool2d(y, 3).mean(dim=(2, 3)), torch.arange(4))
        found += [y, *torch.autograd.grad(loss, weight)]
    found += [torch.softmax(x, dim=-1), torch.log(x.abs()), torch.sigmoid(x)]
    return digest(*found)


def test_every_search_is_recorded():
    assert set(RECORD) == set(SEARCHES)


@pytest.mark.parametrize("name", SEARCHES)
def test_twenty_steps(name, monkeypatch):
    """To the bit, with torch's own depthwise gradients, slices and sums of maps, which version 0.1 had."""
    monkeypatch.setattr(DepthwiseConv2d, "forward", nn.Conv2d.forward)
    for (module, attribute), way in PLAIN.items():
        if module is not darts:  # whose gradients were dense then
            monkeypatch.setattr(module, attribute, way)
    monkeypatch.setattr(graph._Run, "parts", divide_for_each_reader)
    new = record(name, Perturbation)
    check_agreement(new, RECORD[name])
    if rounding() == ROUNDING:
        assert new["digest"] == RECORD[name]["digest"]


def divide_for_each_reader(run, source):
    """Slices of a node that no two edges share, so that their gradients are added up one by one."""
    node, count = run.nodes[source], run.nodes[source].shape[1] // run.graph.partial
    return node[:, :count], run.read_strided(node[:, count:], source)


@pytest.mark.parametrize(
    "name", [name for name, parts in SEARCHES.items() if isinstance(parts[1], DartsSpace)]
)
def test_twenty_steps_with_our_gradients(name):
    check_agreement(record(name, Perturbation), RECORD[name])


def check_agreement(new, old):
    """As far as numbers agree that are rounded otherwise."""
    assert new["genotype"] == old["genotype"]
    assert new["generator"] == old["generator"]
    assert new["arch"].keys() == old["arch"].keys()
    for key, matrix in old["arch"].items():
        assert flat(new["arch"][key]) == pytest.approx(flat(matrix), rel=1e-9, abs=1e-12), key
    assert new["weights"] == pytest.approx(old["weights"], rel=1e-11)
    assert old["metrics"].keys() <= new["metrics"].keys()
    assert {k: new["metrics"][k] for k in old["metrics"]} == pytest.approx(old["metrics"], rel=1e-6)
    if "perturbed" in old:
        assert new["perturbed"][0] == old["perturbed"][0]
        assert new["perturbed"][1] == pytest.approx(old["perturbed"][1], rel=1e-11)


def flat(matrix):
    return [value for row in matrix for value in (row if isinstance(row, list) else [row])]
