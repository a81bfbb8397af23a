"""Checkpoints are whole or not there, and those within an epoch lead to the same result."""

import os
import signal
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException

from nas_lightning.callbacks import RNGState
from nas_lightning.callbacks.checkpoints import AtomicCheckpoints, SignalCheckpoint, StepCheckpoint
from nas_lightning.data import Fake, SearchData
from nas_lightning.errors import InputError
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Gdas

pytestmark = pytest.mark.filterwarnings(
    "ignore:Checkpoint directory .* exists",
    "ignore:.*LeafSpec.*:FutureWarning",
    "ignore:Be aware that when using .ckpt_path",
)


def search(
    folder: Path, *callbacks: pl.Callback, resume: Path | None = None, checkpoints: bool = False
) -> dict[str, torch.Tensor]:
    """Two epochs of four steps; the state at their end."""
    torch.manual_seed(1)
    space = NasBench201()
    strategy = Gdas(space, space.supernet(in_channels=1, num_classes=4, channels=2, cells=1), seed=5)
    data = SearchData(Fake(shape=(1, 8, 8), train_size=64, test_size=8, batch_size=8))
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=checkpoints,
        default_root_dir=folder,
        callbacks=[RNGState(), *callbacks],
        plugins=[AtomicCheckpoints()],
    )
    trainer.fit(strategy, data, ckpt_path=resume)
    assert trainer.global_step == 8
    return {**strategy.state_dict(), "generator": strategy.generator.get_state()}


@pytest.mark.parametrize("every", [3, 5])  # saved last within the second epoch
def test_going_on_within_an_epoch_comes_to_the_same(tmp_path, every):
    path = tmp_path / "last.ckpt"
    whole = search(tmp_path, StepCheckpoint(path, every_n_steps=every))
    assert torch.load(path, weights_only=True)["global_step"] == {3: 6, 5: 5}[every]
    resumed = search(tmp_path, resume=path)
    assert whole.keys() == resumed.keys()
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name


def test_without_a_number_nothing_is_saved(tmp_path):
    search(tmp_path, StepCheckpoint(tmp_path / "last.ckpt"))
    assert not (tmp_path / "last.ckpt").exists()


def test_a_save_that_breaks_off_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "deeper" / "last.ckpt"
    writer = AtomicCheckpoints()
    writer.save_checkpoint({"value": torch.ones(2)}, path)

    def broken_off(content, file):
        file.write(b"half a")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", broken_off)
    with pytest.raises(KeyboardInterrupt):
        writer.save_checkpoint({"value": torch.zeros(2)}, path)
    assert torch.equal(writer.load_checkpoint(path)["value"], torch.ones(2))


class Send(pl.Callback):
    """Sends this process a signal in the middle of a step."""

    def __init__(self, number: signal.Signals, step: int) -> None:
        self.number, self.step = number, step

    def on_before_optimizer_step(self, trainer, *args) -> None:
        if trainer.global_step >= self.step:
            self.step = 1000
            os.kill(os.getpid(), self.number)


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> Path:
    """A job of SLURM, and what its `scontrol` was called with."""
    script = tmp_path / "bin" / "scontrol"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    return tmp_path / "called"


# Of four steps an epoch: within the first epoch, at its end, within the second
@pytest.mark.parametrize("step", [1, 3, 5])
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_job_that_is_told_to_end_saves_and_goes_on_to_the_same(tmp_path, slurm, number, step):
    path, before = tmp_path / "last.ckpt", [signal.getsignal(n) for n in (signal.SIGUSR1, signal.SIGTERM)]
    whole = search(tmp_path)
    at_the_end = ModelCheckpoint(tmp_path, "last", save_on_train_epoch_end=True, enable_version_counter=False)
    with pytest.raises(SystemExit):
        search(tmp_path, Send(number, step), SignalCheckpoint(path), at_the_end, checkpoints=True)
    assert [signal.getsignal(n) for n in (signal.SIGUSR1, signal.SIGTERM)] == before
    assert slurm.exists() == (number is signal.SIGUSR1)
    if slurm.exists():
        assert slurm.read_text() == "requeue 4711\n"
    stored = torch.load(path, weights_only=True)
    assert 0 < stored["global_step"] < 8
    resumed = search(tmp_path, resume=path)
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name


def test_a_signal_that_there_is_not(tmp_path):
    with pytest.raises(InputError, match="expected the name of a signal, got 'SIGUSR'"):
        SignalCheckpoint(tmp_path / "last.ckpt", "SIGUSR")


class Processes:
    """A trainer of several processes, as far as checkpoints look at it; notes what is asked and saved."""

    def __init__(self, count, told=False):
        self.world_size, self.told, self.is_last_batch, self.is_global_zero = count, told, False, True
        self.global_step, self.asked, self.saved = 0, [], []
        self.strategy = self

    def reduce_boolean_decision(self, here, *, all):
        assert not all  # one that has been told is enough
        self.asked.append(self.global_step)
        return here or self.told

    def save_checkpoint(self, path):
        self.saved.append(self.global_step)


@pytest.mark.parametrize(("count", "every"), [(1, 1), (2, 10), (3, 10), (8, 10)])
def test_several_processes_ask_now_and_then(tmp_path, count, every):
    trainer, callback = Processes(count), SignalCheckpoint(tmp_path / "last.ckpt", every_n_batches=10)
    for step in range(35):
        trainer.global_step = step
        callback.on_train_batch_end(trainer, None, None, None, step)
    assert trainer.asked == [*range(0, 35, every)]
    assert trainer.saved == []


def test_one_that_was_told_stops_all_but_not_at_an_epochs_end(tmp_path):
    for count in (1, 4):
        trainer, callback = Processes(count, told=True), SignalCheckpoint(tmp_path / "last.ckpt")
        trainer.is_last_batch = True
        callback.on_train_batch_end(trainer, None, None, None, 10)
        assert trainer.saved == []
        trainer.is_last_batch = False
        with pytest.raises(SIGTERMException):
            callback.on_train_batch_end(trainer, None, None, None, 10)
        assert trainer.saved == [0]


def test_a_process_that_was_told_nothing_asks_for_nothing(tmp_path, monkeypatch):
    """Beside one that got SIGTERM: neither of them is to be queued again."""
    trainer, said = Processes(4), []

    def decide(here, *, all):
        said.append(here)
        return len(said) == 1  # the other has been told to end, and nobody to come back

    monkeypatch.setattr(trainer, "reduce_boolean_decision", decide)
    with pytest.raises(SIGTERMException):
        SignalCheckpoint(tmp_path / "last.ckpt").on_train_batch_end(trainer, None, None, None, 10)
    assert said == [False, False]


def test_steps_are_saved_once_each_in_each_fit(tmp_path):
    trainer, callback = Processes(1), StepCheckpoint(tmp_path / "last.ckpt", every_n_steps=3)
    for step in [*range(10), 9, 3, 4]:  # a step of several batches, and another fit
        trainer.global_step = step
        callback.on_train_batch_end(trainer)
    assert trainer.saved == [3, 6, 9, 3]


@pytest.mark.parametrize("kind", [StepCheckpoint, SignalCheckpoint])
@pytest.mark.parametrize("number", [0, -1, 1.5, "many"])
def test_a_number_of_steps_is_checked(tmp_path, kind, number):
    name = "every_n_steps" if kind is StepCheckpoint else "every_n_batches"
    with pytest.raises(InputError, match=name):
        kind(tmp_path / "last.ckpt", **{name: number})
