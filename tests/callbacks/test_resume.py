"""A search that is killed, for real, and resumed equals one that ran through: weights, metrics, history."""

import os
import random
import signal

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint

from nas_lightning.callbacks.checkpoints import StepCheckpoint, rng_state, set_rng_state
from nas_lightning.genotype import Genotype

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
