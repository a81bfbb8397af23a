"""Every family of strategies takes data in every form."""

import random

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import CombinedLoader

from nas_lightning.callbacks import DataLoaderState, RNGState
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.strategies import Darts, Evolution, Hnas, Nasi, RandomWS
from nas_lightning.strategies.nesbs.strategy import Nesbs
from tests.own_data import CHANNELS, CLASSES, FORMS, STEPS, TRAIN, VALID, OnlyLightning, Samples, loader

SHORT = {"population": 2, "sample": 1, "evaluation": "training", "epochs": 1}
FAMILIES = {
    "one-shot": lambda space, net, data: Darts(space, net),
    "selection": lambda space, net, data: RandomWS(space, net, data, candidates=2, valid_batches=1),
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


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("form", FORMS)
def test_a_search_takes_them(form, family, cell_space, trainer):
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


@pytest.mark.parametrize("step", [3, 4, 6, "epoch"])
@pytest.mark.parametrize("form", ["noise", "weighted", "no length", "shorter side"])
def test_a_search_that_was_stopped_goes_on_to_the_same_bits(form, step, cell_space, trainer, tmp_path):
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


def test_what_a_training_draws_does_not_reach_the_loaders():
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
def test_a_strategy_says_how_data_are_handed_over(family, cell_space, refusal):
    data = SearchData(TRAIN, VALID)
    message = refusal(FAMILIES[family], cell_space, parts_for(family, cell_space, data), OnlyLightning())
    assert "SearchData(…)" in message


@pytest.mark.parametrize("name", ["one-shot", "nasi"])
def test_a_missing_side_is_one_line(name, cell_space, trainer):
    data = SearchData(TRAIN, VALID)
    strategy = FAMILIES[name](cell_space, parts_for(name, cell_space, data), data)
    with pytest.raises(InputError, match=r"the sides 'train' and 'valid'.*, got 'list'"):
        trainer(1).fit(strategy, OnlyLightning())
    with pytest.raises(InputError, match=r"the sides 'train' and 'valid'.*, got 'train, val'"):
        trainer(1).fit(strategy, CombinedLoader({"train": loader(TRAIN), "val": loader(VALID)}, "min_size"))
