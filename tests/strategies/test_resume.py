"""A search that breaks off and is resumed continues to the same bits, whatever the strategy."""

import zlib

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import Logger

from nas_lightning.callbacks import RNGState

EPOCHS, BATCHES = 2, 3
AFTER_AN_EPOCH = (
    "darts",
    "pr_darts",
    "drnas",
    "oles",
    "spos",
    "nesbs",
    "nasi",
    "evolution",
    "hnas",
    "optuna",
)
"""Resumed from the end of an epoch, too: one of each kind of state."""


class StopError(Exception):
    pass


class StopAfter(pl.Callback):
    """Raises after so many batches, before a checkpoint can be written there."""

    def __init__(self, batches):
        self.left = batches

    def on_train_batch_end(self, *args):
        self.left -= 1
        if not self.left:
            raise StopError


class EpochMetrics(Logger):
    """What each epoch logged, by its number."""

    name, version = "epochs", 0

    def __init__(self):
        super().__init__()
        self.of = {}

    def log_metrics(self, metrics, step=None):
        self.of.setdefault(int(metrics["epoch"]), {}).update(metrics)

    def log_hyperparams(self, *args, **kwargs):
        pass


class Run:
    """One fit, and everything that must come out the same."""

    def __init__(
        self, search, trainer, name, folder, *callbacks, every_step=False, resume=None, epochs=EPOCHS
    ):
        options = {"every_n_train_steps": 1} if every_step else {"save_on_train_epoch_end": True}
        checkpoint = ModelCheckpoint(folder, "last", enable_version_counter=False, **options)
        self.checkpoint, self.metrics = folder / "last.ckpt", EpochMetrics()
        strategy, *overrides = name.split()
        self.strategy, data = search(strategy, "nasbench201", *overrides)
        if resume is not None:  # what a process starts with must not matter then
            torch.manual_seed(5)
            self.strategy.generator.manual_seed(99)
            with torch.no_grad():
                for parameter in self.strategy.parameters():
                    parameter.fill_(0.3)
        callbacks = [RNGState(), checkpoint, *callbacks]
        self.trainer = trainer(epochs, *callbacks, enable_checkpointing=True, logger=self.metrics)
        try:
            self.trainer.fit(self.strategy, data, ckpt_path=resume)
            self.finished = True
        except StopError:
            self.finished = False

    def result(self):
        return {
            "parameters": self.strategy.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.trainer.optimizers],
            "generator": self.strategy.generator.get_state(),
            "genotype": self.strategy.derive(),
            "steps": self.trainer.global_step,
        }


def same(one, two):
    """Equality of nested containers, tensors bit by bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(same(a, b) for a, b in zip(one, two, strict=True))
    return one == two


def differing(one, two):
    return [part for part, value in one.items() if not same(value, two[part])]


def check_resume(name, search, trainer, folder):
    """Stop within an epoch, and for some strategies at its end; resume, and compare with a whole run."""
    whole = Run(search, trainer, name, folder / "whole")
    assert whole.finished
    expected = whole.result()

    if name in AFTER_AN_EPOCH:
        stopped = Run(search, trainer, name, folder / "epoch", StopAfter(2 * BATCHES - 1))
        assert not stopped.finished
        resumed = Run(search, trainer, name, folder / "epoch", resume=stopped.checkpoint)
        assert not differing(expected, resumed.result())
        assert set(resumed.metrics.of) == {1}
        assert {**stopped.metrics.of, **resumed.metrics.of} == whole.metrics.of

    inner = [batch for batch in range(2, EPOCHS * BATCHES + 1) if (batch - 1) % BATCHES]
    batches = inner[zlib.crc32(name.encode()) % len(inner)]  # the checkpoint is that of the batch before
    stopped = Run(search, trainer, name, folder / "batch", StopAfter(batches), every_step=True)
    assert not stopped.finished
    resumed = Run(search, trainer, name, folder / "batch", resume=stopped.checkpoint, every_step=True)
    assert not differing(expected, resumed.result())
    assert {**stopped.metrics.of, **resumed.metrics.of} == whole.metrics.of

    again = Run(search, trainer, name, folder / "whole", resume=whole.checkpoint)  # after its last epoch
    assert again.metrics.of == {}
    assert not differing(expected, again.result())
    assert same(dict(whole.strategy.scores()), dict(again.strategy.scores()))


def test_every_strategy_resumes_to_the_same_bits(fitted_name, search, trainer, tmp_path):
    check_resume(fitted_name, search, trainer, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "darts arch_step=second_order",
        "gaea arch_step=single_level",
        "darts strategy.accumulate_grad_batches=2",
    ],
)
def test_other_steps_resume_to_the_same_bits(name, search, trainer, tmp_path):
    check_resume(name, search, trainer, tmp_path)


@pytest.fixture(scope="module")
def whole(search, trainer, tmp_path_factory):
    """`whole(name)`: a run that is not stopped, once per strategy."""
    found = {}

    def get(name):
        if name not in found:
            found[name] = Run(search, trainer, name, tmp_path_factory.mktemp("whole"))
        return found[name]

    return get


def test_at_every_batch_of_an_epoch(search, trainer, whole, tmp_path):
    """For the strategy with the most state: temperature, samples, two optimizers."""
    for batches in (2, 3, 4, 5):
        folder = tmp_path / str(batches)
        stopped = Run(search, trainer, "pr_darts", folder, StopAfter(batches), every_step=True)
        resumed = Run(search, trainer, "pr_darts", folder, resume=stopped.checkpoint, every_step=True)
        assert not differing(whole("pr_darts").result(), resumed.result())


def test_the_comparison_can_fail(search, trainer, whole, tmp_path):
    """Without the generator's state the samples are others."""
    stopped = Run(search, trainer, "gdas", tmp_path, StopAfter(BATCHES + 1))
    checkpoint = torch.load(stopped.checkpoint, weights_only=True)
    checkpoint["nas_lightning"]["generator"] = torch.Generator().manual_seed(1).get_state()
    torch.save(checkpoint, stopped.checkpoint)
    resumed = Run(search, trainer, "gdas", tmp_path, resume=stopped.checkpoint)
    assert "parameters" in differing(whole("gdas").result(), resumed.result())


@pytest.mark.parametrize(
    ("strategy", "space", "message"),
    [
        ("gaea", "nasbench201", "The strategy of the checkpoint must be Gaea, got 'Darts'"),
        ("darts", "darts", "The space of the checkpoint must be darts, got 'nasbench201'"),
    ],
)
def test_checkpoint_of_another_search_is_rejected(search, trainer, whole, refusal, strategy, space, message):
    other, data = search(strategy, space)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    assert refusal(lambda: trainer(EPOCHS).fit(other, data, ckpt_path=whole("darts").checkpoint)) == message
    assert same(before, dict(other.state_dict()))  # nothing was loaded


def test_checkpoint_of_other_cells_is_rejected(search, trainer, refusal, tmp_path):
    """The same space by name, with other nodes or operations."""
    strategy, data = search("darts", "darts")
    fit = trainer(1, limit_train_batches=1)
    fit.fit(strategy, data)
    fit.save_checkpoint(tmp_path / "last.ckpt")
    nodes, _ = search("darts", "darts", "space.nodes=2")
    ops, _ = search("darts", "darts", "+space.ops=[none,skip_connect,sep_conv_3x3]")
    for other, what in ((nodes, "edges"), (ops, "operations")):
        message = refusal(lambda other=other: trainer(1).fit(other, data, ckpt_path=tmp_path / "last.ckpt"))
        assert message.startswith(f"The {what} of the checkpoint must be")


def test_checkpoint_without_a_search_is_rejected(search, trainer, refusal, tmp_path):
    strategy, data = search("darts", "nasbench201")
    fit = trainer(1, limit_train_batches=1)
    fit.fit(strategy, data)
    path = tmp_path / "foreign.ckpt"
    fit.save_checkpoint(path)
    checkpoint = torch.load(path, weights_only=True)
    del checkpoint["nas_lightning"]
    torch.save(checkpoint, path)
    message = refusal(lambda: trainer(1).fit(strategy, data, ckpt_path=path))
    assert message.startswith("The checkpoint is not that of a search")
