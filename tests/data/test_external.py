"""External data: all supported forms are read, and invalid data end in one line."""

import re
from functools import partial

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from PIL import Image
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)

from nas_lightning.data import Digits, ExternalData, Fake, SearchData
from nas_lightning.data.batches import Reader, as_tensor, read_batch
from nas_lightning.data.labels import class_labels
from nas_lightning.errors import InputError
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Darts, Evolution, MetricSearch, Nasi
from nas_lightning.tasks import MultiLabel, Segmentation
from tests.own_data import FORMS, IMAGES, LABELS, TRAIN, VALID, Endless, OnlyLightning, Samples, loader

X, Y = IMAGES[:8], LABELS[:8]


def test_every_form_gives_floats_and_whole_numbers():
    for form in FORMS:
        batch = next(iter(FORMS[form]().train_dataloader()))
        for x, y in batch.values():
            assert x.dtype == torch.float32
            assert x.shape == (8, 2, 8, 8)
            assert y.dtype == torch.long
            assert y.shape == (8,)


def test_images_of_any_type_are_the_same_numbers():
    for images in [X, X.float() / 255, X.double() / 255, (X.float() / 255).numpy(), X.numpy()]:
        x, _ = read_batch((images, Y))
        assert torch.allclose(x, X.float() / 255)


def test_whole_numbers_of_more_than_a_byte_are_as_they_are():
    x, _ = read_batch((np.array([[-1000, 3000]], dtype=np.int16), Y))
    assert x.tolist() == [[-1000.0, 3000.0]]


def test_labels_of_any_type_are_the_same_classes():
    for labels in [
        Y,
        Y.int(),
        Y.to(torch.uint8),
        Y.float(),
        Y[:, None].double(),
        torch.eye(3)[Y],
        torch.eye(5, dtype=torch.int)[Y],
    ]:
        assert torch.equal(class_labels(labels), Y)


def test_truth_values_are_two_classes():
    assert class_labels(torch.tensor([True, False])).tolist() == [1, 0]


def test_invalid_labels_are_refused_in_one_line():
    for labels, message in [
        (torch.tensor([0.5, 1.0]), "Class labels must be integers, got 'torch.float32 of shape"),
        (torch.tensor([[0.5, 0.5], [0.0, 1.0]]), "integers"),
        (
            torch.tensor([[1, 1], [0, 1]]),
            r"must have a class label, \(b,\), got 'torch.int64 of shape \(2, 2\)",
        ),
        (torch.zeros(2, 8, 8), "Each image must have a class label"),
    ]:
        with pytest.raises(InputError, match=message):
            class_labels(labels)


def test_invalid_batches_are_refused_in_one_line():
    for batch, message in [
        (X, r"Batches must be \(inputs, targets\) or a dict of them, got 'inputs alone'"),
        ((X,), "got 'tuple'"),
        ({"picture": X, "label": Y}, "Batches must have one of"),
        ({"image": X, "grade": Y}, "Batches must have one of"),
        ((["a.png"], Y), "The value must be a tensor or an array, got 'list'"),
        ((X.to(torch.complex64), Y), "Inputs must be real, got torch.complex64"),
    ]:
        with pytest.raises(InputError, match=message):
            read_batch(batch)


def test_missing_name_is_refused():
    with pytest.raises(
        InputError,
        match="Batches must have one of scan; for another name pass inputs=NAME, got 'image, label'",
    ):
        Reader(inputs="scan")({"image": X, "label": Y})


def test_invalid_data_are_refused_before_training():
    for data, own, message in [
        ((X[:, 0], Y), {}, r"shape \(b, c, h, w\); unsqueeze\(1\) makes .*, got \(4, 8, 8\)"),
        ((X / torch.zeros(()), Y), {}, "Images must be finite, got 'NaN or infinity'"),
        ((X.flatten(1), Y), {}, r"Images must have shape \(b, c, h, w\), got \(4, 128\)"),
        (
            (X, Y + 1),
            {"num_classes": 3},
            "Labels must be from 0 to 2 for 3 classes; labels count from 0, got 'labels from 1 to 3'",
        ),
        ((X, Y - 1), {}, "must be from 0 to 1 for 2 classes, got 'labels from -1 to 1'"),
        ((X, Y), {"image": (3, 8, 8)}, r"Images must have 3 channels \(b, c, h, w\), got \(4, 2, 8, 8\)"),
        ((X.permute(0, 2, 3, 1), Y), {"image": (2, 8, 8)}, r"channels-last, got \(4, 8, 8, 2\)"),
        ((X, Y[:5]), {}, r"as many images as labels, got '\(8, 2, 8, 8\) and \(5,\)'"),
    ]:
        with pytest.raises(InputError, match=message):
            SearchData(data, batch_size=4, **own).setup("fit")


def test_label_missing_in_the_first_batch_is_refused():
    few, many = TensorDataset(X, Y.clamp(max=1)), TensorDataset(X, Y)
    with pytest.raises(
        InputError, match=r"for 2 classes, as in the first batch; pass num_classes=….*labels from 0 to 2"
    ):
        SearchData(
            loader(Samples(lambda x, y: (x, y.clamp(max=1)))), loader(Samples(lambda x, y: (x, y)))
        ).setup()
    with pytest.raises(InputError, match="for 2 classes, got"):
        SearchData(few, many, batch_size=4).setup()


def test_declared_classes():
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


def test_fixed_batches_repeat():
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


def test_epoch_of_pairs_has_the_length_of_the_longer_side():
    def epoch(**own):
        return list(SearchData({"train": [(X, Y)] * 5, "valid": [(X, Y)] * 2}, **own).train_dataloader())

    assert len(epoch()) == 5
    assert len(epoch(epoch_batches=3)) == 3


def test_a_generator_is_no_loader():
    with pytest.raises(InputError, match=r"an iterable that can be repeated, .*, got 'generator'"):
        SearchData((batch for batch in [(X, Y)]), [(X, Y)]).setup()
    with pytest.raises(InputError, match=r"The loader must be an iterable that can be repeated.*, got 'int'"):
        SearchData(3, [(X, Y)]).setup()
    with pytest.raises(InputError, match="There must be at least one batch"):
        SearchData([], [(X, Y)]).setup()


class TrainingOnly(pl.LightningDataModule):
    def train_dataloader(self):
        return loader(TRAIN)


def test_module_without_validation_is_explained():
    data = SearchData(TrainingOnly())
    data.setup()
    missing = r"needs a validation part.* train_fraction=1 to use"
    for read in (data.check_valid, lambda: data.valid, lambda: data.valid_batches(1)):
        with pytest.raises(InputError, match=missing):
            read()
    assert len(SearchData(TrainingOnly(), train_fraction=1.0).train_dataloader()) == 4

    space = NasBench201()
    sizes = {"in_channels": data.image[0], "num_classes": data.num_classes, "channels": 2, "cells": 1}
    quiet = {f"enable_{what}": False for what in ("progress_bar", "model_summary", "checkpointing")}
    trainer = pl.Trainer(max_epochs=1, logger=False, **quiet)
    with pytest.raises(InputError, match=missing):
        trainer.fit(Darts(space, space.supernet(**sizes)), data)
    with pytest.raises(InputError, match=missing):  # before anything is scored
        Evolution(space, partial(space.network, **sizes), data, evaluation="training")


def test_searches_that_do_not_validate_take_a_training_loader_alone():
    space, data = NasBench201(), SearchData(TrainingOnly())
    sizes = {"in_channels": data.image[0], "num_classes": data.num_classes, "channels": 2, "cells": 1}
    network = partial(space.network, **sizes)
    quiet = {f"enable_{what}": False for what in ("progress_bar", "model_summary", "checkpointing")}
    for search in (
        Nasi(space, space.supernet(**sizes), data),
        MetricSearch(space, network, data, images=4, pool_size=3, agreement=0),
    ):
        trainer = pl.Trainer(max_epochs=1, logger=False, **quiet)
        trainer.fit(search, data)
        assert search.derive()
    assert [*next(iter(data.train_dataloader()))] == ["train"]


def test_conflicting_settings_are_refused(refusal):
    assert "data takes no further arguments" in refusal(lambda: SearchData(Digits(), num_classes=10))
    assert "data takes no further arguments" in refusal(lambda: SearchData(Fake(), Fake()))
    assert "data module takes no further parts" in refusal(lambda: SearchData(OnlyLightning(), loader(VALID)))
    assert "`balanced` needs data sets; a loader defines it itself" in refusal(
        lambda: ExternalData(loader(TRAIN), balanced=True)
    )
    assert "augment_valid" in refusal(lambda: SearchData(TRAIN, augment_valid=True).setup())
    assert "is a SearchData already" in refusal(lambda: SearchData(SearchData(TRAIN)))


def test_setting_the_batch_size(refusal):
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

    assert "`batch_size` can be set for data sets" in refusal(setattr, fixed, "batch_size", 4)


def test_pictures_of_folders_as_torchvision_has_them(class_folders, tmp_path):
    datasets = pytest.importorskip("torchvision.datasets")
    root = class_folders(tmp_path / "images")
    data = SearchData(datasets.ImageFolder(str(root)), batch_size=4)
    assert (data.image, data.classes) == ((3, 10, 12), ("cat", "dog", "owl"))
    x, y = next(iter(data.train_dataloader()))["train"]
    assert (x.shape, x.dtype, y.dtype) == ((4, 3, 10, 12), torch.float32, torch.long)
    Image.new("RGB", (5, 5)).save(root / "cat" / "small.png")
    with pytest.raises(
        InputError,
        match=r"All inputs must have the same shape: resize them, got '\(3, 5, 5\) and \(3, 10, 12\)'",
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


def test_parts_of_a_training(tmp_path):
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


PICTURES, NUMBERS = torch.rand(24, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 3
NAMES = ("cat", "dog", "owl")


def picture(index: int, mode: str = "RGB") -> Image.Image:
    pixels = (255 * PICTURES[index]).byte().permute(1, 2, 0).numpy()
    return Image.fromarray(pixels).convert(mode)


class Rows(Dataset):
    """SamplesOneByOne of any form."""

    def __init__(self, form) -> None:
        self.form = form

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int):
        return self.form(index)


class Stream(IterableDataset):
    """A share of the samples for each worker."""

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return ((PICTURES[index], int(NUMBERS[index])) for index in range(first, 24, step))


class Table:
    """As pandas and polars have them: names of columns, and paths to images."""

    columns = ("path", "label")

    def __len__(self) -> int:
        return 24

    def __getitem__(self, column: str) -> None:
        raise KeyError(column)


class AsksTrainer(pl.LightningDataModule):
    """What it loads depends on the run."""

    def setup(self, stage: str) -> None:
        self.size = 8 // self.trainer.world_size

    def train_dataloader(self) -> DataLoader:
        return DataLoader(TensorDataset(PICTURES, NUMBERS), self.size, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(TensorDataset(PICTURES, NUMBERS), 8 // self.trainer.num_devices)


def loader_of(samples, **options) -> DataLoader:
    return DataLoader(samples, batch_size=8, **options)


def pair_of(make) -> SearchData:
    return SearchData(make(), make())


class Module(pl.LightningDataModule):
    """Loaders in whatever form."""

    def __init__(self, train, valid) -> None:
        super().__init__()
        self.loaders = train, valid

    def train_dataloader(self):
        return self.loaders[0]

    def val_dataloader(self):
        return self.loaders[1]


ALL = TensorDataset(PICTURES, NUMBERS)


def columns(samples):
    return tuple(zip(*samples, strict=True))


TAKEN = {
    "dicts of pictures": lambda: SearchData(
        Rows(lambda i: {"image": picture(i), "label": int(NUMBERS[i])}), batch_size=8
    ),
    "a list of samples": lambda: SearchData(
        [(PICTURES[i], int(NUMBERS[i])) for i in range(24)], batch_size=8
    ),
    "lists of dicts": lambda: pair_of(
        lambda: loader_of(Rows(lambda i: {"image": PICTURES[i], "label": int(NUMBERS[i])}), collate_fn=list)
    ),
    "lists of pairs": lambda: pair_of(
        lambda: loader_of(Rows(lambda i: (picture(i), int(NUMBERS[i]))), collate_fn=list)
    ),
    "columns of pictures": lambda: pair_of(
        lambda: loader_of(Rows(lambda i: (picture(i), int(NUMBERS[i]))), collate_fn=columns)
    ),
    "names of classes": lambda: SearchData(
        Rows(lambda i: (PICTURES[i], NAMES[NUMBERS[i]])), batch_size=8, classes=NAMES
    ),
    "names in a loader": lambda: SearchData(
        loader_of(Rows(lambda i: (PICTURES[i], NAMES[NUMBERS[i]]))),
        loader_of(Rows(lambda i: (PICTURES[i], NAMES[NUMBERS[i]]))),
        classes=NAMES,
    ),
    "a stream with workers": lambda: pair_of(lambda: loader_of(Stream(), num_workers=2)),
    "two parts in one": lambda: SearchData(
        ConcatDataset([TensorDataset(PICTURES, NUMBERS)] * 2), batch_size=8
    ),
    "arrays by name": lambda: SearchData({"image": PICTURES, "label": NUMBERS.numpy()}, batch_size=8),
    "a module of lists of batches": lambda: SearchData(
        Module([(PICTURES[:8], NUMBERS[:8])] * 2, [(PICTURES[8:16], NUMBERS[8:16])])
    ),
    "a module of lists of a loader": lambda: SearchData(Module([loader_of(ALL)], [loader_of(ALL)])),
    "halves": lambda: SearchData(*random_split(TensorDataset(PICTURES, NUMBERS), [12, 12]), batch_size=4),
    "one image a batch": lambda: SearchData(TensorDataset(PICTURES, NUMBERS), batch_size=1),
    "fewer than a batch": lambda: SearchData(TensorDataset(PICTURES[:6], NUMBERS[:6]), batch_size=64),
    "two bands": lambda: SearchData((PICTURES[:, :2], NUMBERS), batch_size=8),
    "thirteen bands of a satellite": lambda: SearchData(
        ((1e4 * torch.rand(24, 13, 8, 8)).short(), NUMBERS), batch_size=8
    ),
    "rectangles": lambda: SearchData((torch.rand(24, 3, 8, 20), NUMBERS), batch_size=8),
    "a palette": lambda: SearchData(Rows(lambda i: (picture(i, "P"), int(NUMBERS[i]))), batch_size=8),
    "three pixels wide, as is said": lambda: SearchData(
        (torch.rand(24, 8, 8, 3), NUMBERS), batch_size=8, image=(8, 8, 3)
    ),
    "a module that asks the trainer": lambda: SearchData(AsksTrainer(), image=(3, 8, 8), num_classes=3),
    "several labels": lambda: SearchData(
        (PICTURES, (PICTURES[:, 0, 0, :4] > 0.5).int()), batch_size=8, task=MultiLabel()
    ),
    "masks in a palette": lambda: SearchData(
        Rows(lambda i: (picture(i), Image.fromarray((PICTURES[i, 0] > 0.5).byte().numpy()).convert("P"))),
        batch_size=8,
        task=Segmentation(),
    ),
}
REFUSED = {
    "two loaders of a module": (
        lambda: SearchData(Module([loader_of(ALL), loader_of(ALL)], loader_of(ALL))),
        "a single loader, or a dict of both sides of a search, got '2 of them' .in Module.train_dataloader",
    ),
    "two loaders in a list": (
        lambda: SearchData([loader_of(ALL), loader_of(ALL)]),
        r"loaders one by one, SearchData\(train, valid\), or a dict of both sides, got 'a list of 2'",
    ),
    "no samples": (
        lambda: SearchData(Subset(ALL, []), batch_size=8),
        "at least one sample .in the train part",
    ),
    "names alone": (
        lambda: SearchData(Rows(lambda i: (PICTURES[i], NAMES[NUMBERS[i]])), batch_size=8),
        "Labels must be numbers; for names pass classes=.…., got '(cat|dog|owl)'",
    ),
    "an unknown name": (
        lambda: SearchData(Rows(lambda i: (PICTURES[i], "cta")), batch_size=8, classes=NAMES),
        "did you mean 'cat'",
    ),
    "one class": (
        lambda: SearchData(TensorDataset(PICTURES, 0 * NUMBERS), batch_size=8),
        "at least 2 classes, got the label 0 alone",
    ),
    "gray and color": (
        lambda: SearchData(Rows(lambda i: (picture(i, ["L", "RGB"][i % 2]), int(NUMBERS[i]))), batch_size=8),
        r"convert all to the same channels, image.convert\('RGB'\), got '\(1, 8, 8\) and \(3, 8, 8\)'",
    ),
    "channels last": (
        lambda: SearchData(
            (PICTURES.permute(0, 2, 3, 1).numpy().astype("f8"), NUMBERS.numpy()), batch_size=8
        ),
        "these seem to be channels-last",
    ),
    "a table": (
        lambda: SearchData(Table(), batch_size=8),
        "a torch.utils.data.Dataset that opens its images",
    ),
    "a folder's name": (lambda: SearchData("images"), r"for a folder use ImageFolder\(root\)"),
    "nothing": (lambda: SearchData(None), "data sets, or arrays"),
    "boxes": (
        lambda: pair_of(
            lambda: loader_of(Rows(lambda i: (PICTURES[i], {"boxes": PICTURES[i, 0]})), collate_fn=list)
        ),
        "The value must be a tensor or an array, got 'dict' .in the targets",
    ),
    "samples one by one": (
        lambda: pair_of(lambda: SamplesOneByOne()),
        "single samples come from an IterableDataset",
    ),
    "a module that asks too early": (
        lambda: SearchData(AsksTrainer()),
        "pass image=… and num_classes=…",
    ),
}


class SamplesOneByOne:
    """Gives samples, and is no data set of torch's."""

    def __iter__(self):
        return iter(zip(PICTURES, NUMBERS, strict=True))


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
def test_search_accepts_forms_of_data(name):
    data, space = TAKEN[name](), NasBench201()
    supernet = space.supernet(in_channels=data.image[0], num_classes=data.num_classes, channels=2, cells=1)
    task = data.task
    strategy = Darts(space, supernet if task is None else task.fit(supernet))
    off = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    trainer = pl.Trainer(max_epochs=1, limit_train_batches=2, accelerator="cpu", **dict.fromkeys(off, False))
    trainer.fit(strategy, data)
    space.check(strategy.derive()[0])


def test_invalid_forms_are_refused_in_one_line(refusal):
    for name in REFUSED:
        make, message = REFUSED[name]
        said = refusal(lambda: make().setup("fit"))
        assert "\n" not in said
        assert re.search(message, said), said


def test_forms_of_the_same_images_are_the_same_numbers():
    expected = (255 * PICTURES[:8]).byte().float() / 255
    for name in ("lists of pairs", "columns of pictures"):
        x, y = next(iter(ExternalData(TAKEN[name]().data.source.parts["train"]).train_dataloader()))
        assert torch.equal(x, expected), name
        assert torch.equal(y, NUMBERS[:8]), name
    data = TAKEN["names of classes"]()
    x, y = next(iter(data.train_dataloader()))["train"]
    for image, label in zip(x, y, strict=True):
        place = int((image == PICTURES).flatten(1).all(1).nonzero()[0])
        assert int(NUMBERS[place]) == int(label)
    assert data.classes == NAMES


def test_colors_of_a_palette_are_colors_and_labels_stay_numbers():
    """A palette's numbers are places in a list of colors; masks keep their labels in them."""
    pixels = np.zeros((2, 2, 3), dtype=np.uint8)
    pixels[0, 0], pixels[1, 1] = (250, 10, 30), (1, 200, 3)
    image = Image.fromarray(pixels).quantize(3)
    assert image.mode == "P"
    assert torch.equal(as_tensor(image, "inputs"), torch.from_numpy(pixels).permute(2, 0, 1))
    assert torch.equal(as_tensor(image, "targets")[0], torch.from_numpy(np.array(image)))
