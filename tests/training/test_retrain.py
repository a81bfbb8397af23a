"""Retraining against plain PyTorch loops and closed formulas."""

import copy
import json
import logging
import math
import os
import re
import subprocess
import sys
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from itertools import pairwise

import hydra
import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf
from pytorch_lightning.callbacks import Callback
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import nas_lightning
from benchmarks.retrain_step import DARTS_V2
from nas_lightning.callbacks.checkpoints import RNGState
from nas_lightning.data import Cifar10, Fake
from nas_lightning.errors import InputError
from nas_lightning.metrics import ntk
from nas_lightning.objectives.counts import cost
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.spaces.graph import DropPath
from nas_lightning.training.epoch_means import PADDING
from nas_lightning.training.retrain import Retrain, build_mixing, freeze_unused

CLASSES = 7


def make_network(*, auxiliary=False, norm=True, dropout=0.0):
    """A NAS-Bench-201 network of a few thousand parameters; `norm=False` takes its batch norms out."""
    space = NasBench201()
    genotype = space.parse(
        "|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|avg_pool_3x3~0|nor_conv_1x1~1|nor_conv_3x3~2|"
    )
    network = space.network(
        genotype,
        in_channels=3,
        num_classes=CLASSES,
        channels=4,
        cells=1,
        auxiliary=auxiliary,
        dropout=dropout,
    )
    return network if norm else without_norms(network)


def without_norms(network):
    for module in network.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, nn.Identity())
    return network


def make_data(**options):
    return Fake(num_classes=CLASSES, **{"train_size": 48, "test_size": 20, "batch_size": 16, **options})


class Recorder(Callback):
    """What each step was computed with, and its loss. If `seeded`, random numbers follow from the step."""

    def __init__(self, seeded=True):
        self.seeded = seeded
        self.losses, self.rates, self.drop_paths, self.weights = [], [], [], []

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if self.seeded:
            torch.manual_seed(trainer.global_step)
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])
        self.drop_paths.append({m.drop_prob for m in module.network.modules() if isinstance(m, DropPath)})
        self.weights.append(flat(module.network))

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].item())


def flat(module):
    """All parameters and floating statistics, as one copied vector."""
    return torch.cat(
        [v.detach().flatten().clone() for v in module.state_dict().values() if v.is_floating_point()]
    )


def make_trainer(recorder=None, epochs=2, **options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    quiet |= {"enable_checkpointing": False, "accelerator": "cpu", "devices": 1}
    options["callbacks"] = [recorder or Recorder(), *options.get("callbacks", [])]
    return pl.Trainer(max_epochs=epochs, **{**quiet, **options})


def fit(module, data=None, epochs=2, **options):
    """Train, and return what was recorded."""
    recorder = Recorder()
    make_trainer(recorder, epochs, **options).fit(module, data or make_data())
    return recorder


def batches(data, epochs):
    """What the loader hands out, epoch by epoch."""
    data.setup()
    for epoch in range(epochs):
        yield from data.batches(data.train).batches(epoch, 0, len(data.batches(data.train)))


@pytest.mark.parametrize("auxiliary", [False, True])
def test_equals_a_plain_loop_bit_for_bit(auxiliary):
    network = make_network(auxiliary=auxiliary)
    plain = copy.deepcopy(network)
    found = fit(Retrain(network, CLASSES, lr=0.05, drop_path=0.4, clip=0.5), epochs=2)

    optimizer = torch.optim.SGD(plain.parameters(), 0.05, momentum=0.9, weight_decay=3e-4)
    losses = []
    for step, (x, y) in enumerate(batches(make_data(), 2)):
        epoch = step // 3
        torch.manual_seed(step)
        plain.set_drop_path(0.4 * epoch / 2)
        optimizer.param_groups[0]["lr"] = 0.5 * 0.05 * (1 + math.cos(math.pi * epoch / 2))
        optimizer.zero_grad()
        if auxiliary:
            logits, extra = plain.forward_auxiliary(x)
            loss = F.cross_entropy(logits, y) + 0.4 * F.cross_entropy(extra, y)
        else:
            loss = F.cross_entropy(plain(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    assert found.losses == losses
    assert torch.equal(flat(network), flat(plain))


def test_norms_and_biases_can_be_left_out_of_the_decay():
    """Against AdamW in a plain loop, with groups made by hand from the kinds of the modules."""
    network = make_network(auxiliary=True)
    plain = copy.deepcopy(network)
    options = {"opt": "adamw", "lr": 0.01, "weight_decay": 0.5, "clip": None, "drop_path": 0.0}
    alike = fit(Retrain(copy.deepcopy(network), CLASSES, **options), epochs=2)
    found = fit(Retrain(network, CLASSES, decay_norms=False, **options), epochs=2)

    norms = [m for m in plain.modules() if isinstance(m, nn.BatchNorm2d)]
    layers = [m for m in plain.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    kept = [p for norm in norms for p in norm.parameters()]
    kept += [layer.bias for layer in layers if layer.bias is not None]
    decayed = [layer.weight for layer in layers]
    assert len(kept) + len(decayed) == len(list(plain.parameters()))
    groups = [{"params": kept, "weight_decay": 0.0}, {"params": decayed, "weight_decay": 0.5}]
    optimizer = torch.optim.AdamW(groups, 0.01)
    losses = []
    for step, (x, y) in enumerate(batches(make_data(), 2)):
        torch.manual_seed(step)
        for group in optimizer.param_groups:
            group["lr"] = 0.5 * 0.01 * (1 + math.cos(math.pi * (step // 3) / 2))
        optimizer.zero_grad()
        logits, extra = plain.forward_auxiliary(x)
        loss = F.cross_entropy(logits, y) + 0.4 * F.cross_entropy(extra, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert found.losses == pytest.approx(losses, rel=1e-5)
    torch.testing.assert_close(flat(network), flat(plain))
    assert found.losses != pytest.approx(alike.losses, rel=1e-3)


def test_rates_of_every_epoch():
    epochs, lr, lr_min = 4, 0.1, 0.01
    module = Retrain(make_network(), CLASSES, lr=lr, lr_min=lr_min, drop_path=0.3)
    found = fit(module, epochs=epochs)
    of_step = [step // 3 for step in range(3 * epochs)]
    cosine = [lr_min + (lr - lr_min) * (1 + math.cos(math.pi * e / epochs)) / 2 for e in of_step]
    assert found.rates == pytest.approx(cosine, rel=1e-14)
    assert found.drop_paths == [{0.3 * e / epochs} for e in of_step]


def test_logs_the_rate_and_the_mean_of_each_epoch():
    logged = []

    class Watch(Callback):
        def on_train_end(self, trainer, module):
            logged.append(dict(trainer.callback_metrics))

        on_train_epoch_start = on_train_end

    module = Retrain(make_network(auxiliary=True), CLASSES, lr=0.1, schedule="linear")
    found = fit(module, epochs=3, callbacks=[Watch()])
    assert [metrics["lr"].item() for metrics in logged[1:]] == pytest.approx([0.1, 0.1 * 2 / 3, 0.1 / 3])
    means = [sum(found.losses[i : i + 3]) / 3 for i in (0, 3, 6)]
    assert [metrics["train_loss"].item() for metrics in logged[1:]] == pytest.approx(means)


def test_loss_of_smoothed_labels_and_auxiliary_head():
    network = make_network(auxiliary=True)
    smoothing, weight = 0.2, 0.6
    (x, y) = next(batches(make_data(), 1))
    with torch.no_grad():  # batch norms normalize with the batch, as in the step
        both = copy.deepcopy(network).forward_auxiliary(x)
    # −Σ_k q_k log p_k with q = (1 − ε) one_hot(y) + ε / K
    target = (1 - smoothing) * F.one_hot(y, CLASSES) + smoothing / CLASSES
    plain = [-(target * logits.log_softmax(1)).sum(1).mean().item() for logits in both]
    module = Retrain(network, CLASSES, label_smoothing=smoothing, auxiliary_weight=weight)
    found = fit(module, epochs=1, limit_train_batches=1)
    assert found.losses == pytest.approx([plain[0] + weight * plain[1]], rel=1e-6)


def test_mixed_images_and_their_loss():
    """Each image is mixed with the one at the mirrored place of the batch, and so is its loss."""
    network = make_network()
    (x, y) = next(batches(make_data(), 1))

    class Seeded(Callback):
        def on_train_batch_start(self, *args):
            np.random.seed(3)

    module = Retrain(copy.deepcopy(network), CLASSES, mixup=0.4, drop_path=0.0)
    found = fit(module, epochs=1, limit_train_batches=1, callbacks=[Seeded()])
    np.random.seed(3)
    np.random.rand()  # whether to mix at all
    share = np.random.beta(0.4, 0.4)
    assert 0.01 < share < 0.99
    logits = network(share * x + (1 - share) * x.flip(0))
    expected = share * F.cross_entropy(logits, y) + (1 - share) * F.cross_entropy(logits, y.flip(0))
    assert found.losses == pytest.approx([expected.item()], rel=1e-5)


def test_odd_batches_cannot_be_mixed():
    with pytest.raises(InputError, match=r"must be even to mix images, got 15"):
        fit(Retrain(make_network(), CLASSES, mixup=0.2), make_data(batch_size=15))


def test_the_rate_follows_the_global_batch(caplog):
    module = Retrain(make_network(), CLASSES, lr=0.025, lr_batch=96, drop_path=0.0)
    with caplog.at_level(logging.INFO, "nas_lightning"):
        found = fit(module, epochs=1, accumulate_grad_batches=3)
    assert found.rates == pytest.approx([0.025 * 48 / 96] * 3)
    said = [record.message for record in caplog.records if record.name.startswith("nas_lightning")]
    assert said == ["learning rate 0.025 × 48/96 = 0.0125 (48 images a step)"]
    with pytest.raises(InputError, match="ImageData with lr_batch"):
        make_trainer().fit(Retrain(make_network(), CLASSES, lr_batch=96), [], [])


def test_synchronized_batch_norms_keep_the_names():
    """What Lightning does where sync_batchnorm is on; without a GPU it can be built, but not run."""
    network = make_network(auxiliary=True)
    plain = network.state_dict()
    synchronized = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(network))
    assert not any(type(module) is nn.BatchNorm2d for module in synchronized.modules())
    assert list(synchronized.state_dict()) == list(plain)
    x = torch.randn(3, 3, 8, 8)
    assert torch.equal(synchronized.eval()(x), network.eval()(x))


def test_average_is_its_recursion_and_is_what_gets_evaluated(tmp_path):
    decay = 0.8
    module = Retrain(make_network(auxiliary=True), CLASSES, lr=0.1, ema_decay=decay)
    data, recorder = make_data(), Recorder()
    trainer = make_trainer(recorder, default_root_dir=tmp_path)
    trainer.fit(module, data)
    weights = [*recorder.weights, flat(module.network)]
    expected = weights[0]
    for after in weights[1:]:
        expected = decay * expected + (1 - decay) * after
    torch.testing.assert_close(flat(module.average.module), expected)
    assert not torch.allclose(expected, weights[-1])

    averaged = copy.deepcopy(module.average.module).eval()
    metrics = trainer.test(module, data, verbose=False)[0]
    with torch.no_grad():
        parts = [(averaged(x), y) for x, y in data.test_dataloader()]
    logits, y = torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
    assert metrics["test_loss"] == pytest.approx(F.cross_entropy(logits, y).item(), rel=1e-5)

    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = Retrain.load_from_checkpoint(tmp_path / "last.ckpt", network=make_network(auxiliary=True))
    assert torch.equal(flat(again.average.module), flat(module.average.module))


def test_overfits_a_few_images():
    data = make_data(train_size=16, noise=3.0, augment=False)
    module = Retrain(make_network(), CLASSES, lr=0.1, drop_path=0.0, weight_decay=0.0)
    trainer = make_trainer(epochs=40)
    trainer.fit(module, data)
    assert trainer.callback_metrics["train_accuracy"] == 1
    assert trainer.callback_metrics["train_loss"] < 0.05


def test_metrics_are_those_of_all_images():
    module, data = Retrain(make_network(), CLASSES), make_data(eval_batch_size=8, val_fraction=0.25)
    trainer = make_trainer(epochs=1)
    trainer.fit(module, data)
    validated = {k: v.item() for k, v in trainer.callback_metrics.items() if k.startswith("valid_")}
    assert set(validated) == {"valid_loss", "valid_accuracy", "valid_accuracy_top5"}
    tested = trainer.test(module, data, verbose=False)[0]
    module.eval()
    for stage, metrics, loader in [
        ("valid", validated, data.val_dataloader()),
        ("test", tested, data.test_dataloader()),
    ]:
        with torch.no_grad():
            parts = [(module(x), y) for x, y in loader]
        logits, y = torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
        ranks = (logits > logits.gather(1, y[:, None])).sum(1)
        assert metrics[f"{stage}_loss"] == pytest.approx(F.cross_entropy(logits, y).item(), rel=1e-5)
        assert metrics[f"{stage}_accuracy"] == pytest.approx((ranks < 1).float().mean().item())
        assert metrics[f"{stage}_accuracy_top5"] == pytest.approx((ranks < 5).float().mean().item())
    assert tested["test_error"] == pytest.approx(1 - tested["test_accuracy"])


def test_padding_counts_in_no_metric():
    module = Retrain(make_network(), CLASSES)
    data = make_data(test_size=20, eval_batch_size=20)
    data.setup()
    ((x, y),) = data.test_dataloader()
    noise = 100 * torch.randn(5, *x.shape[1:])
    padding = torch.full((5,), PADDING)
    filled = [(torch.cat([x, noise]), torch.cat([y, padding])), (noise, padding)]
    plain, padded = (
        make_trainer().test(module, DataLoader(loaded, batch_size=None, num_workers=0), verbose=False)[0]
        for loaded in [[(x, y)], filled]
    )
    assert padded == pytest.approx(plain)


def test_clip_limits_the_norm_of_all_gradients():
    # without momentum and weight decay a step is lr · gradient
    for clip, bound in [(0.01, 0.01), (None, math.inf)]:
        module = Retrain(make_network(norm=False), CLASSES, lr=0.1, momentum=0.0, weight_decay=0.0, clip=clip)
        found = fit(module, epochs=1)
        norms = [(b - a).norm().item() / 0.1 for a, b in pairwise(found.weights)]
        assert min(norms) > 0.0099
        assert max(norms) <= bound * 1.001
    assert max(norms) > 0.02


def test_two_different_clips_are_refused():
    with pytest.raises(InputError, match=r"`clip` of Retrain must be 1\.0 or None"):
        fit(Retrain(make_network(), CLASSES, clip=5.0), gradient_clip_val=1.0)


def test_accumulated_gradients_equal_the_larger_batch():
    network = make_network(auxiliary=True, norm=False).double()
    runs = []
    for batch_size, steps in [(12, 2), (24, 1)]:
        data = make_data(batch_size=batch_size, augment=False)
        module = Retrain(copy.deepcopy(network), CLASSES, lr=0.1, drop_path=0.0, ema_decay=0.5)
        fit(module, data, precision="64-true", accumulate_grad_batches=steps)
        runs.append((flat(module.network), flat(module.average)))
    torch.testing.assert_close(runs[0], runs[1], rtol=1e-12, atol=1e-14)
    assert not torch.allclose(runs[0][0], flat(network))


def test_bf16_mixed_keeps_the_weights_in_float32():
    network = make_network(auxiliary=True)
    plain, mixed = (
        fit(Retrain(copy.deepcopy(network), CLASSES, drop_path=0.0), precision=p)
        for p in ["32", "bf16-mixed"]
    )
    assert mixed.losses != plain.losses
    assert mixed.losses == pytest.approx(plain.losses, rel=0.05)
    assert mixed.weights[-1].dtype == torch.float32


class Saver(Callback):
    """A checkpoint after every step and every epoch."""

    def __init__(self, folder):
        self.folder = folder

    def on_train_batch_end(self, trainer, *args):
        trainer.save_checkpoint(self.folder / f"step{trainer.global_step}.ckpt")

    def on_train_epoch_end(self, trainer, *args):
        trainer.save_checkpoint(self.folder / f"epoch{trainer.current_epoch}.ckpt")


# step3: exactly after the last batch of the first epoch, before anything else that an epoch ends with
@pytest.mark.parametrize(("checkpoint", "step"), [("epoch0", 3), ("step3", 3), ("step5", 5), ("step6", 6)])
def test_resumes_to_the_same_result(tmp_path, checkpoint, step):
    network = make_network(auxiliary=True, dropout=0.3)
    options = {"lr": 0.1, "drop_path": 0.4, "ema_decay": 0.7, "mixup": 0.4, "cutmix": 1.0}

    def run(*callbacks, resume=None):
        module, recorder = Retrain(copy.deepcopy(network), CLASSES, **options), Recorder(seeded=False)
        trainer = make_trainer(recorder, epochs=3, callbacks=[RNGState(), *callbacks])
        trainer.fit(module, make_data(), ckpt_path=resume, weights_only=True)
        return module, recorder

    whole, found = run(Saver(tmp_path))
    resumed, again = run(resume=tmp_path / f"{checkpoint}.ckpt")
    assert again.losses == found.losses[step:]
    assert again.rates == found.rates[step:]
    assert again.drop_paths == found.drop_paths[step:]
    assert torch.equal(flat(resumed), flat(whole))


@pytest.mark.slow
def test_compiled_training_is_the_same_and_keeps_the_names(monkeypatch):
    compiled_with = []

    def backend(graph, inputs):
        compiled_with.append(graph)
        return graph

    torch_compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function: torch_compile(function, backend=backend))
    torch._dynamo.reset()
    network = make_network(auxiliary=True)
    modules = [
        Retrain(copy.deepcopy(network), CLASSES, drop_path=0.4, compile=compile) for compile in [False, True]
    ]
    plain, compiled = (fit(module, epochs=4) for module in modules)
    assert compiled.losses == plain.losses
    assert len(compiled_with) == 2  # without dropped paths in epoch 1, and with any rate after it
    assert list(modules[0].state_dict()) == list(modules[1].state_dict())


def test_composes_from_its_yaml(monkeypatch):
    config = OmegaConf.load("conf/retrain/default.yaml")
    network = make_network()
    module = hydra.utils.instantiate(config, network=network, num_classes=CLASSES)
    assert module.network is network
    assert dict(module.hparams) == dict(Retrain(network, CLASSES).hparams)  # and so the class's defaults


def test_trains_a_network_of_darts():
    space = DartsSpace()
    genotype = space.sample(torch.Generator().manual_seed(0))
    network = space.network(genotype, in_channels=3, num_classes=CLASSES, channels=4, cells=3, auxiliary=True)
    data = make_data(shape=(3, 16, 16), train_size=16, augment=False)
    found = fit(Retrain(network, CLASSES, lr=0.1, drop_path=0.0), data, epochs=8)
    assert found.losses[-1] < 0.7 * found.losses[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drop_path": 1.0}, "`drop_path` must be less than 1, got 1.0 .in Retrain.drop_path"),
        ({"label_smoothing": -0.1}, "`label_smoothing` must be at least 0"),
        ({"ema_decay": 1.0}, "`ema_decay` must be less than 1, got 1.0 .in Retrain.ema_decay"),
        ({"clip": 0.0}, "`clip` must be greater than 0"),
        ({"lr_batch": 0}, "`lr_batch` must be at least 1, got 0"),
        ({"cutmix": -1.0}, "`cutmix` must be at least 0, got -1.0"),
    ],
)
def test_bad_options_raise(options, message):
    with pytest.raises(InputError, match=message):
        Retrain(make_network(), CLASSES, **options)


def test_schedules_need_an_end_of_the_run():
    with pytest.raises(InputError, match="The run needs an end: pass max_epochs, max_steps, or max_time"):
        fit(Retrain(make_network(), CLASSES), epochs=-1)


def test_unused_parameters_need_no_gradient():
    space = NasBench201()
    cell = space.parse("|nor_conv_3x3~0|+|nor_conv_1x1~0|nor_conv_3x3~1|+|nor_conv_1x1~0|none~1|none~2|")
    sizes = {"in_channels": 3, "num_classes": CLASSES, "channels": 4, "cells": 1, "auxiliary": True}
    network, state = space.network(cell, **sizes), torch.get_rng_state()
    freeze_unused(network, (3, 8, 8))
    assert torch.equal(torch.get_rng_state(), state)
    frozen = {name for name, parameter in network.named_parameters() if not parameter.requires_grad}
    assert frozen
    other = space.network(cell, **sizes).train()
    logits, auxiliary = other.forward_auxiliary(torch.randn(4, 3, 8, 8))
    (logits.square().sum() + auxiliary.square().sum()).backward()
    assert frozen == {name for name, parameter in other.named_parameters() if parameter.grad is None}
    freeze_unused(whole := make_network(), (3, 8, 8))
    assert all(parameter.requires_grad for parameter in whole.parameters())


def test_predictions_of_images_with_and_without_labels():
    network, images, labels = make_network(), torch.randn(6, 3, 8, 8), torch.arange(6)
    trainer = pl.Trainer(logger=False, enable_progress_bar=False, accelerator="cpu")
    for batches in ([(images[:4], labels[:4]), (images[4:], labels[4:])], [images[:4], images[4:]]):
        logits = trainer.predict(Retrain(network, CLASSES), DataLoader(batches, batch_size=None))
        torch.testing.assert_close(torch.cat(logits), network.eval()(images).detach())


# Mixed images


def test_an_image_with_a_part_of_another_counts_by_its_area():
    x, y = torch.zeros(4, 3, 20, 20), torch.arange(4)
    x[2:] = 1
    mixed, target = build_mixing(0.0, 1.0, CLASSES)(x, y)
    share = 1 - mixed[0].mean()  # of the first image, which is black; its partner is white
    assert 0 < share < 1
    torch.testing.assert_close(
        target[0], share * F.one_hot(y[0], CLASSES) + (1 - share) * F.one_hot(y[3], CLASSES)
    )
    assert torch.equal(x[:2], torch.zeros(2, 3, 20, 20))  # the loader's batch is as it was


# Networks with other signatures and outputs


OUTPUTS = 4
DATA = {"shape": (1, 8, 8), "train_size": 16, "test_size": 16, "batch_size": 8}
IMAGES, LABELS = (
    torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0)),
    torch.arange(5) % OUTPUTS,
)
Named = namedtuple("Named", "features logits")


@dataclass
class Output:
    logits: Tensor
    loss: Tensor | None = None


class Entries(OrderedDict):
    """A dict that is a class of its own, as those of transformers are."""


class Own(nn.Module):
    """A convolution and a classifier; `forward` is of each case."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, OUTPUTS)

    def maps(self, x: Tensor) -> Tensor:
        return self.conv(x).relu()

    def logits(self, x: Tensor) -> Tensor:
        return self.head(self.maps(x).mean((2, 3)))


def network(forward) -> nn.Module:
    torch.manual_seed(0)
    return type("Foreign", (Own,), {"forward": forward})()


def trainer() -> pl.Trainer:
    off = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    return pl.Trainer(max_epochs=1, accelerator="cpu", **dict.fromkeys(off, False))


def with_loss(self, pixel_values, labels=None):
    z = self.logits(pixel_values)
    return Entries(loss=None if labels is None else F.cross_entropy(z, labels), logits=z)


TAKEN = {
    "a dict": lambda self, x: {"features": self.maps(x), "logits": self.logits(x)},
    "a dict of one": lambda self, x: {"scores": self.logits(x)},
    "a class of dicts, a loss where labels are": with_loss,
    "a data class": lambda self, x: Output(self.logits(x)),
    "a named tuple": lambda self, x: Named(self.maps(x), self.logits(x)),
    "a tuple": lambda self, x: (self.logits(x), self.maps(x)),
    "options by keyword": lambda self, x, *, scale=1.0: scale * self.logits(x),
}
CALLED_OTHERWISE = {
    "by keyword": (lambda self, *, pixels: self.logits(pixels), r"forward\(\*, pixels\)"),
    "another input": (lambda self, x, mask: self.logits(x), r"forward\(x, mask\)"),
    "labels": (lambda self, x, labels: F.cross_entropy(self.logits(x), labels), r"forward\(x, labels\)"),
}
RETURNED = {
    "entries called otherwise": (
        lambda self, x: {"features": self.maps(x).mean((2, 3)), "classes": self.logits(x)},
        "The network must return logits, alone, first, or named",
    ),
    "maps first": (
        lambda self, x: (self.maps(x), self.logits(x)),
        r"Logits must have shape",
    ),
    "classes": (lambda self, x: self.logits(x).argmax(1), r"Logits must have shape"),
    "other classes": (lambda self, x: self.logits(x)[:, :2], r"Logits must have shape"),
    "a loss in training": (
        lambda self, x: {"loss": self.logits(x).sum()} if self.training else self.logits(x),
        r"Logits must have shape",
    ),
    "probabilities": (lambda self, x: self.logits(x).softmax(1), "remove its last softmax"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_other_outputs_train_like_logits(name, tmp_path):
    made, plain = network(TAKEN[name]), network(lambda self, x: self.logits(x))
    torch.testing.assert_close(ntk(made, (IMAGES, LABELS)).matrix, ntk(plain, (IMAGES, LABELS)).matrix)
    losses = []
    for each in (made, plain):
        fit, module, data = trainer(), Retrain(each, OUTPUTS), Fake(**DATA)
        fit.fit(module, data)
        losses.append(fit.test(module, data, verbose=False)[0]["test_loss"])
    assert losses[0] == losses[1]
    assert cost(made, (1, 8, 8)).params == cost(plain, (1, 8, 8)).params
    assert nas_lightning.export(made, tmp_path / "network.pt2", (1, 8, 8)).difference < 1e-5


@pytest.mark.parametrize("name", CALLED_OTHERWISE)
def test_one_line_says_how_it_is_to_be_called(name, refusal, tmp_path):
    forward, got = CALLED_OTHERWISE[name]
    for use in (
        lambda made: Retrain(made, OUTPUTS),
        lambda made: ntk(made, (IMAGES, LABELS)),
        lambda made: cost(made, (1, 8, 8)),
    ):
        said = refusal(use, network(forward))
        assert re.search(rf"The network must take images alone, forward\(x\), got '{got}'", said), said
    said = refusal(nas_lightning.export, network(forward), tmp_path / "network.pt2", (1, 8, 8))
    assert "The network fails on images of (1, 8, 8)" in said


@pytest.mark.parametrize("name", RETURNED)
def test_one_line_says_what_it_is_to_return(name, refusal):
    forward, line = RETURNED[name]
    said = refusal(trainer().fit, Retrain(network(forward), OUTPUTS), Fake(**DATA))
    assert re.search(line, said), said


# Two processes


# A program, because a process that has run threads should not be forked.
PROGRAM = """
import json, sys
import pytorch_lightning as pl
import torch
from torch import nn

from nas_lightning.training.retrain import freeze_unused
from nas_lightning.training.retrain import Retrain
from nas_lightning.spaces import NasBench201

torch.set_num_threads(1)
torch.manual_seed(0)
devices = int(sys.argv[1])
space = NasBench201()
genotype = space.parse(sys.argv[2])
network = space.network(genotype, in_channels=3, num_classes=7, channels=4, cells=1, auxiliary=True)
for module in list(network.modules()):
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):  # it would normalize with each process's half
            setattr(module, name, nn.Identity())
data = Fake(
    num_classes=7, train_size=64, test_size=21, batch_size=16 // devices, eval_batch_size=4, val_fraction=0.25
)
freeze_unused(network, data.image)
module = Retrain(network.double(), 7, lr=0.1, drop_path=0.0, clip=0.5, ema_decay=0.6)
trainer = pl.Trainer(
    max_epochs=2, precision="64-true", accelerator="cpu", devices=devices,
    strategy="auto" if devices == 1 else "ddp_fork", logger=False, enable_progress_bar=False,
    enable_checkpointing=False, enable_model_summary=False,
)
trainer.fit(module, data)
metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
metrics |= trainer.test(module, data, verbose=False)[0]
weights = torch.cat([p.detach().flatten() for p in module.parameters()])
print(json.dumps({"metrics": metrics, "weights": weights.tolist()}))
"""


WHOLE = "|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|avg_pool_3x3~0|nor_conv_1x1~1|nor_conv_3x3~2|"
UNUSED = (
    "|nor_conv_3x3~0|+|nor_conv_1x1~0|nor_conv_3x3~1|+|nor_conv_1x1~0|none~1|none~2|"  # what makes node 2
)


def run(devices, cell):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(devices), cell], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "sync_dist" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("cell", [WHOLE, UNUSED])
def test_two_processes_equal_one(cell):
    one, two = run(1, cell), run(2, cell)
    assert two["weights"] == pytest.approx(one["weights"], rel=1e-10, abs=1e-12)
    assert two["metrics"] == pytest.approx(one["metrics"], rel=1e-6)
    # 21 test images: a whole number of them is right, although two processes cannot share them evenly
    right = 21 * two["metrics"]["test_accuracy"]
    assert right == pytest.approx(round(right), abs=1e-4)
    assert {"train_loss", "valid_accuracy", "test_error"} <= set(two["metrics"])


# Real images: `Retrain` against a bare PyTorch loop, step for step.


STEPS, EPOCHS = 3, 2


class Losses(pl.Callback):
    """The loss of each step; random numbers follow from the step."""

    def __init__(self):
        self.found = []

    def on_train_batch_start(self, trainer, *args):
        torch.manual_seed(trainer.global_step)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.found.append(outputs["loss"].item())


@pytest.mark.slow
def test_losses_on_cifar10_are_those_of_a_bare_loop(shared_data):
    data = Cifar10(root=str(shared_data / "cifar10"), batch_size=16, subset=16 * STEPS, cutout=16, seed=4)
    data.setup()
    space, sizes = DartsSpace(), {"channels": 8, "cells": 5, "auxiliary": True}
    network = space.network(space.parse(DARTS_V2), in_channels=3, num_classes=10, **sizes)
    bare, losses = copy.deepcopy(network), Losses()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", callbacks=[losses], enable_checkpointing=False, **quiet
    )
    trainer.fit(Retrain(network, 10, drop_path=0.4), data)

    optimizer = torch.optim.SGD(bare.parameters(), 0.025, momentum=0.9, weight_decay=3e-4)
    expected = []
    for epoch in range(EPOCHS):
        bare.set_drop_path(0.4 * epoch / EPOCHS)
        optimizer.param_groups[0]["lr"] = 0.025 * (1 + math.cos(math.pi * epoch / EPOCHS)) / 2
        for x, y in data.batches(data.train).batches(epoch, 0, STEPS):
            torch.manual_seed(len(expected))
            logits, auxiliary = bare.forward_auxiliary(x)
            loss = F.cross_entropy(logits, y) + 0.4 * F.cross_entropy(auxiliary, y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(bare.parameters(), 5.0)
            optimizer.step()
            expected.append(loss.item())
    assert losses.found == expected
    for ours, theirs in zip(network.parameters(), bare.parameters(), strict=True):
        assert torch.equal(ours, theirs)
