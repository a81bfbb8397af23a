"""SupernetStrategy: long runs, limits, gradients, and external data."""

import random

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import CombinedLoader
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from nas_lightning.callbacks import DataLoaderState, RNGState
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.spaces.constrained import Bounds, limit_space
from nas_lightning.strategies import Darts, Evolution, Hnas, Nasi, RandomCandidates, RandomWS
from nas_lightning.strategies.black_box.base import BlackBox
from nas_lightning.strategies.nesbs.strategy import Nesbs
from nas_lightning.strategies.supernet import LimitPressure
from nas_lightning.training.gradients import constant, gradients
from tests.own_data import CHANNELS, CLASSES, FORMS, STEPS, TRAIN, VALID, OnlyLightning, Samples, loader
from tests.strategies.conftest import config

# Some hundred steps, whatever they draw: each strategy at its defaults in every space that it takes.


BATCH = 4
LONG = 300


def check_end(strategy):
    """All that it has is finite, and what it derives is an architecture of its space."""
    assert all(bool(torch.isfinite(value).all()) for value in strategy.state_dict().values())
    genotypes = strategy.derive()
    assert genotypes
    for genotype in genotypes:
        strategy.space.check(genotype)


@pytest.mark.slow
def test_three_hundred_steps(search, trainer, fits, sharing_name, space_name):
    if not fits(sharing_name, space_name):
        pytest.skip("the strategy refuses the space, which test_contract holds it to")
    sizes = (f"dataset.train_size={2 * LONG * BATCH}", f"dataset.batch_size={BATCH}")
    strategy, data = search(sharing_name, space_name, *sizes, "search_data.train_fraction=0.5")
    fit = trainer(1)
    fit.fit(strategy, data)
    assert fit.global_step == LONG
    check_end(strategy)


@pytest.mark.filterwarnings("ignore:metrics disagree with themselves")  # as they do on so small networks
@pytest.mark.slow
def test_all_rounds_of_a_search_without_shared_weights(search, trainer, fits, alone_name, space_name):
    """As many as its yaml has; NASI, whose step is a sampled architecture, as many as the others."""
    if not fits(alone_name, space_name):
        pytest.skip("the strategy refuses the space, which test_contract holds it to")
    settings = config(alone_name, space_name).trainer
    batches = settings.limit_train_batches
    sizes = (f"dataset.train_size={max(24, 2 * batches * BATCH)}", f"dataset.batch_size={BATCH}")
    strategy, data = search(alone_name, space_name, *sizes, "search_data.train_fraction=0.5")
    rounds = settings.max_epochs if isinstance(strategy, BlackBox) else LONG // batches
    fit = trainer(rounds, limit_train_batches=batches)
    fit.fit(strategy, data)
    assert fit.global_step == rounds * batches
    check_end(strategy)


# The multiplier alone: a loss that wants the dearest operations everywhere, and a limit on them.

SPACE = NasBench201()
CONV = SPACE.ops.index("nor_conv_3x3")


def descend(limit, steps=1500):
    """What β stands for in each step: how many convolutions, where edge i gains i + 1 from having one."""
    bounds = Bounds(SPACE, {"convs": limit}, lambda g: {"convs": float(g.ops.count("nor_conv_3x3"))})
    space = limit_space(SPACE, bounds)
    pressure, beta = LimitPressure(space), torch.zeros(6, 5, requires_grad=True)
    optimizer, gain, counts = torch.optim.Adam([beta], lr=0.01), torch.arange(1.0, 7.0) / 6, []
    for _ in range(steps):
        p = torch.softmax(beta, dim=1)
        loss = -(gain * p[:, CONV]).sum() + pressure.term({"cell": p})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pressure.ascend({"cell": p.detach()})
        counts.append(space.unlimited.discretize({"cell": p.detach()}).ops.count("nor_conv_3x3"))
    return counts, pressure.multipliers.item()


def test_multiplier_stays_zero_within_the_limit():
    counts, multiplier = descend(limit=6.0)
    assert counts[-1] == 6
    assert multiplier == 0.0


@pytest.mark.parametrize("limit", [2.0, pytest.param(4.0, marks=pytest.mark.slow)])
def test_the_multiplier_rises_until_the_limit_is_kept(limit):
    counts, multiplier = descend(limit)
    assert max(counts) > limit  # it was broken first
    last = counts[-300:]
    assert sum(count <= limit for count in last) > 0.5 * len(last)
    assert max(last) <= limit + 1
    assert min(last) >= limit - 2  # and no more is given up than has to be
    assert multiplier > 0


def test_expected_costs_have_the_gradient_of_finite_differences():
    bounds = Bounds(SPACE, {"convs": 2.0}, lambda g: {"convs": float(g.ops.count("nor_conv_3x3"))})
    pressure = LimitPressure(limit_space(SPACE, bounds)).double()
    pressure.multipliers.fill_(0.7)
    beta = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda b: pressure.term({"cell": torch.softmax(b, dim=1)}), (beta,))


# Parameters that a pass is not differentiated for: nothing is kept for them, and they are as they were.


def kept(forward):
    """Bytes that autograd keeps, each storage once."""
    sizes = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()
    return result, sum(sizes.values())


def test_the_architectures_gradient_is_the_same_and_keeps_less():
    torch.manual_seed(0)
    space = DartsSpace(nodes=2)
    darts = Darts(space, space.supernet(in_channels=1, num_classes=3, channels=4, cells=3))
    x, y = torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    loss, everything = kept(lambda: darts.loss_and_logits((x, y), darts.relax())[0])
    expected = gradients(loss, darts.arch_list)
    with constant(darts.weight_list):
        loss, less = kept(lambda: darts.loss_and_logits((x, y), darts.relax())[0])
        found = gradients(loss, darts.arch_list)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)
    assert less < 0.9 * everything
    assert all(weight.requires_grad for weight in darts.weight_list)


def test_constant_restores_requires_grad():
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    with constant(layer.parameters()):
        assert not any(parameter.requires_grad for parameter in layer.parameters())
    assert [layer.weight.requires_grad, layer.bias.requires_grad] == [True, False]
    with pytest.raises(RuntimeError), constant(layer.parameters()):
        layer(torch.ones(3, 3))  # of another size
    assert [layer.weight.requires_grad, layer.bias.requires_grad] == [True, False]


# Every family of strategies takes data in every form.

SHORT = {"population": 2, "sample": 1, "evaluation": "training", "epochs": 1}
FAMILIES = {
    "one-shot": lambda space, net, data: Darts(space, net),
    "selection": lambda space, net, data: RandomWS(
        space, net, data, selection=RandomCandidates(candidates=2, valid_batches=1)
    ),
    "nesbs": lambda space, net, data: Nesbs(space, net, data, rounds=1, svgd_steps=2, delta=0.0),
    "nasi": lambda space, net, data: Nasi(space, net, data, nu_samples=1, fixed_batch=True),
    "kernel": lambda space, net, data: Hnas(space, net, data, pool_size=8, images=4, starts=2, epochs=1),
    "short trainings": lambda space, net, data: Evolution(
        space, net, data, population=2, sample=1, evaluation="training", epochs=1
    ),
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The ``compute`` method of metric .* was called before"),
    pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`"),
    pytest.mark.filterwarnings("ignore:Your `IterableDataset` has `__len__` defined"),
]


def parts_for(family, space, data):
    sizes = {"in_channels": data.image[0], "num_classes": data.num_classes, "channels": 2, "cells": 1}
    if family in ("kernel", "short trainings"):
        return lambda genotype: space.network(genotype, **sizes)
    return space.supernet(**sizes)


PAIRS = [(form, [*FAMILIES][number % len(FAMILIES)]) for number, form in enumerate(FORMS)]
ALL_PAIRS = [
    pytest.param(
        form, family, marks=[] if (form, family) in PAIRS or family == "one-shot" else pytest.mark.slow
    )
    for form in FORMS
    for family in FAMILIES
]


@pytest.mark.parametrize(("form", "family"), ALL_PAIRS)
def test_external_data_of_every_form(form, family, cell_space, trainer):
    torch.manual_seed(0)
    data = FORMS[form]()
    assert (data.image, data.num_classes) == ((CHANNELS, 8, 8), CLASSES)
    strategy = FAMILIES[family](cell_space, parts_for(family, cell_space, data), data)
    whole = family not in ("kernel", "short trainings")
    fit = trainer(1, **({} if whole else {"limit_train_batches": 1}))
    fit.fit(strategy, data)
    for genotype in strategy.derive():
        cell_space.check(genotype)
    assert fit.num_training_batches in ((STEPS.get(form, 4), float("inf")) if whole else (1,))
    assert fit.global_step == (STEPS.get(form, 4) if whole else 1)


def test_loaders_that_lightning_pairs(cell_space, supernet, trainer):
    """Without `SearchData`: the strategy reads both sides."""
    dicts = Samples(lambda x, y: {"img": x[:1], "target": y[None].to(torch.uint8)})
    pair = CombinedLoader({"train": loader(dicts), "valid": loader(dicts)}, "max_size_cycle")
    fit = trainer(1)
    fit.fit(Darts(cell_space, supernet(cell_space)), pair)
    assert fit.global_step == 4


class StopAt(pl.Callback):
    """Writes a checkpoint after some steps and ends the run."""

    def __init__(self, step, path):
        self.step, self.path = step, path

    def on_train_batch_end(self, trainer, *args):
        if trainer.global_step == self.step:
            self.stop(trainer)

    def on_train_epoch_end(self, trainer, module):
        if self.step == "epoch":
            self.stop(trainer)

    def stop(self, trainer):
        trainer.save_checkpoint(self.path)
        raise KeyboardInterrupt


class Noisy(Samples):
    """Draws from every generator that there is."""

    def __init__(self, count=32):
        super().__init__(lambda x, y: (x, y), count)

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x.float() / 255 + torch.rand(()) + random.random() + np.random.rand(), y


@pytest.mark.parametrize("step", [3, "epoch"])
@pytest.mark.parametrize("form", ["noise", "shorter side"])
def test_external_data_search_resumes_to_the_same_bits(form, step, cell_space, trainer, tmp_path):
    own = {
        "noise": lambda: SearchData(loader(Noisy()), loader(Noisy(16))),
        "shorter side": lambda: SearchData(Noisy(), Noisy(8), batch_size=8),
    }
    end = {}
    for name in ("whole", "stopped", "resumed"):
        torch.manual_seed(0)
        data = (own.get(form) or FORMS[form])()
        net = cell_space.supernet(in_channels=CHANNELS, num_classes=CLASSES, channels=2, cells=1)
        strategy, path = Darts(cell_space, net), tmp_path / "at.ckpt"
        torch.manual_seed({"whole": 1, "stopped": 1, "resumed": 2}[name])
        stop = [StopAt(step, path)] if name == "stopped" else []
        fit = trainer(2, RNGState(), DataLoaderState(), *stop)
        try:
            fit.fit(strategy, data, ckpt_path=path if name == "resumed" else None, weights_only=False)
        except (KeyboardInterrupt, SystemExit):
            assert name == "stopped"
        end[name] = strategy.state_dict()
        if name != "stopped":
            assert fit.global_step == 8
    for name, value in end["whole"].items():
        assert torch.equal(value, end["resumed"][name]), name
    assert not torch.equal(end["stopped"]["supernet.head.weight"], end["whole"]["supernet.head.weight"])


def test_loaders_have_their_own_random_numbers():
    one, two = (SearchData(loader(Noisy()), loader(Noisy(16))) for _ in range(2))
    torch.manual_seed(1)
    first = [batch["train"][0] for batch in one.train_dataloader()]
    torch.manual_seed(2)
    second = []
    for batch in two.train_dataloader():
        torch.rand(3)
        second.append(batch["train"][0])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    epoch = two.train_dataloader()
    epoch.set_epoch(1)
    assert not torch.equal(first[0], next(iter(epoch))["train"][0])


@pytest.mark.parametrize("family", ["selection", "nesbs", "nasi", "kernel"])
def test_external_data_without_search_data_is_rejected(family, cell_space, refusal):
    data = SearchData(TRAIN, VALID)
    message = refusal(FAMILIES[family], cell_space, parts_for(family, cell_space, data), OnlyLightning())
    assert "`data` must be an instance of SearchData" in message


@pytest.mark.parametrize(("name", "sides"), [("one-shot", ("train", "val")), ("nasi", ("training", "valid"))])
def test_missing_side_is_rejected(name, sides, cell_space, trainer):
    """NASI needs no validation part."""
    data = SearchData(TRAIN, VALID)
    strategy = FAMILIES[name](cell_space, parts_for(name, cell_space, data), data)
    with pytest.raises(InputError, match=r"the sides 'train' and 'valid'.*, got 'list'"):
        trainer(1).fit(strategy, OnlyLightning())
    loaders = CombinedLoader(dict(zip(sides, (loader(TRAIN), loader(VALID)), strict=True)), "min_size")
    with pytest.raises(InputError, match=rf"the sides 'train' and 'valid'.*, got '{', '.join(sides)}'"):
        trainer(1).fit(strategy, loaders)
