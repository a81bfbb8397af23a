"""Points of a plane through weights, against a loop over images; a study of them that was killed."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nas_lightning.data import Fake, SearchData
from nas_lightning.spaces import DartsSpace
from reproductions import thesis_topology as landscape
from reproductions.thesis_topology import Landscape, PlaneWork, filter_direction, judge_point

PAIRS = [("sep_conv_3x3", 0), ("skip_connect", 1)] * 4
CELL = {"normal": PAIRS, "normal_concat": [2, 3, 4, 5], "reduce": PAIRS, "reduce_concat": [2, 3, 4, 5]}


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(27, 4)]
    net = nn.Sequential(*layers).double()
    net(torch.randn(8, 2, 5, 5, dtype=torch.float64))  # running statistics that are not those of any batch
    return net.eval()


@pytest.fixture
def batch():
    random = torch.Generator().manual_seed(1)
    return torch.randn(6, 2, 5, 5, generator=random, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1])


def test_a_direction_s_filters_are_as_long_as_the_weights(network):
    weights = [p.detach() for p in network.parameters()]
    directions = filter_direction(weights, torch.Generator().manual_seed(2))
    for weight, d in zip(weights, directions, strict=True):
        if weight.dim() < 2:
            assert not d.any()
        else:
            torch.testing.assert_close(d.flatten(1).norm(dim=1), weight.flatten(1).norm(dim=1))
            assert not torch.allclose(d, weight)


@pytest.mark.parametrize("place", [(0.0, 0.0), (0.5, -1.0)])
def test_a_point_image_by_image(network, batch, place):
    weights = [p.detach().clone() for p in network.parameters()]
    directions = [filter_direction(weights, torch.Generator().manual_seed(n)) for n in (3, 4)]
    moved = copy.deepcopy(network)
    with torch.no_grad():
        for p, a, b in zip(moved.parameters(), *directions, strict=True):
            p.copy_(p + place[0] * a + place[1] * b)
    rows, losses = [], []
    for x, y in zip(*batch, strict=True):
        loss = F.cross_entropy(moved(x[None]), y[None])
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*moved.parameters()])]))
        losses.append(float(loss.detach()))
    rows = torch.stack(rows)
    variance = (rows - rows.mean(dim=0)).square().sum(dim=1).mean()
    found = judge_point(network, directions, place, batch)
    assert found.loss == pytest.approx(sum(losses) / 6, rel=1e-9)
    assert found.deviation == pytest.approx(float(variance.sqrt()), rel=1e-6)
    for p, before in zip(network.parameters(), weights, strict=True):
        assert torch.equal(p, before)


def test_planes_have_directions_of_their_own(network, batch):
    work = PlaneWork(network, batch, seed=0)
    one, other, center = (work("", place)[1] for place in [(0, 1.0, 0.5), (1, 1.0, 0.5), (1, 0.0, 0.0)])
    assert one != other
    assert center == work("", (0, 0.0, 0.0))[1]


def test_a_killed_study_goes_on(tmp_path, monkeypatch):
    """Half of the points are there, and the weights: nothing is trained again."""
    data = SearchData(Fake(shape=(1, 8, 8), num_classes=3, train_size=32, test_size=4, batch_size=8))
    study = Landscape(cells={"mine": CELL}, connections=0, points=3, planes=1, images=4, epochs=1)

    def network(genotype):
        sizes = {"channels": 2, "cells": 1, "auxiliary": False}
        return DartsSpace().network(genotype, in_channels=1, num_classes=3, **sizes)

    whole = study.run(DartsSpace(), network, data, tmp_path).tables
    path = tmp_path / "points" / "mine.csv"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5]) + lines[5][:7])  # the last line is cut
    monkeypatch.setattr(landscape, "train_curve", None)
    assert study.run(DartsSpace(), network, data, tmp_path).tables == whole
    assert path.read_bytes() == b"".join(lines)
