"""What is said before and at the start of a long run, and what is refused."""

from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch

from nas_lightning.callbacks import ExpectedTime, MemoryGuard, SearchProgressBar
from nas_lightning.callbacks import guards as expected_time
from nas_lightning.callbacks import guards as memory_guard
from nas_lightning.callbacks.guards import check_fits, step_memory
from nas_lightning.data import Fake
from nas_lightning.errors import InputError
from nas_lightning.objectives.memory import Memory
from nas_lightning.spaces import NasBench201
from nas_lightning.training.retrain import Retrain


def linear(batch):
    """A hundred bytes an image and 1,000 for the weights."""
    return Memory(100 * batch, 1000, 50)


def test_what_fits_is_said_and_what_does_not_is_refused_with_what_does(capsys):
    check_fits(linear, 64, 7400, "cuda:0")
    assert "for 64 images a step" in capsys.readouterr().out
    with pytest.raises(
        InputError, match=r"dataset.batch_size=32 fits, and with trainer.accumulate_grad_batches=2 "
    ):
        check_fits(linear, 64, 7399, "cuda:0")
    with pytest.raises(InputError, match=r"dataset\.batch_size=2 fits"):
        check_fits(linear, 64, 1200, "cuda:0")
    with pytest.raises(InputError, match="smaller network"):
        check_fits(linear, 64, 1099, "cuda:0")
    check_fits(linear, 64, None, "mps")
    assert "of" not in capsys.readouterr().out.split("for 64")[0]


def make():
    torch.manual_seed(0)
    space = NasBench201()
    cell = space.sample(torch.Generator().manual_seed(0))
    network = space.network(cell, in_channels=1, num_classes=4, channels=4, cells=1)
    return Retrain(network, 4, ema_decay=0.9), Fake(shape=(1, 8, 8), batch_size=16)


def fit(module, data):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    pl.Trainer(
        max_epochs=1, accelerator="cpu", enable_checkpointing=False, callbacks=[MemoryGuard()], **quiet
    ).fit(module, data)


def test_a_run_that_cannot_fit_ends_before_its_first_step(monkeypatch):
    module, data = make()
    need = step_memory(module, (16, 1, 8, 8), "32-true")
    size = sum(4 * p.numel() for p in module.network.parameters())
    assert 3 * size < need.weights < 3.5 * size  # the network, its momentum and its average; and statistics
    monkeypatch.setattr(memory_guard, "free_memory", lambda device: need.total - 1)
    with pytest.raises(InputError, match=r"16 images a step need at least .* dataset.batch_size=8 fits"):
        fit(module, data)
    monkeypatch.setattr(memory_guard, "free_memory", lambda device: need.total)
    fit(module, data)


def test_the_time_is_told_once_where_it_is_long(tmp_path, tiny, trainer, capsys, monkeypatch):
    clock = iter(10.0 * step for step in range(100))
    monkeypatch.setattr(
        expected_time, "time", SimpleNamespace(monotonic=lambda: next(clock))
    )  # two readings: ten seconds for five steps
    told = ExpectedTime(steps=5, warmup=2, from_seconds=30)
    trainer(tmp_path, 4, told, SearchProgressBar(), enable_progress_bar=True).fit(tiny())
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("about")]
    # epochs of six steps; seven of the 24 are done
    assert lines == ["about 12 s an epoch, 34 s to go"]


def test_a_short_run_is_not_foretold(tmp_path, tiny, trainer, capsys):
    trainer(tmp_path, 4, ExpectedTime(steps=5, warmup=2), SearchProgressBar(), enable_progress_bar=True).fit(
        tiny()
    )
    assert "about" not in capsys.readouterr().out
