"""The seconds of a run that was stopped, against a clock that the test turns."""

import pytest
import pytorch_lightning as pl
import torch

from nas_lightning.callbacks import progress as elapsed
from nas_lightning.callbacks.progress import Stopwatch
from nas_lightning.data import Fake
from nas_lightning.spaces import NasBench201
from nas_lightning.training.retrain import Retrain


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 500.0

        @classmethod
        def monotonic(cls):
            return cls.now

    monkeypatch.setattr(elapsed, "time", Clock)
    return Clock


class Epochs(pl.Callback):
    """Epochs of ten seconds, a checkpoint after the second, and an end in the third."""

    def __init__(self, clock, path, last):
        self.clock, self.path, self.last = clock, path, last

    def on_train_epoch_end(self, trainer, module):
        self.clock.now += 10
        if trainer.current_epoch == 1:
            trainer.save_checkpoint(self.path)
        trainer.should_stop = trainer.current_epoch == self.last


def start(clock, path, last, resume=None):
    took = Stopwatch()
    clock.now += 3  # before training: images are read
    network = NasBench201().network(
        NasBench201().sample(torch.Generator()), in_channels=3, num_classes=2, channels=2, cells=1
    )
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        max_epochs=4,
        accelerator="cpu",
        enable_checkpointing=False,
        callbacks=[took, Epochs(clock, path, last)],
        **quiet,
    )
    data = Fake(num_classes=2, shape=(3, 8, 8), train_size=8, test_size=8, batch_size=8)
    trainer.fit(Retrain(network, 2), data, ckpt_path=resume, weights_only=True)
    return took.seconds()


def test_starts_add_up_to_the_run_without_what_was_done_twice(clock, tmp_path):
    path = tmp_path / "last.ckpt"
    assert start(clock, path, last=2) == 33  # 3 + three epochs, the third of which is lost
    clock.now += 86_400  # a day later
    assert start(clock, path, last=3, resume=path) == 23 + 3 + 20
    assert start(clock, path, last=3) == 43  # a run of its own
