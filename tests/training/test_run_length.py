"""Schedules end where a run does, whichever limit ends it."""

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning import callbacks as lightning_callbacks
from pytorch_lightning.callbacks import (
    EarlyStopping,
    GradientAccumulationScheduler,
    LambdaCallback,
    LearningRateFinder,
    ModelPruning,
    StochasticWeightAveraging,
    Timer,
)
from pytorch_lightning.tuner import Tuner
from torch import nn

from nas_lightning.data import ExternalData, Fake, SearchData
from nas_lightning.errors import InputError
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Darts, Gdas, Gumbel, RandomSearch
from nas_lightning.training.retrain import Retrain
from nas_lightning.training.run_length import epochs_of

QUIET = {f"enable_{what}": False for what in ("progress_bar", "model_summary", "checkpointing")}
DATA = {"shape": (1, 8, 8), "train_size": 32, "test_size": 16, "batch_size": 8}
pytestmark = pytest.mark.filterwarnings("ignore:The number of training batches")


def trainer(*callbacks, **limits):
    return pl.Trainer(logger=False, accelerator="cpu", callbacks=[*callbacks], **QUIET, **limits)


def strategy(made=Darts, **options):
    sizes = {"in_channels": 1, "num_classes": 4, "channels": 2, "cells": 1}
    return made.from_space(NasBench201(), **sizes, **options)


def retrain(**options):
    return Retrain(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), 4, **{"drop_path": 0.0, **options})


class Noted(pl.Callback):
    """What followed from the schedules in each epoch."""

    def __init__(self, note):
        self.note, self.values = note, []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx == 0:
            self.values.append(self.note(module))


def rate(module):
    return module.trainer.optimizers[0].param_groups[0]["lr"]


class Clock:
    """Each of the four batches of an epoch takes two and a half seconds."""

    trainer: pl.Trainer

    def elapsed(self, stage=None):
        return 2.5 * self.trainer.fit_loop.epoch_loop.batch_progress.total.ready


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(Timer, "time_elapsed", lambda timer, stage=None: clock.elapsed())
    return clock


LIMITS = {
    "epochs": {"max_epochs": 4},
    "steps": {"max_epochs": -1, "max_steps": 16},
    "steps below the epochs": {"max_epochs": 50, "max_steps": 16},
    "time": {"max_epochs": -1, "max_time": {"seconds": 40}},
    "time below the epochs": {"max_epochs": 50, "max_time": {"seconds": 40}},
}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_temperature_ends_with_the_run(limits, clock):
    noted = Noted(lambda module: module.sampler.metrics(module.by_name, module.epoch, {}).get("tau"))
    fit = clock.trainer = trainer(noted, **limits)
    fit.fit(strategy(Gdas, sampler=Gumbel(4.0, 1.0)), SearchData(Fake(**DATA), train_fraction=1.0))
    assert fit.current_epoch == 4
    assert noted.values[0] == 4.0
    assert noted.values[-1] == pytest.approx(1.0)
    assert noted.values == sorted(noted.values, reverse=True)
    if "time" not in str(limits):
        assert noted.values == pytest.approx([4, 3, 2, 1])


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("searches", [True, False], ids=["search", "training"])
def test_a_rate_falls_along_the_whole_cosine(limits, searches, clock):
    noted = Noted(rate)
    fit = clock.trainer = trainer(noted, **limits)
    if searches:
        fit.fit(strategy(lr=0.1, lr_min=0.0), SearchData(Fake(**DATA), train_fraction=1.0))
    else:
        fit.fit(retrain(lr=0.1), Fake(**DATA))
    cosine = [0.05 * (1 + torch.cos(torch.tensor(torch.pi * e / 4)).item()) for e in range(4)]
    assert noted.values == pytest.approx(cosine, abs=1e-6)


def test_without_a_length_steps_are_known_after_an_epoch():
    fit = trainer(max_epochs=-1, max_steps=12)
    fit.fit_loop.epoch_progress.current.processed = 0
    assert epochs_of(fit) == 12
    fit.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total.completed = 5
    assert epochs_of(fit, behind=1) == 3


def test_run_without_an_end_raises(refusal):
    assert "The run needs an end: pass max_epochs, max_steps, or max_time" in refusal(
        trainer(max_epochs=-1).fit, strategy(), SearchData(Fake(**DATA))
    )


# What Lightning's trainer and callbacks do

FOR_THE_STRATEGY = {
    "clip": ({"gradient_clip_val": 0.5}, (), "Pass clip=0.5 to the strategy instead"),
    "accumulate": ({"accumulate_grad_batches": 2}, (), "Pass accumulate_grad_batches="),
    "SWA": ({}, (StochasticWeightAveraging(0.1),), "A search cannot use StochasticWeightAveraging"),
    "rates": ({}, (LearningRateFinder(),), "A search cannot use LearningRateFinder, because weights and"),
    "accumulate later": (
        {},
        (GradientAccumulationScheduler({0: 2}),),
        "A search cannot use GradientAccumulationScheduler, because the strategy accumulates",
    ),
    "prune": ({}, (ModelPruning("l1_unstructured"),), "A search cannot use ModelPruning, because an"),
}
if hasattr(lightning_callbacks, "EMAWeightAveraging"):  # not in the oldest Lightning
    ema = lightning_callbacks.EMAWeightAveraging(decay=0.9)
    FOR_THE_STRATEGY["average"] = ({}, (ema,), "A search cannot use WeightAveraging, because")


@pytest.mark.parametrize(("options", "callbacks", "line"), FOR_THE_STRATEGY.values(), ids=FOR_THE_STRATEGY)
def test_search_refuses_unsupported_trainer_options(options, callbacks, line, refusal):
    said = refusal(trainer(*callbacks, max_epochs=1, **options).fit, strategy(), SearchData(Fake(**DATA)))
    assert line in said


def test_a_search_without_gradients_says_it_too(refusal):
    search = RandomSearch(NasBench201())
    fit = trainer(StochasticWeightAveraging(0.1), max_epochs=1).fit
    said = refusal(fit, search, SearchData(Fake(**DATA)))
    assert "A search cannot use StochasticWeightAveraging" in said


def test_callbacks_have_the_loss_of_a_batch():
    losses = []
    batch_end = LambdaCallback(on_train_batch_end=lambda t, m, outputs, *_: losses.append(outputs["loss"]))
    fit = trainer(batch_end, max_epochs=1)
    fit.fit(strategy(), SearchData(Fake(**DATA)))
    assert fit.callback_metrics["train_loss"].item() == pytest.approx(sum(losses).item() / len(losses))


@pytest.mark.filterwarnings("ignore:You are trying to `self.log")
def test_a_search_needs_nothing_that_is_logged():
    fit = pl.Trainer(barebones=True, max_epochs=1, accelerator="cpu")
    search = strategy()
    fit.fit(search, SearchData(Fake(**DATA)))
    assert fit.current_epoch == 1


def test_a_training_is_pruned():
    """Also our own networks, whose weights lie as they are fastest."""
    space = NasBench201()
    cell = space.parse("|nor_conv_3x3~0|+|none~0|skip_connect~1|+|nor_conv_1x1~0|none~1|skip_connect~2|")
    network = space.network(cell, in_channels=1, num_classes=4, channels=2, cells=1)
    module = Retrain(network, 4, drop_path=0.0)
    pruning = ModelPruning("l1_unstructured", amount=0.5, use_lottery_ticket_hypothesis=False)
    trainer(pruning, max_epochs=1).fit(module, Fake(**DATA))
    values = torch.cat([p.flatten() for name, p in network.named_parameters() if "bias" not in name])
    assert 0.4 < float((values == 0).float().mean()) <= 0.5
    assert not any("orig" in name for name, _ in network.named_parameters())
    with pytest.raises(InputError, match="`ema_decay` must be None with ModelPruning"):
        trainer(ModelPruning("l1_unstructured"), max_epochs=1).fit(retrain(ema_decay=0.9), Fake(**DATA))


@pytest.mark.parametrize("name", ["valid_loss", "val_loss"])
def test_both_have_one_name_for_a_metric(name):
    stop = EarlyStopping(name, patience=1, min_delta=1e9)
    fit = trainer(stop, max_epochs=6)
    fit.fit(strategy(), SearchData(Fake(**DATA)))
    assert fit.current_epoch == 2, "the first epoch is the best, the second one too many"
    fit = trainer(EarlyStopping(name, patience=1, min_delta=1e9), max_epochs=6)
    fit.fit(retrain(), Fake(**DATA, val_fraction=0.5))
    assert fit.current_epoch == 2


def test_a_training_averages_weights_as_lightning_does():
    module = retrain(lr=0.1)
    trainer(StochasticWeightAveraging(0.05, swa_epoch_start=1), max_epochs=4).fit(module, Fake(**DATA))
    assert all(torch.isfinite(p).all() for p in module.parameters())


def test_a_training_finds_a_rate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module, finder = retrain(lr=0.023), LearningRateFinder(num_training_steps=20)
    trainer(finder, max_epochs=1).fit(module, Fake(**{**DATA, "train_size": 256}))
    assert finder.optimal_lr.suggestion() == module.hparams["lr"]
    assert module.hparams["lr"] != 0.023


@pytest.mark.parametrize("kind", ["search", "training"])
def test_a_tuner_finds_a_batch_size(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = torch.rand(64, 1, 8, 8), torch.arange(64) % 4
    data = (SearchData if kind == "search" else ExternalData)(images, batch_size=3)
    module = strategy() if kind == "search" else retrain()
    found = Tuner(trainer(max_epochs=1)).scale_batch_size(
        module, datamodule=data, max_trials=2, steps_per_trial=1
    )
    newest = hasattr(lightning_callbacks, "EMAWeightAveraging")
    assert found == data.batch_size == (4 if newest else 8)  # Lightning 2.5.0 sets the size it would try next
    batch = next(iter(data.train_dataloader()))
    assert len(batch["train"][1] if kind == "search" else batch[1]) == 4


def test_a_training_clips_once(refusal):
    fit = trainer(max_epochs=1, gradient_clip_val=0.5)
    said = refusal(fit.fit, retrain(), Fake(**DATA))
    assert "`clip` of Retrain must be 0.5 or None, got 'Trainer(gradient_clip_val=0.5)'" in said
    trainer(max_epochs=1, gradient_clip_val=0.5).fit(retrain(clip=None), Fake(**DATA))
    trainer(max_epochs=1, gradient_clip_val=0.5).fit(retrain(clip=0.5), Fake(**DATA))


def test_an_unknown_option_names_the_near_one():
    with pytest.raises(InputError, match="Did you mean 'arch_lr'"):
        strategy(arch_lrr=0.1)
    with pytest.raises(InputError, match="Did you mean 'channels'"):
        strategy(chanels=3)
