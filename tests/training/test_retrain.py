"""Retraining against plain PyTorch loops and closed formulas."""

import copy
import logging
import math
from itertools import pairwise

import hydra
import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf
from pytorch_lightning.callbacks import Callback
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from nas_lightning.callbacks.checkpoints import RNGState
from nas_lightning.data.datasets import Fake
from nas_lightning.errors import InputError
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.spaces.graph import DropPath
from nas_lightning.training.epoch_means import PADDING
from nas_lightning.training.retrain import Retrain, freeze_unused

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


def test_batches_that_cannot_be_mixed_are_told():
    with pytest.raises(InputError, match=r"even dataset\.batch_size to mix images, got 15"):
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
    with pytest.raises(InputError, match=r"expected clip=1\.0 or clip=None of Retrain"):
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
def test_bad_options_are_told(options, message):
    with pytest.raises(InputError, match=message):
        Retrain(make_network(), CLASSES, **options)


def test_schedules_need_an_end_of_the_run():
    with pytest.raises(InputError, match="expected an end of the run: max_epochs, max_steps or max_time"):
        fit(Retrain(make_network(), CLASSES), epochs=-1)


def test_what_no_logit_depends_on_asks_for_no_gradient():
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
