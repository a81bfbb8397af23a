"""Checkpoints, and resumed runs that equal uninterrupted ones."""

import os
import random
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint, ModelCheckpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException

from nas_lightning.callbacks import BestCheckpoint, RNGState
from nas_lightning.callbacks.checkpoints import (
    _KEY,
    AtomicCheckpoints,
    SignalCheckpoint,
    StepCheckpoint,
    rng_state,
    set_rng_state,
)
from nas_lightning.data import Fake, SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Gdas

# Checkpoints are whole or not there, and those within an epoch lead to the same result.

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
    with pytest.raises(InputError, match="`requeue_signal` must be the name of a signal, got 'SIGUSR'"):
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


# The best epoch by validation, and nothing at all without one.


def best(folder):
    return BestCheckpoint(
        folder,
        "best",
        monitor="val_accuracy",
        mode="max",
        enable_version_counter=False,
        save_on_train_epoch_end=True,
    )


def test_keeps_the_best_epoch(tmp_path, tiny, trainer):
    module = tiny()
    accuracies = [0.3, 0.6, 0.5]
    module.validation_step = lambda batch, batch_idx: module.log(
        "val_accuracy", accuracies[module.current_epoch]
    )
    callback = best(tmp_path / "kept")
    trainer(tmp_path, 3, callback).fit(module)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["best.ckpt"]
    assert torch.load(tmp_path / "kept" / "best.ckpt", weights_only=True)["epoch"] == 1
    assert float(callback.best_model_score) == pytest.approx(0.6)


def test_silent_without_validation(tmp_path, tiny, trainer):
    trainer(tmp_path, 2, best(tmp_path / "kept"), limit_val_batches=0).fit(tiny())
    assert not (tmp_path / "kept").exists() or not list((tmp_path / "kept").iterdir())


# A search that is killed, for real, and resumed equals one that ran through: weights, metrics, history.

EPOCHS, BATCHES = 4, 6


class KillAt(pl.Callback):
    def __init__(self, step):
        self.step = step

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


class KillInCheckpoint(pl.Callback):
    """After the epoch is in the history, before its checkpoint is on disk."""

    def on_save_checkpoint(self, trainer, pl_module, checkpoint):
        if trainer.current_epoch == 2:
            os.kill(os.getpid(), signal.SIGKILL)


class KillAfterCheckpoint(Checkpoint):
    """After the epoch's checkpoint is on disk, before its row of the metrics file."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.current_epoch == self.epoch:
            os.kill(os.getpid(), signal.SIGKILL)


class KillAfterStepCheckpoint(Checkpoint):
    """After the step's checkpoint is on disk, before its row of the metrics file."""

    def __init__(self, step):
        self.step = step

    def on_train_batch_end(self, trainer, *args):
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


class KillAfterRow(pl.Callback):
    """After the epoch's row as well."""

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 3:
            os.kill(os.getpid(), signal.SIGKILL)


def run_until_killed(trainer, module):
    process = os.fork()
    if process == 0:
        try:
            trainer.fit(module)
        finally:  # never back into the tests
            os._exit(1)
    _, status = os.waitpid(process, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


KILLERS = [
    KillAt(BATCHES),
    KillAt(BATCHES + 1),
    KillAt(2 * BATCHES + 5),
    KillAt(3 * BATCHES + 3),
    KillInCheckpoint(),
    KillAfterCheckpoint(2),
    KillAfterCheckpoint(EPOCHS - 1),
    KillAfterRow(),
]


@pytest.mark.parametrize("killer", KILLERS)
def test_killed_and_resumed_equals_uninterrupted(tmp_path, tiny, trainer, killer):
    whole = tiny()
    trainer(tmp_path / "whole", EPOCHS).fit(whole)

    stopped = tmp_path / "stopped"
    run_until_killed(trainer(stopped, EPOCHS, killer), tiny())
    torch.manual_seed(99)
    random.seed(99)
    resumed = tiny()
    with torch.no_grad():
        resumed.arch.fill_(3.0)
    trainer(stopped, EPOCHS).fit(resumed, ckpt_path=stopped / "checkpoints" / "last.ckpt")

    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    for file in ("metrics.csv", "history.jsonl"):
        assert (stopped / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def killed_within_an_epoch(folder, module, trainer, killer, every_n_steps, log_every_n_steps):
    """The folder of a run that is killed, and resumed by a module that starts elsewhere."""

    def fit(module, *callbacks, resume=None):
        steps = StepCheckpoint(folder / "checkpoints" / "last.ckpt", every_n_steps)
        run = trainer(folder, EPOCHS, steps, *callbacks, log_every_n_steps=log_every_n_steps)
        if resume is None:
            run_until_killed(run, module)
        else:
            run.fit(module, ckpt_path=resume)
        return module

    fit(module(), killer)
    resumed = module()
    with torch.no_grad():
        resumed.arch.fill_(3.0)
    return fit(resumed, resume=folder / "checkpoints" / "last.ckpt")


@pytest.mark.parametrize("log_every_n_steps", [1, 5])
@pytest.mark.parametrize("killer", [KillAt, KillAfterStepCheckpoint])
@pytest.mark.parametrize(("step", "every_n_steps"), [(8, 1), (10, 2), (23, 1)])
def test_killed_within_an_epoch(tmp_path, impatient, trainer, killer, step, every_n_steps, log_every_n_steps):
    """The length of the run was asked for early, steps are logged, and not one row or batch comes twice."""
    whole = impatient()
    trainer(tmp_path / "whole", EPOCHS, log_every_n_steps=log_every_n_steps).fit(whole)
    how = (killer(step), every_n_steps, log_every_n_steps)
    resumed = killed_within_an_epoch(tmp_path / "stopped", impatient, trainer, *how)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    for file in ("metrics.csv", "history.jsonl"):
        assert (tmp_path / "stopped" / file).read_text() == (tmp_path / "whole" / file).read_text()


def test_without_the_callback_the_run_differs(tmp_path, tiny, trainer):
    """The comparison above can fail: without the generators' states it does."""
    whole = tiny()
    trainer(tmp_path / "whole", EPOCHS).fit(whole)
    trainer(tmp_path / "stopped", 2).fit(tiny())
    torch.manual_seed(99)
    resumed = tiny()
    again = trainer(tmp_path / "stopped", EPOCHS)
    again.callbacks = [callback for callback in again.callbacks if type(callback).__name__ != "RNGState"]
    again.fit(resumed, ckpt_path=tmp_path / "stopped" / "checkpoints" / "last.ckpt")
    assert not torch.equal(whole.arch, resumed.arch)


def test_a_new_run_in_an_old_folder_starts_its_files_anew(tmp_path, tiny, trainer):
    trainer(tmp_path, 3).fit(tiny())
    trainer(tmp_path, 1).fit(tiny())
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == 1
    steps = [int(line.split(",")[0]) for line in (tmp_path / "metrics.csv").read_text().splitlines()[1:]]
    assert max(steps) == BATCHES - 1


def test_states_cover_all_three_libraries(tmp_path):
    def draw():
        return random.random(), float(np.random.rand()), float(np.random.randn()), float(torch.rand(()))

    draw()
    torch.save(rng_state(), tmp_path / "state")
    first = draw()
    set_rng_state(torch.load(tmp_path / "state", weights_only=True))
    assert draw() == first


def test_history_says_what_the_strategy_says(tmp_path, tiny, trainer):
    from nas_lightning.runs.facts import read_history

    search = tiny()
    trainer(tmp_path, 3).fit(search)
    entries = read_history(tmp_path / "history.jsonl")
    assert [entry["epoch"] for entry in entries] == [0, 1, 2]
    last = entries[-1]
    assert [Genotype.from_dict(item) for item in last["genotypes"]] == search.derive()
    group = search.space.groups["cell"]
    assert [tuple(edge) for edge in last["groups"]["cell"]["edges"]] == list(group.edges)
    assert tuple(last["groups"]["cell"]["ops"]) == group.ops
    torch.testing.assert_close(
        torch.tensor(last["groups"]["cell"]["scores"]), search.scores()["cell"], atol=5.1e-7, rtol=0
    )


# Two processes keep two states of their generators, and each gets its own back.


class Witness(pl.Callback):
    """Draws as many numbers as its process' rank says, and writes down the states that matter."""

    def __init__(self, folder):
        self.folder = folder

    def note(self, name, rank):
        torch.save(torch.get_rng_state(), self.folder / f"{name}{rank}")

    def on_fit_start(self, trainer, pl_module):
        self.note("start", trainer.global_rank)

    def on_train_epoch_end(self, trainer, pl_module):
        torch.rand(trainer.global_rank + 1)
        self.note("end", trainer.global_rank)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_each_process_goes_on_from_its_own_state(tmp_path, tiny, trainer):
    options = {"strategy": "ddp_fork", "devices": 2, "limit_val_batches": 0}
    trainer(tmp_path, 1, Witness(tmp_path), **options).fit(tiny())
    checkpoint = tmp_path / "checkpoints" / "last.ckpt"
    states = [state["torch"] for state in torch.load(checkpoint, weights_only=True)[_KEY]]
    assert len(states) == 2
    assert not torch.equal(*states)

    torch.manual_seed(5)
    trainer(tmp_path, 2, Witness(tmp_path), **options).fit(tiny(), ckpt_path=checkpoint)
    for rank, state in enumerate(states):
        assert torch.equal(torch.load(tmp_path / f"start{rank}"), state)


def test_processes_have_random_numbers_of_their_own():
    """Except the first, which has those of a run of one process; a resumed process continues its own."""

    def numbers(rank: int, restored: list[dict] | None = None) -> list[float]:
        torch.manual_seed(0), random.seed(0), np.random.seed(0)
        callback, trainer = RNGState(), SimpleNamespace(global_rank=rank)
        callback.on_load_checkpoint(trainer, None, {_KEY: restored or []})
        callback.on_fit_start(trainer, None)
        return [torch.rand(()).item(), random.random(), np.random.rand()]

    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    state, alone = rng_state(), [torch.rand(()).item(), random.random(), np.random.rand()]
    assert numbers(0) == alone
    ranks = [numbers(rank) for rank in range(3)]
    assert all(len({*values}) == 3 for values in zip(*ranks, strict=True))
    assert numbers(1) == ranks[1]
    assert numbers(1, [state, state]) == alone
    assert numbers(2, [state, state]) == ranks[2]  # a resumed run with more processes
