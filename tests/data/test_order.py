"""The order of samples: coverage, and independence of the number of processes."""

from itertools import product

import pytest
import torch

from nas_lightning.data.order import evaluation_rows, stratified_split, training_rows
from nas_lightning.errors import InputError
from nas_lightning.utils.randomness import generator


def rows(**changes):
    options = {
        "size": 50,
        "batch_size": 6,
        "seed": 3,
        "epoch": 1,
        "start": 0,
        "count": 8,
        "rank": 0,
        "world": 1,
    }
    return [draw.rows for draw in training_rows(**{**options, **changes})]


def test_a_pass_is_a_shuffle_without_repetition_and_drops_the_rest():
    seen = torch.cat(rows())
    assert len(seen) == 48 == len(seen.unique())
    assert not torch.equal(seen, seen.sort().values)


def test_seed_epoch_and_pass_change_the_order():
    for changed in [{"seed": 4}, {"epoch": 2}, {"start": 8}]:
        assert not torch.equal(torch.cat(rows()), torch.cat(rows(**changed)))


def test_starting_anywhere_gives_the_same_batches():
    for start in range(20):
        whole = rows(count=20)  # two passes of 8 and a half
        for expected, got in zip(whole[start:], rows(start=start, count=20 - start), strict=True):
            assert torch.equal(expected, got)


def test_processes_share_the_global_batch():
    for world in [2, 3]:
        alone = list(training_rows(50, 2 * world, 3, 1, 0, 9, 0, 1))
        shares = [list(training_rows(50, 2, 3, 1, 0, 9, rank, world)) for rank in range(world)]
        for whole, *parts in zip(alone, *shares, strict=True):
            assert torch.equal(whole.rows, torch.cat([part.rows for part in parts]))
            assert {part.key for part in parts} == {whole.key}
            assert [part.first for part in parts] == [2 * rank for rank in range(world)]
            assert {part.total for part in parts} == {whole.total}


def test_evaluation_sees_every_sample_once_in_equally_many_batches():
    """Brute force over sizes, batches and processes; where it is impossible, it must say so."""
    impossible = 0
    for size, batch_size, world in product(range(1, 30), range(1, 7), range(1, 5)):
        try:
            shares = [evaluation_rows(size, batch_size, rank, world) for rank in range(world)]
        except InputError:
            impossible += 1
            assert size < world or batch_size == 1
            continue
        assert len({len(share) for share in shares}) == 1
        assert all(0 < len(draw.rows) <= batch_size for share in shares for draw in share)
        seen = torch.cat([draw.rows for share in shares for draw in share])
        assert torch.equal(seen, torch.arange(size))
    assert impossible


def test_evaluation_on_one_process_has_full_batches_and_a_rest():
    assert [len(draw.rows) for draw in evaluation_rows(10, 4, 0, 1)] == [4, 4, 2]


def test_a_stratified_split_is_disjoint_complete_and_in_proportion():
    for fraction in [0.1, 0.5, 0.77]:
        labels = torch.cat([torch.full((size,), label) for label, size in enumerate([50, 7, 100, 23])])
        labels = labels[torch.randperm(len(labels))]
        first, second = stratified_split(labels, fraction, generator(0))
        assert torch.equal(torch.cat([first, second]).sort().values, torch.arange(180))
        assert len(first) == round(fraction * 180)
        for label, size in enumerate([50, 7, 100, 23]):
            assert abs(int((labels[first] == label).sum()) - fraction * size) <= 1


def test_a_stratified_split_follows_from_its_generator():
    labels = torch.arange(60) % 3
    again, other = (stratified_split(labels, 0.5, generator(key))[0] for key in (0, 1))
    first = stratified_split(labels, 0.5, generator(0))[0]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_split_that_leaves_a_side_empty_is_refused():
    for fraction in [0.0, 1.0, 0.001]:
        with pytest.raises(InputError, match="both sides"):
            stratified_split(torch.arange(20) % 2, fraction, generator(0))
