"""Loaders resume at any batch, alone and in Lightning, and share batches among processes."""

import multiprocessing

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from torch import distributed as dist
from torch import nn

from nas_lightning.data import Fake, SearchData, loaders
from nas_lightning.data.loaders import EpochLoader
from nas_lightning.data.order import BatchRows
from nas_lightning.errors import InputError

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),  # Lightning's use of PyTorch
    pytest.mark.filterwarnings(
        "ignore:Checkpoint directory .* exists and is not empty"
    ),  # a resumed run's is
]
STEPS = 3 * 8


def fake(**changes):
    options = {"shape": (3, 6, 6), "train_size": 48, "test_size": 19, "batch_size": 6, "cutout": 2}
    return Fake(**{**options, "num_classes": 4, **changes})


def flat(batch):
    """Every tensor of a batch, in a fixed order."""
    if isinstance(batch, dict):
        return [tensor for side in ("train", "valid") for tensor in batch[side]]
    return list(batch)


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(flat(one), flat(other), strict=True))


def all_same(ones, others):
    assert len(ones) == len(others)
    return all(same(one, other) for one, other in zip(ones, others, strict=True))


# Alone


def test_the_same_seed_gives_the_same_batches_and_another_does_not():
    first, again, other = (list(fake(seed=seed).train_dataloader()) for seed in (0, 0, 1))
    assert all_same(first, again)
    assert not same(first[0], other[0])


def test_global_random_numbers_neither_matter_nor_are_used():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = list(fake().train_dataloader())
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(2)
    assert all_same(first, list(fake().train_dataloader()))


def test_state_restores_the_place_within_an_epoch():
    for make in [fake, lambda: SearchData(fake(), train_fraction=0.7)]:
        loader = make().train_dataloader()
        loader.set_epoch(2)
        whole = list(loader)
        for place in range(len(whole) + 1):
            broken = make().train_dataloader()
            broken.set_epoch(2)
            iterator = iter(broken)
            for _ in range(place):
                next(iterator)
            resumed = make().train_dataloader()
            iterator = iter(resumed)  # Lightning asks for the iterator before it tells the epoch
            resumed.load_state_dict(broken.state_dict())
            resumed.set_epoch(2)
            assert resumed.state_dict() == broken.state_dict() or place == len(whole)
            assert all_same(list(iterator), whole[place:] if place < len(whole) else whole)
            assert all_same(list(resumed), whole)  # only the first pass goes on


def test_another_epoch_starts_at_its_beginning():
    loader = fake().train_dataloader()
    loader.load_state_dict({"epoch": 0, "batches": 3, "length": 8})
    loader.set_epoch(1)
    assert len(list(loader)) == 8


def test_resume_with_another_length_is_refused():
    state = {"epoch": 0, "batches": 3, "length": 9}
    with pytest.raises(InputError, match="To resume within an epoch, it must have"):
        fake().train_dataloader().load_state_dict(state)
    fake().train_dataloader().load_state_dict({**state, "batches": 9})  # finished: nothing to go on with


def test_past_the_end_comes_another_shuffle_of_the_same_set():
    batches = fake(augment=False, cutout=0).train_dataloader().source
    first, second = (torch.cat([x for x, _ in batches.batches(0, start, 8)]) for start in (0, 8))
    assert not torch.equal(first, second)
    assert torch.equal(first.flatten(1).sort(0).values, second.flatten(1).sort(0).values)


def test_a_batch_larger_than_the_set_is_refused():
    with pytest.raises(InputError, match="`batch_size` must be at most 48, got 49"):
        fake(batch_size=49).prepare()


def test_evaluation_is_the_set_in_order_without_augmentation():
    data = fake()
    x, y = (torch.cat(parts) for parts in zip(*data.test_dataloader(), strict=True))
    images, labels = next(data.test.read([BatchRows(torch.arange(19))], random=False))
    assert torch.equal(x, loaders.normalize(images, data.mean, data.std))
    assert torch.equal(y, labels)
    assert len(data.test_dataloader()) == 2


# Several processes


@pytest.mark.parametrize(
    "make", [fake, lambda **k: SearchData(fake(**k), train_fraction=0.7)], ids=["plain", "search"]
)
def test_two_processes_have_halves_of_the_batch(make, monkeypatch):
    whole = list(make(batch_size=6).train_dataloader())
    halves = []
    for rank in range(2):
        monkeypatch.setattr(loaders, "rank_and_world", lambda rank=rank: (rank, 2))
        halves.append(list(make(batch_size=3).train_dataloader()))
    assert len(whole) == len(halves[0]) == len(halves[1])
    for one, left, right in zip(whole, *halves, strict=True):
        for a, b, c in zip(flat(one), flat(left), flat(right), strict=True):
            assert torch.equal(a, torch.cat([b, c]))


def test_fixed_batches_are_the_same_on_every_process(monkeypatch):
    expected = SearchData(fake()).train_batches(3, seed=1)
    monkeypatch.setattr(loaders, "rank_and_world", lambda: (1, 2))
    assert all_same(expected, SearchData(fake()).train_batches(3, seed=1))


def _process(rank, store, queue):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    train = [x.numpy() for x, _ in fake(batch_size=3).train_dataloader()]
    test = [y.numpy() for _, y in fake(batch_size=3).test_dataloader()]
    queue.put((rank, train, test))
    dist.destroy_process_group()


def test_real_processes_share_batches_and_the_test_set(tmp_path):
    context = multiprocessing.get_context("fork")  # a fresh interpreter would import for seconds
    queue = context.Queue()
    processes = [
        context.Process(target=_process, args=(rank, tmp_path / "store", queue)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    (_, *left), (_, *right) = sorted((queue.get(timeout=60) for _ in processes), key=lambda result: result[0])
    for process in processes:
        process.join(timeout=60)
    for (x, _), a, b in zip(fake(batch_size=6).train_dataloader(), left[0], right[0], strict=True):
        assert torch.equal(x, torch.cat([torch.from_numpy(a), torch.from_numpy(b)]))
    seen = torch.cat([torch.from_numpy(y) for y in left[1] + right[1]])
    assert torch.equal(seen, torch.cat([y for _, y in fake().test_dataloader()]))


# Lightning


class Recorder(pl.LightningModule):
    """Keeps every batch that it trains on."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.seen = []

    def training_step(self, batch, index):
        self.seen.append((self.current_epoch, [tensor.clone() for tensor in flat(batch)]))
        return self.layer(torch.ones(1, 1)).sum()

    def validation_step(self, batch, index):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Searcher(Recorder):
    """Has no validation, as a search."""

    validation_step = pl.LightningModule.validation_step


class Kill(Callback):
    def __init__(self, step):
        self.step = step

    def on_train_batch_start(self, trainer, module, batch, index):
        if trainer.global_step == self.step:
            raise KeyboardInterrupt


def fit(module, data, folder, callbacks=(), checkpoint=None):
    save = ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    trainer = pl.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        callbacks=[*callbacks, save],
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, datamodule=data, ckpt_path=checkpoint)
    return module.seen


def equal_records(ones, others):
    assert [epoch for epoch, _ in ones] == [epoch for epoch, _ in others]
    assert len(ones) == len(others)
    return all(
        torch.equal(a, b)
        for (_, one), (_, other) in zip(ones, others, strict=True)
        for a, b in zip(one, other, strict=True)
    )


CASES = {
    "plain": (Recorder, fake),
    "validated": (Recorder, lambda: fake(train_size=60, val_fraction=0.2)),
    "search": (Searcher, lambda: SearchData(fake(train_size=69), train_fraction=0.7)),
}


@pytest.mark.parametrize("case", CASES)
def test_lightning_resumes_to_the_bit_from_every_step(case, tmp_path):
    module, data = CASES[case]
    whole = fit(module(), data(), tmp_path)
    assert len(whole) == STEPS
    assert (
        len({float(tensors[0].sum()) for _, tensors in whole}) == STEPS
    )  # batches differ, or this shows nothing
    for step in range(1, STEPS):
        resumed = fit(module(), data(), tmp_path, checkpoint=tmp_path / f"step={step}.ckpt")
        assert equal_records(resumed, whole[step:]), step


def test_killed_run_resumes_to_the_bit(tmp_path):
    whole = fit(Recorder(), fake(), tmp_path / "whole")
    step = int(torch.randint(9, 15, (), generator=torch.Generator().manual_seed(0)))
    killed = Recorder()
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit(killed, fake(), tmp_path, [Kill(step)])
    assert len(killed.seen) == step
    resumed = fit(Recorder(), fake(), tmp_path, checkpoint=tmp_path / f"step={step}.ckpt")
    assert equal_records(killed.seen + resumed, whole)


def test_lightning_leaves_the_loader_alone():
    assert not isinstance(fake().train_dataloader(), torch.utils.data.DataLoader)
    assert isinstance(fake().train_dataloader(), EpochLoader)
