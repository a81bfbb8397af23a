"""Progress and elapsed time."""

import io

import pytest
import pytorch_lightning as pl
import torch

from nas_lightning.callbacks import SearchProgressBar
from nas_lightning.callbacks import progress as elapsed
from nas_lightning.callbacks.progress import Stopwatch
from nas_lightning.data import Fake
from nas_lightning.spaces import NasBench201
from nas_lightning.training.retrain import Retrain

# What a terminal and a pipe get to see.


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_pipe_gets_one_line_an_epoch(tmp_path, tiny, trainer, capsys):
    trainer(tmp_path, 12, SearchProgressBar(), enable_progress_bar=True).fit(tiny())
    out, err = capsys.readouterr()
    lines = [line for line in out.splitlines() if line.startswith("epoch")]
    assert len(lines) == 12
    assert lines[0].startswith("epoch  1/12   train ")
    assert lines[-1].startswith("epoch 12/12   train ")
    assert all("%" in line and "valid" in line and len(line) < 80 for line in lines)
    assert "\r" not in out + err


def test_a_terminal_gets_a_bar_with_short_names(tmp_path, tiny, trainer, monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    trainer(tmp_path, 2, SearchProgressBar(), enable_progress_bar=True).fit(tiny())
    shown = screen.getvalue()
    assert "epoch 2/2: 100%" in shown
    assert "train=" in shown
    assert "v_num" not in shown
    assert "\nepoch" not in shown  # one line, rewritten


def test_a_side_that_an_epoch_leaves_alone_is_not_repeated(tmp_path, tiny, trainer, capsys, monkeypatch):
    search = tiny()
    whole = search.log_dict

    def only_first_epochs(values, **options):
        late = {"num_scored": 40.0 + search.current_epoch}
        whole(values if search.current_epoch < 2 else late, **options)

    search.log_dict = only_first_epochs
    search.validation_step = lambda batch, batch_idx: None
    monkeypatch.setattr(elapsed, "FIRST", -1.0)  # a line a round
    trainer(tmp_path, 4, SearchProgressBar(), enable_progress_bar=True).fit(search)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
    assert ["train" in line for line in lines] == [True, True, False, False]
    assert lines[2:] == ["epoch 3/4   scored 42", "epoch 4/4   scored 43"]


def test_short_rounds_share_a_line_and_long_epochs_have_several(tmp_path, tiny, trainer, capsys, monkeypatch):
    def lines(search):
        trainer(tmp_path, 6, SearchProgressBar(), enable_progress_bar=True).fit(search)
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]

    search = tiny()
    whole, search.validation_step = search.log_dict, lambda batch, batch_idx: None
    search.log_dict = lambda values, **options: whole({"num_scored": 40.0 + search.current_epoch}, **options)
    assert lines(search) == ["epoch 6/6   scored 45"]

    monkeypatch.setattr(elapsed, "APART", -1.0)
    search = tiny()
    search.validation_step = lambda batch, batch_idx: None
    found = lines(search)
    assert sum("batch 1 of " in line for line in found) == sum("train" in line for line in found) == 6


# The seconds of a run that was stopped, against a clock that the test turns.


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
