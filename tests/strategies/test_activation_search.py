"""Activation search: what is mixed, what is clipped, what decays."""

import pytest
import torch
from pytorch_lightning import Trainer

from nas_lightning.spaces import DartsSpace, Mlp
from nas_lightning.strategies import ActivationSearch, Darts
from nas_lightning.strategies.one_shot.samplers import is_skip


@pytest.fixture
def space():
    return Mlp(layers=4)


@pytest.fixture
def start(space):
    def make(**options):
        torch.manual_seed(1)
        return ActivationSearch(space, space.supernet(in_channels=1, num_classes=3, width=6), **options)

    return make


def test_weights(start):
    strategy = start()
    with torch.no_grad():
        strategy.arch["skip"].copy_(torch.tensor([[0.25], [1.0]]))
        strategy.arch["activation"][0].copy_(torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0]))
    weights = strategy.relax().weights
    torch.testing.assert_close(weights["skip"], torch.tensor([[0.75, 0.25], [0.0, 1.0]]))
    exp = torch.arange(5.0).exp()
    torch.testing.assert_close(weights["activation"][0], exp / exp.sum())
    assert strategy.space.decisions(strategy.derive()[0])[1] == [False, True]


@pytest.mark.parametrize(("slope", "end"), [(-1.0, 1.0), (1.0, 0.0)])
def test_skips_are_clipped(start, data, trainer, slope, end):
    """With an arch_lr that leaves [0, 1] in one step, whichever way the loss pulls."""

    class Pulled(ActivationSearch):
        def arch_gradients(self, batch):
            return [slope * torch.ones_like(parameter) for parameter in self.arch_list]

    strategy = start(arch_lr=2.0)
    strategy.__class__ = Pulled
    trainer(1).fit(strategy, data())
    assert strategy.arch["skip"].detach().flatten().tolist() == [end, end]
    assert float(strategy.arch["activation"].detach().abs().min()) > 1.0  # these are free


def test_only_what_has_a_softmax_decays(start):
    strategy = start(arch_weight_decay=0.1)
    strategy.trainer = Trainer(max_epochs=1, logger=False)
    groups = strategy.configure_optimizers()[1].param_groups
    found = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert found == {id(strategy.arch["activation"]): 0.1, id(strategy.arch["skip"]): 0.0}


def test_without_skips_of_their_own_it_is_darts(cell_space, supernet):
    mine, darts = (kind(cell_space, supernet(cell_space), seed=3) for kind in (ActivationSearch, Darts))
    assert torch.equal(mine.relax().weights["cell"], darts.relax().weights["cell"])
    assert not any(is_skip(group) for group in DartsSpace().groups.values())
