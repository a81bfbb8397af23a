"""The two sides of a search: disjoint, and never the test images."""

import pytest
import torch

from nas_lightning.data import Digits, Fake, SearchData
from nas_lightning.data.base import Contents
from nas_lightning.data.loaders import TensorSamples, TrainBatches
from nas_lightning.errors import InputError


def rows(side):
    return side.samples.rows


def test_the_sides_are_disjoint_complete_and_in_proportion():
    for fraction in [0.5, 0.7, 0.1]:
        search = SearchData(Digits(val_fraction=0.1), train_fraction=fraction, batch_size=8)
        train, valid = rows(search.train), rows(search.valid)
        assert torch.equal(torch.cat([train, valid]).sort().values, search.data.train.rows.sort().values)
        assert len(train) == round(fraction * len(search.data.train))
        shares = torch.bincount(search.train.samples.labels) / torch.bincount(search.data.train.labels)
        assert ((shares - fraction).abs() < 0.01).all()


def test_the_split_follows_from_the_seed():
    first, again, other = (rows(SearchData(Digits(seed=seed)).train) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_epoch_has_the_length_of_the_longer_side():
    search = SearchData(Fake(train_size=100, batch_size=10), train_fraction=0.7)
    batches = list(search.train_dataloader())
    assert len(batches) == len(search.train_dataloader()) == 7
    assert len(search.valid) == 3
    plain = SearchData(Fake(train_size=100, batch_size=10, augment=False), train_fraction=0.7)
    seen = torch.cat([batch["valid"][0] for batch in plain.train_dataloader()]).flatten(1)
    assert len(seen[:30].unique(dim=0)) == 30  # one pass, then the same images in another order
    assert torch.equal(seen[:30].unique(dim=0), seen[30:60].unique(dim=0))
    assert not torch.equal(seen[:30], seen[30:60])


def test_a_single_level_has_the_whole_set_on_both_sides_in_different_orders():
    search = SearchData(Fake(augment=False), train_fraction=1.0)
    batches = list(search.train_dataloader())
    train, valid = (
        torch.cat([batch[side][0] for batch in batches]).flatten(1) for side in ("train", "valid")
    )
    assert not torch.equal(train, valid)
    assert torch.equal(train.unique(dim=0), valid.unique(dim=0))
    assert len(search.train.samples) == 128


def test_augmenting_the_validation_side_is_a_choice():
    def images(side, **options):
        return next(getattr(SearchData(Fake(**options), augment_valid=choice), side).batches(0, 0, 1))[0]

    for choice in (False, True):
        assert not torch.equal(images("train"), images("train", augment=False))
        assert torch.equal(images("valid"), images("valid", augment=False)) is not choice


class NoTest(TensorSamples):
    """Fails when it is read."""

    def read(self, draws, *, random):
        raise AssertionError("a search must not read test images")

    def in_memory(self):
        raise AssertionError("a search must not read test images")

    def select(self, rows):
        return self


class Guarded(Fake):
    """Random images whose test part must stay untouched."""

    def load(self):
        found = super().load()
        test = NoTest(found.test.images, found.test.labels)
        return Contents(found.train, test, found.classes, found.mean, found.std)


def test_test_images_stay_untouched():
    search = SearchData(Guarded())
    search.prepare_data()
    search.setup("fit")
    list(search.train_dataloader())
    search.train_batches(2)
    search.valid_batches(2)
    with pytest.raises(AssertionError, match="must not read"):  # the guard works
        search.data.setup()


def test_fixed_batches_are_not_augmented_and_come_from_their_side():
    search = SearchData(Fake(train_size=100, batch_size=10), train_fraction=0.7)
    plain = TrainBatches(
        search.valid.samples, batch_size=30, seed=0, augment=None, mean=search.data.mean, std=search.data.std
    )
    ((everything, _),) = plain.batches(0, 0, 1)
    known = {tuple(image.flatten().tolist()) for image in everything}
    batches = search.valid_batches(3, seed=5)
    assert {tuple(image.flatten().tolist()) for x, _ in batches for image in x} == known
    again = search.valid_batches(3, seed=5)
    assert all(torch.equal(a, b) for a, b in zip(batches[0], again[0], strict=True))
    assert not torch.equal(batches[0][0], search.valid_batches(3, seed=6)[0][0])
    assert len(search.train_batches(12)) == 12  # more than the set has: another shuffle


def test_search_data_has_the_properties_of_its_data_set():
    search = SearchData(Digits())
    assert (search.name, search.image, search.num_classes) == ("digits", (1, 8, 8), 10)
    assert search.classes == search.data.classes


def test_invalid_options_are_refused_before_training():
    for fraction, batch_size, message in [
        (0.0, None, "`train_fraction` must be greater than 0"),
        (1.1, None, "`train_fraction` must be at most 1"),
        (0.001, None, "both sides"),
        (0.9, None, "A batch can have at most 13 samples, got 16"),
        (0.5, 65, "A batch can have at most 64 samples, got 65"),
    ]:
        with pytest.raises(InputError, match=message):
            SearchData(Fake(), train_fraction=fraction, batch_size=batch_size).setup("fit")
