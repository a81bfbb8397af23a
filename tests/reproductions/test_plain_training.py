"""Curves of trainings against plain SGD, for every task."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from nas_lightning.data import Fake, SearchData
from nas_lightning.jobs.parts import Parts
from nas_lightning.spaces import NasBench201
from nas_lightning.tasks import Binary, MultiLabel, Regression, Segmentation
from reproductions.plain_training import judge, train_curve
from tests.own_tasks import Made


def linear():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))


@pytest.fixture
def data():
    search = SearchData(Fake(train_size=64, shape=(3, 8, 8), num_classes=4, batch_size=8))
    search.setup()
    return search


def test_the_curve_is_that_of_plain_sgd(data):
    """Momentum 0.9 and weight decay 3e-4 by torch's own SGD, a cosine by hand."""
    curve = train_curve(linear(), data, lr=0.05, epochs=3, seed=4)
    network, points = linear(), []
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0, momentum=0.9, weight_decay=3e-4)
    for epoch in range(3):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 + math.cos(math.pi * epoch / 3)) / 2
        losses = []
        for x, y in data.train.shuffled_pass(epoch, 8, 4):
            loss = nn.functional.cross_entropy(network(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        points.append((np.mean(losses), *judge(network, data)))
    np.testing.assert_allclose(np.array(curve).T, points, rtol=1e-5)


def test_diverged_training_ends_with_nan(data):
    curve = train_curve(linear(), data, lr=1e30, epochs=3, seed=0)
    assert np.isnan(curve.score[-1])
    assert all(len(values) == 3 for values in curve)


@pytest.mark.parametrize("task", [Regression(), MultiLabel(), Binary(), Segmentation()], ids=lambda t: t.name)
def test_curve_has_the_score_of_its_task(task):
    data, space, sizes = (
        SearchData(Made(task.name, 64), task=task),
        NasBench201(),
        {"channels": 2, "cells": 1},
    )
    network = Parts(space, data, network_sizes=sizes).network(space.sample(torch.Generator().manual_seed(1)))
    curve = train_curve(network, data, lr=0.05, epochs=2, seed=0)
    x, y = (torch.cat(parts) for parts in zip(*data.valid.whole_pass(), strict=True))
    outputs = network.eval()(x).detach()
    assert curve.score[-1] == pytest.approx(100 * task.judge(outputs, y), rel=1e-4)
    assert np.isfinite(np.array(curve)).all()
