"""Searches that end by time: when they stop, what follows their length, and the account of a resumed one."""

from random import Random

import pytest
import pytorch_lightning as pl
import torch

from nas_lightning.data import Fake, SearchData
from nas_lightning.objectives import inherited
from nas_lightning.report import page as live_page
from nas_lightning.report import page as report_page
from nas_lightning.report.page import LivePage
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Darts, Greedy, Nasi, RandomCandidates, RandomWS
from nas_lightning.strategies.black_box import base as black_box
from nas_lightning.strategies.one_shot import selection as selection_stage
from nas_lightning.training import run_length as deadline_module
from nas_lightning.training.run_length import Deadline

QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")


def darts(**options):
    space = NasBench201()
    return Darts(space, space.supernet(in_channels=3, num_classes=4, channels=2, cells=1), **options)


def data():
    return SearchData(Fake(train_size=16, batch_size=4))


class Clock:
    """Goes on by what is slept, and a little whenever it is asked, on every machine alike."""

    def __init__(self):
        self.now, self.share = 0.0, 1.0

    def process_time(self):
        """What a process computes that has a share of its machine."""
        return self.share * self.now

    def monotonic(self):
        self.now += 0.001
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(deadline_module, "time", clock)
    for module in (selection_stage, black_box):
        monkeypatch.setattr(module, "monotonic", clock.monotonic)
    return clock


class Slow(pl.Callback):
    """Steps and ends of epochs that take as long as is said."""

    def __init__(self, clock, step=0.0, end=0.0):
        self.clock, self.step, self.end = clock, step, end

    def on_train_batch_start(self, *args):
        self.clock.sleep(self.step)

    def on_train_epoch_end(self, *args):
        self.clock.sleep(self.end)


def fit(strategy, deadline, *callbacks, checkpoint=None, **options):
    trainer = pl.Trainer(max_epochs=-1, callbacks=[*callbacks, deadline], **QUIET, **options)
    trainer.fit(strategy, data(), ckpt_path=checkpoint)
    return trainer


def test_a_search_ends_in_time_and_its_rate_with_it(tmp_path, clock):
    strategy, deadline = darts(), Deadline(minutes=0.08)
    fit(strategy, deadline, Slow(clock, step=0.1), default_root_dir=tmp_path, enable_checkpointing=False)
    assert deadline.time_elapsed() == pytest.approx(4.8, abs=0.48)
    assert strategy.current_epoch > 3
    assert strategy.schedule.optimizer.param_groups[0]["lr"] < 0.3 * strategy.lr  # of a cosine near its end
    strategy.space.check(strategy.derive()[0])


def test_time_is_kept_for_the_end_of_an_epoch(tmp_path, clock):
    deadline = Deadline(minutes=0.1)
    fit(darts(), deadline, Slow(clock, end=1.5), default_root_dir=tmp_path, enable_checkpointing=False)
    assert 4.5 < deadline.time_elapsed() < 6.75  # within half of what going on takes


def test_a_long_step_ends_as_near_to_the_time_as_it_can(tmp_path, clock):
    deadline = Deadline(minutes=0.05)
    fit(darts(), deadline, Slow(clock, step=1.0), default_root_dir=tmp_path, enable_checkpointing=False)
    assert abs(deadline.time_elapsed() - 3.0) < 0.75


def test_resumed_search_has_the_remaining_time(tmp_path, clock):
    first = Deadline(minutes=1)
    trainer = pl.Trainer(max_epochs=2, callbacks=[first], default_root_dir=tmp_path, **QUIET)
    first._made -= 57  # as if it had taken that long
    trainer.fit(darts(), data())
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    start, second = clock.now, Deadline(minutes=1)
    fit(darts(), second, Slow(clock, step=0.1), checkpoint=tmp_path / "last.ckpt", default_root_dir=tmp_path)
    assert second.time_elapsed() > 57
    assert clock.now - start < 5


@pytest.mark.parametrize("steps", Random(5).sample(range(1, 40), 3))
def test_resumed_search_at_any_step_has_the_remaining_time(tmp_path, clock, steps):
    """In the middle of an epoch or at its end; what passes until it goes on is not in the account."""
    first, options = Deadline(minutes=0.08), {"default_root_dir": tmp_path, **QUIET}
    callbacks = [Slow(clock, step=0.1), first]
    trainer = pl.Trainer(max_epochs=-1, max_steps=steps, callbacks=callbacks, **options)
    trainer.fit(darts(), data())
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    spent = first.time_elapsed()
    assert 0.1 * steps <= spent < 4.8
    clock.sleep(100)
    second, start = Deadline(minutes=0.08), clock.now
    fit(darts(), second, Slow(clock, step=0.1), checkpoint=tmp_path / "last.ckpt", default_root_dir=tmp_path)
    assert second.time_elapsed() == pytest.approx(4.8, abs=0.48)
    assert clock.now - start == pytest.approx(4.8 - spent, abs=0.48)


def test_a_search_that_wants_to_know_its_length_takes_the_samples_that_it_has(tmp_path):
    """The mode of the mean over all samples is that of a run of as many steps."""
    space, found = NasBench201(), []
    for epochs in (3, -1):
        supernet = space.supernet(in_channels=3, num_classes=4, channels=2, cells=1)
        strategy = Nasi(space, supernet, data(), nu=1.0, seed=1)
        trainer = pl.Trainer(
            max_epochs=epochs, max_steps=-1 if epochs > 0 else 6, **QUIET, default_root_dir=tmp_path
        )
        trainer.fit(strategy, data())
        found.append((trainer.global_step, strategy.arch["cell"].detach()))
    assert found[0][0] == found[1][0] == 6
    torch.testing.assert_close(found[0][1], found[1][1], atol=1e-5, rtol=1e-4)


def test_time_is_kept_for_an_end_that_was_never_timed(tmp_path, clock):
    """On a machine that others keep busy, in an epoch that is longer than the time."""
    clock.share, deadline = 0.1, Deadline(minutes=1)
    images = SearchData(Fake(train_size=320, batch_size=4))
    slow = Slow(clock, step=2.0, end=4.0)
    options = {"default_root_dir": tmp_path, "enable_checkpointing": False, **QUIET}
    trainer = pl.Trainer(max_epochs=-1, callbacks=[slow, deadline], **options)
    trainer.fit(darts(), images)
    assert trainer.global_step < 40  # of an epoch
    assert deadline.time_elapsed() == pytest.approx(60, abs=2.5)


def fit_with_pages(monkeypatch, clock, folder, *, page, minutes):
    """A search whose pages take so long: its deadline, and when they were begun."""
    begun = []

    def write(*args, **options):
        begun.append(clock.now)
        clock.sleep(page)

    monkeypatch.setattr(live_page, "time", clock)
    monkeypatch.setattr(report_page, "write_report", write)
    deadline = Deadline(minutes)
    pages, slow = LivePage(folder, seconds=5), Slow(clock, step=0.1, end=0.2)
    fit(darts(), deadline, slow, pages, default_root_dir=folder, enable_checkpointing=False)
    return deadline, begun


@pytest.mark.slow
def test_pages_take_two_percent_of_the_time_and_are_no_ends_of_epochs(tmp_path, monkeypatch, clock):
    deadline, begun = fit_with_pages(monkeypatch, clock, tmp_path, page=0.6, minutes=2)
    assert 3 <= len(begun) <= 5  # one in 30 seconds
    assert deadline.end_of_epoch() < 1
    assert deadline.time_elapsed() == pytest.approx(120, abs=1)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "pages"), [(1.0, 1), (0.15, 0)])
def test_a_page_that_might_miss_the_time_is_not_begun(tmp_path, monkeypatch, clock, share, pages):
    """The first one is thought to take five seconds of a processor."""
    clock.share = share
    deadline, begun = fit_with_pages(monkeypatch, clock, tmp_path, page=10.0, minutes=0.5)
    assert len(begun) == pages
    assert deadline.time_elapsed() == pytest.approx(30, abs=1)


class SlowToJudge:
    """A judgment that takes a while, whatever the architecture."""

    def __init__(self, judge, clock, seconds):
        self.judge, self.clock, self.seconds, self.count = judge, clock, seconds, 0

    def __call__(self, *args):
        self.count += 1
        self.clock.sleep(self.seconds)
        return self.judge(*args)


def select(monkeypatch, clock, folder, *, candidates, seconds, minutes):
    """A selection whose every judgment takes so long: its deadline, judgments and trainer."""
    slow = SlowToJudge(inherited.judge_genotype, clock, seconds)
    for module in (inherited, selection_stage):
        monkeypatch.setattr(module, "judge_genotype", slow)
    space, images = NasBench201(), data()
    supernet = space.supernet(in_channels=3, num_classes=4, channels=2, cells=1)
    strategy = RandomWS(space, supernet, images, selection=RandomCandidates(candidates))
    deadline = Deadline(minutes)
    options = {"callbacks": [Slow(clock, step=0.05), deadline], "default_root_dir": folder, **QUIET}
    trainer = pl.Trainer(max_epochs=-1, enable_checkpointing=False, **options)
    trainer.fit(strategy, images)
    strategy.derive()
    return deadline, slow.count, trainer


def test_the_time_of_a_selection_is_kept_for_the_end(tmp_path, monkeypatch, clock):
    sizes = {"candidates": 20, "seconds": 0.04, "minutes": 0.06}
    deadline, judgments, trainer = select(monkeypatch, clock, tmp_path, **sizes)
    assert deadline.time_elapsed() == pytest.approx(3.6, abs=0.36)
    assert trainer.global_step > 8  # steps had their share
    assert judgments >= 2 + 15  # two at the start; all that are distinct at the end


def test_a_selection_that_is_longer_than_the_time_ends_with_it(tmp_path, monkeypatch, clock):
    sizes = {"candidates": 200, "seconds": 0.1, "minutes": 0.05}
    deadline, judgments, _ = select(monkeypatch, clock, tmp_path, **sizes)
    assert deadline.time_elapsed() == pytest.approx(3.0, abs=0.3)
    assert 5 < judgments < 30


@pytest.mark.parametrize(("share", "is_over"), [(1.0, False), (0.1, True)])
def test_a_last_stage_leaves_time_for_what_follows_it(clock, share, is_over):
    """Which is 0.3 s of a processor, and 3 s of one tenth."""
    clock.share, deadline = share, Deadline(minutes=1)
    for seconds in (57.0, 0.5):
        clock.sleep(seconds)
        deadline._asked = clock.now  # pieces that take no time
    assert deadline.is_over() == is_over


@pytest.mark.slow
def test_evaluations_and_scores_are_given_up_when_the_time_is_over(tmp_path, clock):
    space, images = NasBench201(), data()

    def network(genotype):
        clock.sleep(0.02)
        return space.network(genotype, in_channels=3, num_classes=4, channels=2, cells=1)

    for settings in ({"pool_size": 2, "epochs": 10_000}, {"pool_size": 500}):
        strategy = Greedy(space, network, images, agreement=0, images=4, **settings)
        deadline = Deadline(0.03)
        trainer = pl.Trainer(
            max_epochs=-1,
            callbacks=[deadline],
            default_root_dir=tmp_path,
            enable_checkpointing=False,
            **QUIET,
        )
        trainer.fit(strategy, images)
        ranking = strategy.ranking()
        assert strategy.evaluated == {}
        assert 2 <= len(ranking) < 500
        assert space.notation(strategy.derive()[0]) == max(ranking, key=ranking.get)
        assert deadline.time_elapsed() == pytest.approx(1.8, abs=0.18)


def test_what_is_kept_for_a_last_stage_is_half_of_all_at_most():
    deadline = Deadline(minutes=1)
    assert deadline.time_remaining() == pytest.approx(60, abs=1)
    deadline.expect(20)
    assert deadline.time_remaining() == pytest.approx(40, abs=1)
    assert deadline.affords_stage()
    deadline.expect(200)
    assert deadline.time_remaining() == pytest.approx(30, abs=1)
    assert not deadline.affords_stage()
    assert deadline.time_left() == pytest.approx(60, abs=1)
