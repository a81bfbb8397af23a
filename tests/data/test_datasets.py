"""Data sets read from their published files."""

import gzip
import os
import pickle
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits

from nas_lightning.data import (
    Cifar10,
    Cifar100,
    Digits,
    Fake,
    FashionMnist,
    ImageNet,
    ImageNet16,
    TinyImageNet,
)
from nas_lightning.data.order import BatchRows
from nas_lightning.errors import InputError

DEBIAN = Path("/usr/share/datasets/fashion-mnist")


def everything(samples):
    """Images and labels of all samples, in order."""
    return next(samples.read([BatchRows(torch.arange(len(samples)))], random=False))


# Sets


def test_digits_equal_those_of_scikit_learn():
    data = Digits(augment=False)
    images = torch.cat([everything(part)[0] for part in (data.train, data.test)])
    levels = (images.squeeze(1).double() * 16 / 255).round().flatten(1)
    expected = torch.from_numpy(load_digits().data)
    assert sorted(map(tuple, levels.tolist())) == sorted(map(tuple, expected.tolist()))
    counts = torch.from_numpy(load_digits().target).bincount()
    assert ((data.test.labels.bincount() - 0.2 * counts).abs() <= 1).all()


def test_split_of_digits_does_not_depend_on_the_seed():
    one, other = Digits(seed=0), Digits(seed=5)
    assert torch.equal(one.test.rows, other.test.rows)
    assert not set(one.test.rows.tolist()) & set(one.train.rows.tolist())
    assert not one.augment.flip


def test_fake_images_have_a_signal_in_their_class_means():
    for shape in [(1, 5, 7), (3, 16, 16)]:
        data = Fake(shape=shape, num_classes=3, train_size=300, test_size=90)
        x, y = everything(data.train)
        means = torch.stack([x[y == label].double().mean(0) for label in range(3)])
        test, labels = everything(data.test)
        distances = torch.cdist(test.double().flatten(1), means.flatten(1))
        assert (distances.argmin(1) == labels).float().mean() > 0.9
        assert data.image == shape
        assert data.num_classes == 3


def test_parts_are_held_out_disjointly_and_validation_has_no_augmentation():
    data = Digits(val_fraction=0.25)
    x, y = (torch.cat(parts) for parts in zip(*data.val_dataloader(), strict=True))
    assert len(y) == round(0.25 * 1438)
    assert len(data.train) + len(y) == 1438
    held_out = {tuple(image.flatten().tolist()) for image in x}
    plain = Digits(val_fraction=0.25, augment=False).train_batches(1, batch_size=1)
    assert tuple(plain[0][0].flatten().tolist()) not in held_out
    again = torch.cat([x for x, _ in Digits(val_fraction=0.25).val_dataloader()])
    assert torch.equal(x, again)
    assert not torch.equal(x, torch.cat([x for x, _ in Digits(val_fraction=0.25, seed=1).val_dataloader()]))


def test_without_a_fraction_there_is_no_validation():
    assert Digits().val_dataloader() == []


def test_a_subset_is_the_first_of_a_seeded_shuffle():
    small, large = Digits(subset=100), Digits(subset=200)
    assert torch.equal(small.train.rows, large.train.rows[:100])
    assert len(small.test) == 100
    assert not torch.equal(small.train.rows, Digits(subset=100, seed=1).train.rows)


def test_options_that_do_not_fit_are_refused():
    for options, message in [
        ({"batch_size": 0}, "`batch_size` must be at least 1, got 0"),
        ({"eval_batch_size": 0}, "`eval_batch_size` must be at least 1"),
        ({"crop_padding": -1}, "`crop_padding` must be at least 0"),
        ({"cutout": -2}, "`cutout` must be at least 0"),
        ({"val_fraction": 1.0}, "`val_fraction` must be less than 1"),
        ({"val_fraction": -0.1}, "`val_fraction` must be at least 0"),
        ({"val_fraction": 1e-5}, "both sides"),
        ({"subset": 0}, "`subset` must be at least 1"),
        ({"batch_size": 1439}, "`batch_size` must be at most 1438, got 1439"),
        ({"subset": 10}, "`batch_size` must be at most 10, got 32"),
    ]:
        with pytest.raises(InputError, match=message):
            Digits(**options).prepare()


def test_labels_beyond_the_classes_are_refused(imagenet16_batches):
    content = pickle.loads((imagenet16_batches / "val_data").read_bytes())
    content["labels"][0] = 0
    (imagenet16_batches / "val_data").write_bytes(pickle.dumps(content))
    with pytest.raises(
        InputError, match="The test labels must be from 0 to 119 for 120 classes, got 'labels from -1 to 99'"
    ):
        ImageNet16(root=str(imagenet16_batches)).prepare()


def test_cifar10_from_batches(cifar10_batches):
    for root in (cifar10_batches, cifar10_batches / "cifar-10-batches-py"):
        data = Cifar10(root=str(root), batch_size=10)
        assert (len(data.train), len(data.test), data.image, data.num_classes) == (100, 20, (3, 32, 32), 10)
        first = pickle.loads((cifar10_batches / "cifar-10-batches-py" / "data_batch_2").read_bytes())["data"][
            0
        ]
        assert everything(data.train)[0][20].flatten().tolist() == first.tolist()
        assert data.classes[3] == "name3"


def test_cifar10_pickles_of_older_versions_of_numpy(cifar10_batches):
    for path in (cifar10_batches / "cifar-10-batches-py").iterdir():
        path.write_bytes(path.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert len(Cifar10(root=str(cifar10_batches)).train) == 100


def test_cifar_pickles_with_bytes_keys(cifar10_batches):
    """As saved again after `pickle.load(file, encoding="bytes")`; other keys end in one line."""
    folder = cifar10_batches / "cifar-10-batches-py"
    expected = Cifar10(root=str(cifar10_batches))
    for path in folder.iterdir():
        content = pickle.loads(path.read_bytes())
        names = content.get("label_names")
        content = {key.encode(): value for key, value in content.items()}
        if names:
            content[b"label_names"] = [name.encode() for name in names]
        path.write_bytes(pickle.dumps(content))
    data = Cifar10(root=str(cifar10_batches))
    assert torch.equal(data.train.images, expected.train.images)
    assert torch.equal(data.train.labels, expected.train.labels)
    assert data.classes == expected.classes
    meta, batch = folder / "batches.meta", folder / "data_batch_1"
    for path, content in (
        (meta, {b"names": []}),
        (batch, {1: 2, b"data": 3}),
        (batch, {"data": [0], "labels": "a"}),
    ):
        before = path.read_bytes()
        path.write_bytes(pickle.dumps(content))
        with pytest.raises(InputError, match=path.name):
            Cifar10(root=str(cifar10_batches)).prepare()
        path.write_bytes(before)


def test_cifar100_from_batches(cifar100_batches):
    data = Cifar100(root=str(cifar100_batches))
    assert (len(data.train), len(data.test), data.num_classes) == (200, 200, 100)


class Harmful:
    """A pickle that would run a command."""

    def __reduce__(self):
        return os.system, ("true",)


def test_a_broken_batch_is_named(cifar10_batches):
    for content, message in [
        (b"broken", "a pickled dictionary of arrays"),
        (pickle.dumps(Harmful()), "it imports posix.system"),
        (pickle.dumps({"data": 1}), "the entries data and labels, got 'data'"),
        (pickle.dumps({"data": [1.0], "labels": [0]}), "There must be bytes for"),
    ]:
        path = cifar10_batches / "cifar-10-batches-py" / "data_batch_4"
        path.write_bytes(content)
        with pytest.raises(InputError, match=message) as caught:
            Cifar10(root=str(cifar10_batches)).prepare()
        assert "data_batch_4" in str(caught.value)


def test_a_missing_batch_is_named(cifar10_batches):
    (cifar10_batches / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(InputError, match="data_batch_4"):
        Cifar10(root=str(cifar10_batches)).prepare()


def test_cifar10_with_another_number_of_classes_is_refused(tmp_path, class_folders):
    class_folders(tmp_path / "train")
    class_folders(tmp_path / "test")
    with pytest.raises(InputError, match="`train` and `test` must have 10 classes, got '3 classes'"):
        Cifar10(root=str(tmp_path)).prepare()


def test_failed_download_is_one_line(tmp_path, monkeypatch):
    from torchvision.datasets import CIFAR10

    def fail(self):
        raise OSError("no network")

    monkeypatch.setattr(CIFAR10, "download", fail)
    with pytest.raises(InputError, match="Cannot download cifar10: no network"):
        Cifar10(root=str(tmp_path), download=True).prepare_data()


def test_cifar10_from_real_images(shared_data):
    data = Cifar10(root=str(shared_data / "cifar10"), subset=200)
    x, y = data.train_batches(1, batch_size=200)[0]
    assert data.classes[:3] == ("airplane", "automobile", "bird")
    assert len(data.contents.train) == 50_000
    assert len(data.contents.test) == 10_000
    assert x.mean().abs() < 0.1
    assert abs(x.std() - 1) < 0.1
    assert len(y.unique()) == 10


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("place", ["", "FashionMNIST/raw"])
def test_fashion_mnist_from_its_files(tmp_path, fashion_files, place, compressed):
    fashion_files(tmp_path / place, compressed)
    data = FashionMnist(root=str(tmp_path), batch_size=10)
    assert (len(data.train), len(data.test), data.image, data.num_classes) == (70, 30, (1, 28, 28), 10)
    assert data.train.labels[:11].tolist() == [*range(10), 0]


@pytest.mark.parametrize(
    "damage", [lambda b: b[:50], lambda b: b"\1" + b[1:], lambda b: b + b"\0", lambda b: b[:3]]
)
def test_a_damaged_idx_file_is_named(tmp_path, fashion_files, damage):
    fashion_files(tmp_path, compressed=False)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"IDX file.*train-images-idx3-ubyte\)$"):
        FashionMnist(root=str(tmp_path)).prepare()
    packed = path.with_suffix(".gz")
    path.unlink()
    packed.write_bytes(gzip.compress(b"some bytes" * 10)[:-5])
    with pytest.raises(InputError, match=r"IDX file.*train-images-idx3-ubyte\.gz\)$"):
        FashionMnist(root=str(tmp_path)).prepare()


def test_fashion_mnist_from_debian():
    if not DEBIAN.is_dir():
        pytest.skip("the package dataset-fashion-mnist is not installed")
    data = FashionMnist(root=str(DEBIAN))
    assert (len(data.train), len(data.test)) == (60_000, 10_000)
    x = everything(data.train)[0].double() / 255
    assert float(x.mean()) == pytest.approx(data.mean[0], abs=1e-4)
    assert float(x.std()) == pytest.approx(data.std[0], abs=1e-4)


def test_imagenet16_keeps_the_first_120_classes(imagenet16_batches):
    for folders in [False, True]:
        if folders:  # as the published archives unpack
            for name in ("train", "val"):
                (imagenet16_batches / f"Imagenet16_{name}").mkdir()
                for path in imagenet16_batches.glob(f"{name}_data*"):
                    path.rename(path.parent / f"Imagenet16_{name}" / path.name)
        data = ImageNet16(root=str(imagenet16_batches))
        assert (len(data.train), len(data.test), data.image, data.num_classes) == (600, 100, (3, 16, 16), 120)
        assert data.train.labels.bincount().tolist() == [5] * 120


def test_tiny_imagenet_as_published(tiny_imagenet):
    data = TinyImageNet(root=str(tiny_imagenet), batch_size=4)
    assert (len(data.train), len(data.test), data.image, data.classes) == (
        15,
        6,
        (3, 64, 64),
        ("n01", "n02", "n03"),
    )
    assert data.test.labels.tolist() == [2, 2, 1, 1, 0, 0]  # the annotations are listed backwards
    data.setup()


def test_imagenet_needs_both_parts(tmp_path, class_folders):
    class_folders(tmp_path / "train")
    with pytest.raises(InputError, match="`val` or `test` beside `train`"):
        ImageNet(root=str(tmp_path), batch_size=2).prepare()
