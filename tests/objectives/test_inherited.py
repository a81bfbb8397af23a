"""Judgments with shared weights against derived networks, plain averages and SciPy."""

import math

import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional as F

from nas_lightning.objectives.inherited import (
    copy_shared_weights,
    judge_genotype,
    kendall_tau,
    log_likelihood,
    place_batches,
    recalibrate,
)
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.spaces.operations import SEARCH_NORM

SPACES = {"darts": (DartsSpace(nodes=2), 3), "nasbench201": (NasBench201(), 1)}


@pytest.fixture(params=SPACES)
def space(request):
    return SPACES[request.param][0]


@pytest.fixture
def sizes(space):
    return {"in_channels": 2, "num_classes": 3, "channels": 4, "cells": dict(SPACES.values())[space]}


@pytest.fixture
def supernet(space, sizes):
    return space.supernet(**sizes)


@pytest.fixture
def batches(generator):
    """Of different sizes, so that a mean of means is not the mean."""
    return [
        (torch.randn(size, 2, 8, 8, generator=generator), torch.randint(3, (size,), generator=generator))
        for size in (6, 9, 4)
    ]


def test_judgment_equals_the_derived_network(space, sizes, supernet, batches, generator):
    """A network built alone, with the supernet's weights and kind of norms, has the same loss."""
    for _ in range(5):
        genotype = space.sample(generator)
        network = space.network(genotype, **sizes, norm=SEARCH_NORM)
        copy_shared_weights(network, supernet)
        with torch.no_grad():
            logits = [network(x) for x, _ in batches]
        losses = [F.cross_entropy(z, y, reduction="none") for z, (_, y) in zip(logits, batches, strict=True)]
        right = [z.argmax(dim=1) == y for z, (_, y) in zip(logits, batches, strict=True)]
        found = judge_genotype(space, supernet, genotype, batches)
        assert found.loss == pytest.approx(float(torch.cat(losses).mean()), rel=1e-5)
        assert found.accuracy == pytest.approx(float(torch.cat(right).double().mean()), rel=1e-12)


def test_judging_preserves_the_supernet(space, supernet, batches, generator):
    before = {name: value.clone() for name, value in supernet.state_dict().items()}
    judge_genotype(space, supernet, space.sample(generator), batches)
    assert all(torch.equal(value, before[name]) for name, value in supernet.state_dict().items())
    assert all(parameter.grad is None for parameter in supernet.parameters())
    assert supernet.training


def test_batches_follow_the_parameters(space, supernet, batches, generator):
    placed = list(place_batches(supernet.double(), batches))
    assert {x.dtype for x, _ in placed} == {torch.float64}
    assert {y.dtype for _, y in placed} == {torch.int64}
    assert math.isfinite(judge_genotype(space, supernet, space.sample(generator), placed).loss)


def test_inherited_weights_are_the_supernets(space, sizes, supernet, generator):
    network = space.network(space.sample(generator), **sizes, auxiliary=False)
    fresh = {name: value.clone() for name, value in network.state_dict().items()}
    copy_shared_weights(network, supernet)
    shared, own = supernet.state_dict(), network.state_dict()
    convolutions = [
        name for name, module in network.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)
    ]
    assert len(convolutions) > 5
    for name in convolutions:
        assert torch.equal(own[name + ".weight"], shared[name + ".weight"]), name
    only_here = [name for name in own if name not in shared]
    assert any(name.endswith("running_mean") for name in only_here)
    assert all(torch.equal(own[name], fresh[name]) for name in only_here)


def test_recalibrated_statistics_are_plain_averages(space, sizes, supernet, batches, generator):
    """Each norm sees its inputs once a batch: mean of the means, mean of the unbiased variances."""
    network = space.network(space.sample(generator), **sizes, auxiliary=False)
    copy_shared_weights(network, supernet)
    seen = {}
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.register_forward_pre_hook(lambda module, x: seen.setdefault(module, []).append(x[0].detach()))
    momenta = [norm.momentum for norm in norms]
    network.eval()
    recalibrate(network, batches)
    assert not network.training
    assert [norm.momentum for norm in norms] == momenta
    for norm in norms:
        inputs = seen[norm]
        assert len(inputs) == len(batches)
        mean = torch.stack([x.mean(dim=(0, 2, 3)) for x in inputs]).mean(dim=0)
        variance = torch.stack([x.transpose(0, 1).flatten(1).var(dim=1) for x in inputs]).mean(dim=0)
        torch.testing.assert_close(norm.running_mean, mean, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(norm.running_var, variance, rtol=1e-4, atol=1e-6)


def test_recalibration_restores_accuracy(space, sizes, supernet, batches, generator):
    """Its evaluation of a batch is then its training on it, but for the unbiased variance."""
    network = space.network(space.sample(generator), **sizes)
    copy_shared_weights(network, supernet)
    x = torch.cat([x for x, _ in batches])
    with torch.no_grad():
        expected = network.train()(x)
        stale = network.eval()(x)
        recalibrate(network, [(x, torch.zeros(len(x)))])
        found = network(x)
    assert float((found - expected).abs().max()) < 0.2 * float((stale - expected).abs().max())


def test_log_likelihood_in_plain_numbers():
    space = SPACES["nasbench201"][0]
    group = space.groups["cell"]
    scores = {"cell": torch.arange(1.0, 31.0).view(6, 5)}  # rows need not sum to one
    genotype = space.parse(
        "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|avg_pool_3x3~0|nor_conv_1x1~1|nor_conv_3x3~2|"
    )
    table, total = scores["cell"].tolist(), 0.0
    for op, source, target in genotype["cell"].edges:
        row = table[group.edges.index((source, target))]
        total += math.log(row[group.ops.index(op)] / sum(row))
    assert log_likelihood(space, scores, genotype) == pytest.approx(total, rel=1e-6)


def test_log_likelihood_of_the_most_likely_is_largest(generator):
    space = DartsSpace(nodes=1)
    scores = {name: torch.rand(group.shape, generator=generator) for name, group in space.groups.items()}
    best = space.discretize(scores)
    chosen = log_likelihood(space, scores, best)
    others = [space.sample(generator) for _ in range(30)]
    shares = {name: matrix / matrix.sum(dim=1, keepdim=True) for name, matrix in scores.items()}
    best_of_shares = log_likelihood(space, shares, space.discretize(shares))
    assert best_of_shares >= max(log_likelihood(space, scores, genotype) for genotype in others)
    assert chosen == pytest.approx(log_likelihood(space, shares, best), rel=1e-6)


def test_impossible_operation_has_finite_likelihood():
    space = SPACES["nasbench201"][0]
    scores = {"cell": torch.tensor([[0.0, 1.0, 1.0, 1.0, 1.0]]).repeat(6, 1)}
    none = space.parse("|none~0|+|nor_conv_3x3~0|none~1|+|none~0|none~1|none~2|")
    real = space.parse(
        "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|"
    )
    assert math.isfinite(log_likelihood(space, scores, none))
    assert log_likelihood(space, scores, none) < log_likelihood(space, scores, real) - 100


@pytest.mark.parametrize("ties", [False, True])
def test_kendall_tau_equals_scipy(generator, ties):
    for _ in range(10):
        score = torch.randn(25, generator=generator, dtype=torch.float64)
        loss = torch.randn(25, generator=generator, dtype=torch.float64) - 0.5 * score
        if ties:
            score, loss = (4 * score).round(), (2 * loss).round()
        expected = stats.kendalltau(score.numpy(), -loss.numpy()).statistic
        assert kendall_tau(score.tolist(), loss.tolist()) == pytest.approx(expected, abs=1e-6)
    assert kendall_tau([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == -1.0
