"""The terms of the architecture's loss against their definitions in other words."""

import math

import pytest
import torch
from torch.distributions import Dirichlet as TorchDirichlet
from torch.distributions import kl_divergence

from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import OneShot
from nas_lightning.strategies.one_shot.parts import Epoch
from nas_lightning.strategies.one_shot.regularizers import Anchor, BetaDecay, beta_loss, kl_from_flat
from nas_lightning.strategies.one_shot.samplers import Dirichlet, concentration


@pytest.fixture
def beta(generator):
    return (2 * torch.randn(6, 5, generator=generator, dtype=torch.float64)).requires_grad_()


def test_the_distance_from_the_flat_distribution_is_torchs(beta):
    c = concentration(beta.detach())
    expected = kl_divergence(TorchDirichlet(c), TorchDirichlet(torch.ones_like(c)))
    torch.testing.assert_close(kl_from_flat(c), expected, rtol=1e-10, atol=1e-10)
    assert kl_from_flat(torch.ones(2, 4)).abs().max() < 1e-6


def test_the_anchor_adds_edges_up(beta):
    space = NasBench201()
    found = Anchor(0.5).term({"cell": beta}, {}, Epoch(0, 1), space.groups)
    c = concentration(beta)
    expected = kl_divergence(TorchDirichlet(c), TorchDirichlet(torch.ones_like(c))).sum() / 2
    torch.testing.assert_close(found, expected)
    start = torch.zeros(6, 5, requires_grad=True)  # where all concentrations are one
    (slope,) = torch.autograd.grad(Anchor(0.5).term({"cell": start}, {}, Epoch(0, 1), space.groups), start)
    assert float(slope.abs().max()) < 1e-6


def test_beta_decay_is_a_mean_of_smooth_maxima(beta):
    rows = [math.log(sum(math.exp(b) for b in row)) for row in beta.tolist()]
    assert beta_loss([beta[:2], beta[2:]]).item() == pytest.approx(sum(rows) / 6, rel=1e-12)
    (slope,) = torch.autograd.grad(beta_loss([beta]), beta)
    torch.testing.assert_close(slope, torch.softmax(beta, dim=-1) / 6)


@pytest.mark.parametrize(("epoch", "weight"), [(0, 0.0), (50, 25.0), (100, 50.0)])
def test_its_weight_grows_linearly(beta, epoch, weight):
    found = BetaDecay().term({"cell": beta}, {}, Epoch(epoch, 101), NasBench201().groups)
    assert found.item() == pytest.approx(weight * beta_loss([beta]).item())


def test_terms_add_up_in_an_architecture_step(generator):
    space = NasBench201()
    supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    search = OneShot(space, supernet, sampler=Dirichlet(), regularizer={"a": Anchor(1.0), "b": Anchor(0.5)})
    alone = OneShot(space, supernet, sampler=Dirichlet(), regularizer=[Anchor(1.5)])
    torch.testing.assert_close(search.regularization(), alone.regularization())
    loss = torch.tensor(2.0)
    assert torch.equal(search.add_penalties(loss), loss + search.regularization())
    assert OneShot(space, supernet).add_penalties(loss) is loss
