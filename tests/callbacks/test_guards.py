"""Guards: memory, expected time, collapse, and divergence."""

import logging
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch

from nas_lightning.callbacks import (
    CollapseWarning,
    DivergenceGuard,
    ExpectedTime,
    MemoryGuard,
    SearchProgressBar,
)
from nas_lightning.callbacks import guards as expected_time
from nas_lightning.callbacks import guards as memory_guard
from nas_lightning.callbacks.checkpoints import StepCheckpoint
from nas_lightning.callbacks.guards import check_fits, skip_share, step_memory
from nas_lightning.data import Fake
from nas_lightning.errors import InputError
from nas_lightning.objectives.memory import Memory
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.training.retrain import Retrain

# What is said before and at the start of a long run, and what is refused.


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


# The warning of a collapse: when, how often, and what it stops.


def test_share_of_cells_counted_by_hand():
    space = DartsSpace()
    normal = [("skip_connect", 0), ("sep_conv_3x3", 1), ("skip_connect", 0), ("skip_connect", 1)]
    reduce = [("max_pool_3x3", 0), ("max_pool_3x3", 1), ("skip_connect", 0), ("max_pool_3x3", 1)]
    assert skip_share([space.parse({"normal": normal, "reduce": reduce})]) == 3 / 4
    assert skip_share([space.parse({"normal": reduce, "reduce": reduce})]) == 1 / 4
    parse = NasBench201().parse
    nothing = parse("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|")
    skips = parse("|skip_connect~0|+|none~0|skip_connect~1|+|none~0|none~1|none~2|")
    assert skip_share([nothing]) == 0
    assert skip_share([skips]) == 1
    assert skip_share([nothing, skips]) == 1


def leaning(module, skips):
    """Let `module` derive a cell with that many skips of six, epoch by epoch."""

    def derive():
        ops = ["skip_connect" if i < skips[module.current_epoch] else "nor_conv_3x3" for i in range(6)]
        text = "|{}~0|+|{}~0|{}~1|+|{}~0|{}~1|{}~2|".format(*ops)
        return [module.space.parse(text)]

    module.derive = derive
    return module


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if "collaps" in record.getMessage()]


def test_warns_once_after_its_patience(tmp_path, tiny, trainer, caplog):
    callback = CollapseWarning(threshold=0.5, patience=2)
    fit = trainer(tmp_path, 6, callback)
    with caplog.at_level(logging.WARNING, "nas_lightning"):
        fit.fit(leaning(tiny(), [3, 2, 3, 4, 5, 6]))
    (message,) = warnings_of(caplog)
    assert "67 % of a cell's operations are skips after 4 epochs" in message
    assert len(message.splitlines()) == 1
    assert fit.current_epoch == 6
    assert float(fit.callback_metrics["skip_share"]) == 1


def test_stays_silent_below_the_threshold(tmp_path, tiny, trainer, caplog):
    with caplog.at_level(logging.WARNING, "nas_lightning"):
        trainer(tmp_path, 3, CollapseWarning(patience=1)).fit(leaning(tiny(), [2, 2, 2]))
    assert warnings_of(caplog) == []


def test_stops_where_it_is_told_to(tmp_path, tiny, trainer):
    fit = trainer(tmp_path, 6, CollapseWarning(threshold=0.25, patience=1, stop=True))
    fit.fit(leaning(tiny(), [0, 1, 2, 2, 2, 2]))
    assert fit.current_epoch == 3


def test_counts_on_after_a_restart(tmp_path, tiny, trainer, caplog):
    skips = [4, 4, 4, 4]
    trainer(tmp_path, 2, CollapseWarning(patience=3)).fit(leaning(tiny(), skips))
    fit = trainer(tmp_path, 4, CollapseWarning(patience=3, stop=True))
    with caplog.at_level(logging.WARNING, "nas_lightning"):
        fit.fit(leaning(tiny(), skips), ckpt_path=tmp_path / "checkpoints" / "last.ckpt")
    assert fit.current_epoch == 3
    assert len(warnings_of(caplog)) == 1


@pytest.mark.parametrize("options", [{"threshold": 0}, {"threshold": 1.1}, {"patience": 0}])
def test_refuses_what_cannot_be(refusal, options):
    assert next(iter(options)) in refusal(lambda: CollapseWarning(**options))


def test_share_reaches_the_metrics_file(tmp_path, tiny, trainer):
    trainer(tmp_path, 1, CollapseWarning()).fit(leaning(tiny(), [3]))
    header, *rows = (tmp_path / "metrics.csv").read_text().splitlines()
    column = header.split(",").index("skip_share")
    assert torch.tensor(
        [float(row.split(",")[column]) for row in rows if row.split(",")[column]]
    ).tolist() == [0.5]


def test_whole_architectures_that_are_compared_cannot_collapse(tmp_path, tiny, trainer, caplog):
    callback, module = CollapseWarning(threshold=0.5, patience=1), leaning(tiny(), [6, 6])
    module.scores = dict  # nothing is scored edge by edge
    fit = trainer(tmp_path, 2, callback)
    with caplog.at_level(logging.WARNING, "nas_lightning"):
        fit.fit(module)
    assert not warnings_of(caplog)
    assert "skip_share" not in fit.callback_metrics


# What diverges ends with one line, and the last checkpoint is finite.


class Poison(pl.Callback):
    """Makes one weight infinite before a step."""

    def __init__(self, step, value):
        self.step, self.value = step, value

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == self.step:
            with torch.no_grad():
                pl_module.network[0].weight[3, 1] = self.value


def last_checkpoint(folder):
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_checkpoint_of_infinite_weights(tmp_path, tiny, trainer, value):
    """The 14th step is in the third epoch: the checkpoint of the second stays."""
    run = trainer(tmp_path, 4, DivergenceGuard(monitor="train_accuracy"), Poison(13, value))
    with pytest.raises(InputError, match=r"^Weights must be finite: lower the learning rate.*epoch 2, step"):
        run.fit(tiny())
    kept = last_checkpoint(tmp_path)
    assert kept["epoch"] == 1
    assert all(bool(weights.isfinite().all()) for weights in kept["state_dict"].values())


def test_within_an_epoch_too(tmp_path, tiny, trainer):
    steps = StepCheckpoint(tmp_path / "checkpoints" / "last.ckpt", 1)
    run = trainer(tmp_path, 2, DivergenceGuard(), Poison(3, float("nan")), steps)
    with pytest.raises(InputError, match="epoch 0, step 4"):
        run.fit(tiny())
    assert last_checkpoint(tmp_path)["global_step"] == 3


def test_a_loss_that_is_not_finite(tmp_path, tiny, trainer):
    class Exploding(pl.Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            pl_module.log("train_loss", torch.tensor(float("inf")))

    with pytest.raises(InputError, match=r"`train_loss` must be finite: .* got inf"):
        trainer(tmp_path, 2, Exploding(), DivergenceGuard()).fit(tiny())


def test_what_is_finite_goes_on(tmp_path, tiny, trainer):
    trainer(tmp_path, 2, DivergenceGuard()).fit(tiny())
    assert last_checkpoint(tmp_path)["epoch"] == 1
