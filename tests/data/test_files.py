"""Images on disk: the same whoever reads them and in whatever container; broken ones are named."""

import random
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nas_lightning.data import ImageFolder, ImageNet, loaders
from nas_lightning.data.files import Fit, ImageFile, decode, find_images, global_seeds
from nas_lightning.errors import InputError


def epoch(data, start=0, epoch=1):
    loader = data.train_dataloader()
    loader.set_epoch(epoch)
    loader.load_state_dict({"epoch": epoch, "batches": start, "length": len(loader)})
    return list(loader)


def all_equal(ones, others):
    assert len(ones) == len(others) > 0
    return all(
        torch.equal(a, b)
        for one, other in zip(ones, others, strict=True)
        for a, b in zip(one, other, strict=True)
    )


@pytest.fixture
def photos(tmp_path, class_folders):
    """Training and test images, larger than what is cut out of them."""
    class_folders(tmp_path / "train", height=40, width=50)
    class_folders(tmp_path / "val", per_class=3, height=40, width=50)
    return tmp_path


@pytest.fixture
def photographs(photos):
    def make(**options):
        options = {
            "root": str(photos),
            "image_size": 24,
            "batch_size": 7,
            "cutout": 4,
            "num_workers": 0,
            **options,
        }
        return ImageNet(**options)

    return make


def test_workers_do_not_change_what_is_read(photographs):
    assert all_equal(epoch(photographs()), epoch(photographs(num_workers=2)))


def test_timms_rand_augment_is_drawn_with_the_sample(photographs):
    strong = epoch(photographs(rand_augment=9))
    assert not all_equal(strong, epoch(photographs()))
    assert all_equal(strong, epoch(photographs(rand_augment=9, num_workers=2)))
    with pytest.raises(InputError, match="`rand_augment` must be at most 30, got 40"):
        photographs(rand_augment=40)


def test_an_epoch_goes_on_in_the_middle(photographs):
    assert all_equal(epoch(photographs())[2:], epoch(photographs(), start=2))


def test_epochs_and_seeds_change_the_crops(photographs):
    fixed = {"augment": True, "cutout": 0}
    first, other = (epoch(photographs(**fixed), epoch=number)[0][0] for number in (1, 2))
    assert not torch.equal(first, other)
    assert not torch.equal(first, epoch(photographs(**fixed, seed=1))[0][0])


def test_reading_leaves_the_global_generators_as_they_were(photographs):
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    epoch(photographs())
    assert before[0] == random.getstate()
    assert before[1] == np.random.get_state()[1].tolist()
    assert torch.equal(before[2], torch.get_rng_state())


def test_samples_of_one_batch_have_seeds_of_their_own(photographs, photos):
    """The same image at two places of a batch is cropped in two ways."""
    one = (photos / "train" / "cat" / "00.png").read_bytes()
    for path in photos.glob("train/*/*.png"):
        path.write_bytes(one)
    ((x, _), *_) = epoch(photographs(cutout=0))
    assert len(x.flatten(1).unique(dim=0)) == len(x)


def test_two_processes_read_the_halves_of_what_one_reads(photographs, monkeypatch):
    whole = epoch(photographs(batch_size=8))
    monkeypatch.setattr(loaders, "rank_and_world", lambda: (0, 2))
    left = epoch(photographs(batch_size=4))
    monkeypatch.setattr(loaders, "rank_and_world", lambda: (1, 2))
    right = epoch(photographs(batch_size=4))
    halves = [
        tuple(torch.cat(pair) for pair in zip(a, b, strict=True)) for a, b in zip(left, right, strict=True)
    ]
    assert all_equal(whole, halves)


def test_evaluation_reads_the_center(photographs):
    first, again = (list(photographs().test_dataloader()) for _ in range(2))
    assert all_equal(first, again)
    assert first[0][0].shape == (9, 3, 24, 24)


def test_memory_disk_and_tar_give_the_same_batches(tmp_path, class_folders, as_tar):
    root = class_folders(tmp_path / "pictures")
    tar = as_tar(root)
    options = {"batch_size": 5, "crop_padding": 2}
    memory = epoch(ImageFolder(root=str(root), in_memory=True, **options))
    assert all_equal(memory, epoch(ImageFolder(root=str(root), in_memory=False, **options)))
    assert all_equal(memory, epoch(ImageFolder(root=str(tar), in_memory=False, num_workers=2, **options)))
    assert all_equal(memory, epoch(ImageFolder(root=str(tar), in_memory="auto", **options)))


def test_parts_in_tar_files_are_those_in_folders(tmp_path, class_folders, as_tar):
    folders, tars = tmp_path / "folders", tmp_path / "tars"
    for part, count in (("train", 6), ("test", 2)):
        class_folders(folders / part, per_class=count)
        tars.mkdir(exist_ok=True)
        as_tar(folders / part).rename(tars / f"{part}.tar")
    one, other = ImageFolder(root=str(folders), batch_size=4), ImageFolder(root=str(tars), batch_size=4)
    assert all_equal(list(one.test_dataloader()), list(other.test_dataloader()))
    assert (len(one.train), len(one.test), one.classes) == (18, 6, ("cat", "dog", "owl"))


def test_a_tar_of_tars_is_read_like_its_folder(tmp_path, class_folders, as_tar):
    root = class_folders(tmp_path / "plain")
    outer = class_folders(tmp_path / "outer")
    for folder in sorted(outer.iterdir()):
        as_tar(folder, name="")
        shutil.rmtree(folder)
    found = find_images(as_tar(outer))
    expected = find_images(root)
    assert found.classes == expected.classes

    def contents(listing):
        files = zip(listing.files, listing.labels.tolist(), strict=True)
        return sorted((label, np.asarray(decode(file)).tobytes()) for file, label in files)

    assert contents(found) == contents(expected)
    assert {file.member for file in found.files} >= {"./cat.tar/00.png", "./owl.tar/09.png"}


def test_the_held_out_part_is_the_same_whatever_the_seed(tmp_path, class_folders):
    root = str(class_folders(tmp_path / "pictures"))
    parts = [ImageFolder(root=root, batch_size=2, seed=seed) for seed in (0, 1)]
    assert torch.equal(parts[0].test.images, parts[1].test.images)
    assert (len(parts[0].train), len(parts[0].test)) == (24, 6)
    assert parts[0].test.labels.bincount().tolist() == [2, 2, 2]


def test_images_of_different_sizes_are_fitted(tmp_path, class_folders):
    root = class_folders(tmp_path / "pictures", height=20, width=30)
    Image.open(root / "cat" / "01.png").resize((90, 31)).save(root / "cat" / "01.png")
    assert ImageFolder(root=str(root), batch_size=2).train.images.shape[1:] == (3, 20, 30)
    assert ImageFolder(root=str(root), batch_size=2, image_size=8).train.images.shape[1:] == (3, 8, 8)


def test_fit_keeps_the_center_and_the_aspect():
    wide = np.zeros((4, 12, 3), dtype=np.uint8)
    wide[:, 4:8] = 200
    assert Fit(4, 4)(Image.fromarray(wide)).unique().tolist() == [200]
    assert Fit(4, 12)(Image.fromarray(wide)).permute(1, 2, 0).numpy().tolist() == wide.tolist()


def test_global_seeds_covers_the_three_generators_that_transforms_use():
    def draw():
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    with global_seeds(5):
        first = draw()
    between = draw()
    with global_seeds(5):
        assert draw() == first
    assert draw() != between


# What is broken


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("in_memory", [True, False])
def test_a_broken_image_is_named_in_one_line(tmp_path, class_folders, workers, in_memory):
    root = class_folders(tmp_path / "pictures")
    for name in ("cat/03.png", "dog/05.png"):
        (root / name).write_bytes((root / name).read_bytes()[:60])
    data = ImageFolder(root=str(root), batch_size=6, in_memory=in_memory, num_workers=workers)
    with pytest.raises(InputError, match=r"an image that can be read.*(cat/03|dog/05)\.png\)$") as caught:
        list(data.train_dataloader()), data.setup()
    assert "\n" not in str(caught.value)


def test_a_broken_image_in_a_tar_is_named(tmp_path, class_folders, as_tar):
    root = class_folders(tmp_path / "pictures", per_class=2)
    (root / "owl" / "01.png").write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match=r"pictures\.tar: .*owl/01\.png\)$"):
        ImageFolder(root=str(as_tar(root)), test_fraction=0.5, batch_size=1).setup()


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_damaged_bytes_never_raise_anything_but_our_error(tmp_path, picture, form):
    whole = picture(0, form=form)
    dice = random.Random(form)
    refused = []
    for case in range(50):
        damaged = bytearray(whole[: dice.randrange(len(whole))] if case % 2 else whole)
        for _ in range(case % 7):
            if damaged:
                damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        path = tmp_path / f"{case}.img"
        path.write_bytes(damaged)
        try:
            decode(ImageFile(str(path)))
        except InputError as error:
            refused.append((path.name, str(error)))
    assert len(refused) > 10
    assert all(name in message and "\n" not in message for name, message in refused)


def make_nothing(root):
    return root / "nowhere"


def make_empty(root):
    return root


def make_classes_without_images(root):
    (root / "cat").mkdir()
    return root


def make_text(root):
    (root / "cat").mkdir()
    (root / "cat" / "notes.txt").write_text("no image")
    return root


def make_broken_tar(root):
    (root / "images.tar").write_bytes(b"not a tar file" * 100)
    return root / "images.tar"


def make_empty_tar(root):
    with tarfile.open(root / "images.tar", "w"):
        return root / "images.tar"


@pytest.mark.parametrize(
    "make",
    [make_nothing, make_empty, make_classes_without_images, make_text, make_broken_tar, make_empty_tar],
)
def test_a_root_without_images_is_refused_in_one_line(make, tmp_path):
    root = make(tmp_path)
    with pytest.raises(InputError, match=r"expected .*images") as caught:
        ImageFolder(root=str(root)).prepare()
    assert str(root) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_compressed_tar_is_refused(tmp_path, class_folders, as_tar):
    root = class_folders(tmp_path / "pictures", per_class=1)
    with pytest.raises(InputError, match=r"uncompressed \.tar"):
        ImageFolder(root=str(as_tar(root, "w:gz", ".tar.gz"))).prepare()


def test_a_truncated_tar_is_refused(tmp_path, class_folders, as_tar):
    tar = as_tar(class_folders(tmp_path / "pictures"))
    content = tar.read_bytes()
    refused = []
    for length in range(100, len(content), len(content) // 40):
        tar.write_bytes(content[:length])
        try:
            ImageFolder(root=str(tar), batch_size=1).setup()
        except InputError as error:
            refused.append(str(error))
    assert len(refused) > 10
    assert not any("\n" in message for message in refused)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 2}, "expected num_classes=3, got 2"),
        ({"batch_size": 25}, "batch_size of at most 24, got 25"),
        ({"test_fraction": 0.0}, "`test_fraction` must be greater than 0"),
        ({"test_fraction": 1.0}, "`test_fraction` must be less than 1"),
        ({"test_fraction": 0.001}, "both sides"),
        ({"image_size": 0}, "`image_size` must be at least 1"),
        ({"num_workers": -1}, "`num_workers` must be at least 0"),
        ({"in_memory": "never"}, "must be a valid boolean or 'auto', got 'never'"),
        ({"val_fraction": 0.001}, "both sides"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused(tmp_path, class_folders, options, message):
    root = class_folders(tmp_path / "pictures")
    with pytest.raises(InputError, match=message):
        ImageFolder(root=str(root), **{"batch_size": 2, **options}).prepare()


def test_one_class_is_refused(tmp_path, class_folders):
    with pytest.raises(InputError, match="at least 2 classes, got 1"):
        ImageFolder(root=str(class_folders(tmp_path / "pictures", classes=["cat"]))).prepare()


def test_a_test_class_that_training_lacks_is_refused(tmp_path, class_folders):
    class_folders(tmp_path / "train")
    class_folders(tmp_path / "test", classes=["cat", "dgo"])
    with pytest.raises(InputError, match=r"did you mean 'dog'.*got 'dgo'"):
        ImageFolder(root=str(tmp_path)).prepare()


def test_a_root_must_be_given():
    with pytest.raises(InputError, match=r"dataset\.root=FOLDER"):
        ImageFolder().prepare()


def test_labels_follow_the_sorted_class_names(tmp_path, class_folders):
    found = find_images(class_folders(tmp_path / "pictures", per_class=2))
    assert all(Path(file.path).is_file() for file in found.files)
    assert found.labels.tolist() == [0, 0, 1, 1, 2, 2]
