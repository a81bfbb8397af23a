"""A user's own data: how they are read, what is known of them, and what is said of mistakes."""

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from nas_lightning.data import Digits, ExternalData, Fake, SearchData
from nas_lightning.data.batches import Reader, read_batch
from nas_lightning.data.labels import class_labels
from nas_lightning.errors import InputError
from tests.own_data import FORMS, IMAGES, LABELS, TRAIN, VALID, Endless, OnlyLightning, Samples, loader

X, Y = IMAGES[:8], LABELS[:8]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_floats_and_whole_numbers(form):
    batch = next(iter(FORMS[form]().train_dataloader()))
    for x, y in batch.values():
        assert x.dtype == torch.float32
        assert x.shape == (8, 2, 8, 8)
        assert y.dtype == torch.long
        assert y.shape == (8,)


@pytest.mark.parametrize(
    "images",
    [X, X.float() / 255, X.double() / 255, (X.float() / 255).numpy(), X.numpy()],
    ids=lambda x: str(x.dtype),
)
def test_images_of_any_type_are_the_same_numbers(images):
    x, _ = read_batch((images, Y))
    assert torch.allclose(x, X.float() / 255)


def test_whole_numbers_of_more_than_a_byte_are_as_they_are():
    x, _ = read_batch((np.array([[-1000, 3000]], dtype=np.int16), Y))
    assert x.tolist() == [[-1000.0, 3000.0]]


@pytest.mark.parametrize(
    "labels",
    [
        Y,
        Y.int(),
        Y.to(torch.uint8),
        Y.float(),
        Y[:, None].double(),
        torch.eye(3)[Y],
        torch.eye(5, dtype=torch.int)[Y],
    ],
    ids=lambda y: f"{y.dtype}-{y.dim()}",
)
def test_labels_of_any_type_are_the_same_classes(labels):
    assert torch.equal(class_labels(labels), Y)


def test_truth_values_are_two_classes():
    assert class_labels(torch.tensor([True, False])).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0.5, 1.0]), "class labels, which are whole numbers, got 'torch.float32 of shape"),
        (torch.tensor([[0.5, 0.5], [0.0, 1.0]]), "whole numbers"),
        (
            torch.tensor([[1, 1], [0, 1]]),
            r"a class label for each image, \(b,\), got 'torch.int64 of shape \(2, 2\)",
        ),
        (torch.zeros(2, 8, 8), "a class label for each image"),
    ],
)
def test_labels_that_are_none_are_one_line(labels, message):
    with pytest.raises(InputError, match=message):
        class_labels(labels)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (X, r"expected \(inputs, targets\) or a dict of them, got 'inputs alone'"),
        ((X,), "got 'tuple'"),
        ({"picture": X, "label": Y}, "expected one of image, .*, or inputs=NAME, got 'picture, label'"),
        ({"image": X, "grade": Y}, "expected one of label, .*, or targets=NAME, got 'image, grade'"),
        ((["a.png"], Y), "expected a tensor or an array, got 'list'"),
        ((X.to(torch.complex64), Y), "expected real inputs, got torch.complex64"),
    ],
)
def test_batches_that_cannot_be_read_are_one_line(batch, message):
    with pytest.raises(InputError, match=message):
        read_batch(batch)


def test_a_name_that_is_not_there_is_one_line():
    with pytest.raises(InputError, match="expected one of scan, or inputs=NAME, got 'image, label'"):
        Reader(inputs="scan")({"image": X, "label": Y})


@pytest.mark.parametrize(
    ("data", "own", "message"),
    [
        ((X[:, 0], Y), {}, r"images \(b, c, h, w\); unsqueeze\(1\) makes .*, got \(4, 8, 8\)"),
        ((X / torch.zeros(()), Y), {}, "expected finite images, got 'one with a number that is not'"),
        ((X.flatten(1), Y), {}, r"expected images \(b, c, h, w\), got \(4, 128\)"),
        (
            (X, Y + 1),
            {"num_classes": 3},
            "labels from 0 to 2 for 3 classes; labels count from 0, got 'labels from 1 to 3'",
        ),
        ((X, Y - 1), {}, "labels from 0 to 1 for 2 classes, got 'labels from -1 to 1'"),
        ((X, Y), {"image": (3, 8, 8)}, r"images of 3 channels \(b, c, h, w\), got \(4, 2, 8, 8\)"),
        ((X.permute(0, 2, 3, 1), Y), {"image": (2, 8, 8)}, r"channels last, got \(4, 8, 8, 2\)"),
        ((X, Y[:5]), {}, r"as many images as labels, got '\(8, 2, 8, 8\) and \(5,\)'"),
    ],
)
def test_what_does_not_fit_is_one_line_before_training(data, own, message):
    with pytest.raises(InputError, match=message):
        SearchData(data, batch_size=4, **own).setup("fit")


def test_a_label_that_the_first_batch_has_not_is_one_line():
    few, many = TensorDataset(X, Y.clamp(max=1)), TensorDataset(X, Y)
    with pytest.raises(
        InputError, match=r"for 2 classes, as the first batch has; num_classes=… says .*labels from 0 to 2"
    ):
        SearchData(
            loader(Samples(lambda x, y: (x, y.clamp(max=1)))), loader(Samples(lambda x, y: (x, y)))
        ).setup()
    with pytest.raises(InputError, match="for 2 classes, got"):
        SearchData(few, many, batch_size=4).setup()


def test_classes_are_those_that_somebody_says():
    assert ExternalData(TRAIN, num_classes=7).num_classes == 7
    assert ExternalData(TRAIN, classes=("a", "b", "c", "d")).num_classes == 4

    class Known(Samples):
        classes = ("cat", "dog", "owl")

    assert ExternalData(Known(lambda x, y: (x, y))).classes == ("cat", "dog", "owl")
    assert ExternalData(loader(Known(lambda x, y: (x, y)))).classes == ("cat", "dog", "owl")
    assert ExternalData(TRAIN).classes == ("0", "1", "2")

    class Told(OnlyLightning):
        num_classes = 9

    assert ExternalData(Told()).num_classes == 9


def test_labels_at_hand_are_counted_without_reading_an_image():
    class Unreadable(Dataset):
        targets = [0, 1, 2, 3] * 4

        def __len__(self):
            return 16

        def __getitem__(self, index):
            raise AssertionError("no image is needed")

    assert ExternalData(Unreadable(), image=(1, 8, 8)).num_classes == 4


def test_one_data_set_is_divided_with_every_class_on_both_sides():
    sides = SearchData(TRAIN, batch_size=4, train_fraction=0.75).sides
    assert [side.images for side in sides] == [24, 8]
    counts = [torch.bincount(torch.cat([y for _, y in side.whole_pass()]), minlength=3) for side in sides]
    assert torch.equal(counts[0] + counts[1], torch.bincount(LABELS[:32]))
    assert int(counts[1].min()) >= 2
    seen = [{tuple(x.flatten().tolist()) for b, _ in side.whole_pass() for x in b} for side in sides]
    assert not seen[0] & seen[1]


def test_balanced_draws_have_all_classes_equally_often():
    rare = TensorDataset(IMAGES.repeat(25, 1, 1, 1), (torch.arange(1200) % 20 == 0).long())
    labels = torch.cat([y for _, y in ExternalData(rare, batch_size=60, balanced=True).train_dataloader()])
    assert abs(float(labels.float().mean()) - 0.5) < 0.05  # of 1,200 draws; three deviations
    usual = torch.cat([y for _, y in ExternalData(rare, batch_size=60).train_dataloader()])
    assert float(usual.float().mean()) == pytest.approx(0.05)


def test_fixed_batches_repeat_and_do_not_depend_on_what_was_drawn():
    data = SearchData(loader(TRAIN), loader(VALID))
    first = data.train_batches(6, seed=1)
    list(data.train_dataloader())
    torch.rand(5)
    again = data.train_batches(6, seed=1)
    assert len(first) == 6  # more than a pass has
    assert all(
        torch.equal(a, b)
        for one, two in zip(first, again, strict=True)
        for a, b in zip(one, two, strict=True)
    )
    assert not torch.equal(first[0][0], data.train_batches(1, seed=2)[0][0])


def test_an_epoch_ends_with_the_longer_side_and_the_shorter_goes_on():
    def epoch(**own):
        return list(SearchData({"train": [(X, Y)] * 5, "valid": [(X, Y)] * 2}, **own).train_dataloader())

    assert len(epoch()) == 5
    assert len(epoch(epoch_batches=3)) == 3


def test_a_generator_is_no_loader():
    with pytest.raises(InputError, match=r"a loader to pass over more than once, .*, got 'generator'"):
        SearchData((batch for batch in [(X, Y)]), [(X, Y)]).setup()
    with pytest.raises(InputError, match=r"expected a loader to pass over more than once, .*, got 'int'"):
        SearchData(3, [(X, Y)]).setup()
    with pytest.raises(InputError, match="expected at least one batch, got 'none'"):
        SearchData([], [(X, Y)]).setup()


def test_a_module_without_validation_says_what_to_do():
    class Nothing(pl.LightningDataModule):
        def train_dataloader(self):
            return loader(TRAIN)

    with pytest.raises(InputError, match=r"a validation part, .* train_fraction=1 to use"):
        SearchData(Nothing()).setup()
    assert len(SearchData(Nothing(), train_fraction=1.0).train_dataloader()) == 4


def test_settings_that_somebody_else_has_are_refused(refusal):
    assert "data set alone" in refusal(lambda: SearchData(Digits(), num_classes=10))
    assert "data set alone" in refusal(lambda: SearchData(Fake(), Fake()))
    assert "data module alone" in refusal(lambda: SearchData(OnlyLightning(), loader(VALID)))
    assert "data sets with balanced; a loader has its own" in refusal(
        lambda: ExternalData(loader(TRAIN), balanced=True)
    )
    assert "augment_valid" in refusal(lambda: SearchData(TRAIN, augment_valid=True).setup())
    assert "no SearchData around" in refusal(lambda: SearchData(SearchData(TRAIN)))


def test_a_batch_size_that_is_set_is_obeyed_or_refused(refusal):
    """As `Tuner.scale_batch_size` does."""

    class Sized(OnlyLightning):
        def __init__(self):
            super().__init__()
            self.save_hyperparameters({"batch_size": 8})

        def train_dataloader(self):
            return loader(TRAIN, batch_size=self.hparams.batch_size)

    for data in (SearchData(Fake(), batch_size=8), SearchData(TRAIN, batch_size=8), SearchData(Sized())):
        assert len(next(iter(data.train_dataloader()))["train"][1]) == 8
        data.batch_size = 4
        assert len(next(iter(data.train_dataloader()))["train"][1]) == 4
    fixed = SearchData(loader(TRAIN), loader(VALID))

    assert "data whose batch_size can be set" in refusal(setattr, fixed, "batch_size", 4)


def test_pictures_of_folders_as_torchvision_has_them(class_folders, tmp_path):
    datasets = pytest.importorskip("torchvision.datasets")
    root = class_folders(tmp_path / "images")
    data = SearchData(datasets.ImageFolder(str(root)), batch_size=4)
    assert (data.image, data.classes) == ((3, 10, 12), ("cat", "dog", "owl"))
    x, y = next(iter(data.train_dataloader()))["train"]
    assert (x.shape, x.dtype, y.dtype) == ((4, 3, 10, 12), torch.float32, torch.long)
    Image.new("RGB", (5, 5)).save(root / "cat" / "small.png")
    with pytest.raises(
        InputError, match=r"inputs of one shape: resize them, got '\(3, 5, 5\) and \(3, 10, 12\)'"
    ):
        list(SearchData(datasets.ImageFolder(str(root)), batch_size=15).train_dataloader())


def test_hugging_face_data_sets():
    hub = pytest.importorskip("datasets")
    pictures = [Image.fromarray(x.permute(1, 2, 0).repeat(1, 1, 2)[:, :, :3].numpy()) for x in IMAGES]
    features = hub.Features({"image": hub.Image(), "label": hub.ClassLabel(names=["cat", "dog", "owl"])})
    rows = hub.Dataset.from_dict({"image": pictures, "label": LABELS.tolist()}, features=features)
    halves = rows.train_test_split(16, seed=0)
    data = SearchData(halves["train"], halves["test"], batch_size=8)
    assert (data.image, data.classes) == ((3, 8, 8), ("cat", "dog", "owl"))
    assert len(data.train_dataloader()) == 4
    x, _ = next(iter(data.train_dataloader()))["train"]
    assert float(x.max()) <= 1
    named = hub.DatasetDict(train=halves["train"], validation=halves["test"])
    assert len(SearchData(named, batch_size=8).train_dataloader()) == 4
    tensors = SearchData(halves["train"].with_format("torch"), batch_size=8)
    assert tensors.image == (3, 8, 8)
    streamed = halves["train"].to_iterable_dataset()
    assert SearchData(streamed, streamed, batch_size=8).image == (3, 8, 8)


def test_a_training_has_its_parts(tmp_path):
    data = ExternalData(OnlyLightning())
    data.setup("fit")
    assert [
        len(loader) for loader in (data.train_dataloader(), data.val_dataloader(), data.test_dataloader())
    ] == [4, 2, 2]
    assert (data.mean, data.std) == ((0.0, 0.0), (1.0, 1.0))
    seen = torch.cat([x for x, _ in data.val_dataloader()])
    assert torch.allclose(seen, IMAGES[32:].float() / 255)
    alone = ExternalData(TRAIN)
    assert (alone.val_dataloader(), alone.test_dataloader()) == ([], [])


def test_an_endless_loader_is_counted_in_batches():
    side = SearchData(Endless(), Endless(), epoch_batches=4, num_classes=3).valid
    assert (len(side), side.images) == (4, 32)
