"""Data as strangers have them: each is taken, or one line says what to change."""

import re

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

from nas_lightning.data import ExternalData, SearchData
from nas_lightning.data.batches import as_tensor
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Darts
from nas_lightning.tasks import MultiLabel, Segmentation

X, Y = torch.rand(24, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 3
NAMES = ("cat", "dog", "owl")


def picture(index: int, mode: str = "RGB") -> Image.Image:
    pixels = (255 * X[index]).byte().permute(1, 2, 0).numpy()
    return Image.fromarray(pixels).convert(mode)


class Rows(Dataset):
    """Samples of any form."""

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
        return ((X[index], int(Y[index])) for index in range(first, 24, step))


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
        return DataLoader(TensorDataset(X, Y), self.size, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(TensorDataset(X, Y), 8 // self.trainer.num_devices)


def loader(samples, **options) -> DataLoader:
    return DataLoader(samples, batch_size=8, **options)


def both(make) -> SearchData:
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


ALL = TensorDataset(X, Y)


def columns(samples):
    return tuple(zip(*samples, strict=True))


TAKEN = {
    "dicts of pictures": lambda: SearchData(
        Rows(lambda i: {"image": picture(i), "label": int(Y[i])}), batch_size=8
    ),
    "a list of samples": lambda: SearchData([(X[i], int(Y[i])) for i in range(24)], batch_size=8),
    "lists of dicts": lambda: both(
        lambda: loader(Rows(lambda i: {"image": X[i], "label": int(Y[i])}), collate_fn=list)
    ),
    "lists of pairs": lambda: both(lambda: loader(Rows(lambda i: (picture(i), int(Y[i]))), collate_fn=list)),
    "columns of pictures": lambda: both(
        lambda: loader(Rows(lambda i: (picture(i), int(Y[i]))), collate_fn=columns)
    ),
    "names of classes": lambda: SearchData(Rows(lambda i: (X[i], NAMES[Y[i]])), batch_size=8, classes=NAMES),
    "names in a loader": lambda: SearchData(
        loader(Rows(lambda i: (X[i], NAMES[Y[i]]))),
        loader(Rows(lambda i: (X[i], NAMES[Y[i]]))),
        classes=NAMES,
    ),
    "a stream with workers": lambda: both(lambda: loader(Stream(), num_workers=2)),
    "two parts in one": lambda: SearchData(ConcatDataset([TensorDataset(X, Y)] * 2), batch_size=8),
    "arrays by name": lambda: SearchData({"image": X, "label": Y.numpy()}, batch_size=8),
    "a module of lists of batches": lambda: SearchData(Module([(X[:8], Y[:8])] * 2, [(X[8:16], Y[8:16])])),
    "a module of lists of a loader": lambda: SearchData(Module([loader(ALL)], [loader(ALL)])),
    "halves": lambda: SearchData(*random_split(TensorDataset(X, Y), [12, 12]), batch_size=4),
    "one image a batch": lambda: SearchData(TensorDataset(X, Y), batch_size=1),
    "fewer than a batch": lambda: SearchData(TensorDataset(X[:6], Y[:6]), batch_size=64),
    "two bands": lambda: SearchData((X[:, :2], Y), batch_size=8),
    "thirteen bands of a satellite": lambda: SearchData(
        ((1e4 * torch.rand(24, 13, 8, 8)).short(), Y), batch_size=8
    ),
    "rectangles": lambda: SearchData((torch.rand(24, 3, 8, 20), Y), batch_size=8),
    "a palette": lambda: SearchData(Rows(lambda i: (picture(i, "P"), int(Y[i]))), batch_size=8),
    "three pixels wide, as is said": lambda: SearchData(
        (torch.rand(24, 8, 8, 3), Y), batch_size=8, image=(8, 8, 3)
    ),
    "a module that asks the trainer": lambda: SearchData(AsksTrainer(), image=(3, 8, 8), num_classes=3),
    "several labels": lambda: SearchData((X, (X[:, 0, 0, :4] > 0.5).int()), batch_size=8, task=MultiLabel()),
    "masks in a palette": lambda: SearchData(
        Rows(lambda i: (picture(i), Image.fromarray((X[i, 0] > 0.5).byte().numpy()).convert("P"))),
        batch_size=8,
        task=Segmentation(),
    ),
}
REFUSED = {
    "two loaders of a module": (
        lambda: SearchData(Module([loader(ALL), loader(ALL)], loader(ALL))),
        "a single loader, or a dict of both sides of a search, got '2 of them' .in Module.train_dataloader",
    ),
    "two loaders in a list": (
        lambda: SearchData([loader(ALL), loader(ALL)]),
        r"loaders one by one, SearchData\(train, valid\), or a dict of both sides, got 'a list of 2'",
    ),
    "no samples": (
        lambda: SearchData(Subset(ALL, []), batch_size=8),
        "at least one sample, got 'none' .in the train part",
    ),
    "names alone": (
        lambda: SearchData(Rows(lambda i: (X[i], NAMES[Y[i]])), batch_size=8),
        "labels as numbers, or classes=.…., whose places they are, got '(cat|dog|owl)'",
    ),
    "an unknown name": (
        lambda: SearchData(Rows(lambda i: (X[i], "cta")), batch_size=8, classes=NAMES),
        "did you mean 'cat'",
    ),
    "one class": (
        lambda: SearchData(TensorDataset(X, 0 * Y), batch_size=8),
        "at least 2 classes, got 'the label 0 alone'",
    ),
    "gray and color": (
        lambda: SearchData(Rows(lambda i: (picture(i, ["L", "RGB"][i % 2]), int(Y[i]))), batch_size=8),
        r"give all as many channels, image.convert\('RGB'\), got '\(1, 8, 8\) and \(3, 8, 8\)'",
    ),
    "channels last": (
        lambda: SearchData((X.permute(0, 2, 3, 1).numpy().astype("f8"), Y.numpy()), batch_size=8),
        "these seem to have their channels last",
    ),
    "a table": (lambda: SearchData(Table(), batch_size=8), "a data set that opens the images of a table"),
    "a folder's name": (lambda: SearchData("images"), r"which ImageFolder\(root\) has of a folder"),
    "nothing": (lambda: SearchData(None), "data sets or arrays, got 'none'"),
    "boxes": (
        lambda: both(lambda: loader(Rows(lambda i: (X[i], {"boxes": X[i, 0]})), collate_fn=list)),
        "expected a tensor or an array, got 'dict' .in the targets",
    ),
    "samples one by one": (lambda: both(lambda: Samples()), "single samples come from an IterableDataset"),
    "a module that asks too early": (
        lambda: SearchData(AsksTrainer()),
        "a data module that needs no trainer, or image=… and num_classes=… before it",
    ),
}


class Samples:
    """Gives samples, and is no data set of torch's."""

    def __iter__(self):
        return iter(zip(X, Y, strict=True))


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
def test_a_search_takes_them(name):
    data, space = TAKEN[name](), NasBench201()
    supernet = space.supernet(in_channels=data.image[0], num_classes=data.num_classes, channels=2, cells=1)
    task = data.task
    strategy = Darts(space, supernet if task is None else task.fit(supernet))
    off = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    trainer = pl.Trainer(max_epochs=1, limit_train_batches=2, accelerator="cpu", **dict.fromkeys(off, False))
    trainer.fit(strategy, data)
    space.check(strategy.derive()[0])


@pytest.mark.parametrize("name", REFUSED)
def test_one_line_says_what_to_change(name, refusal):
    make, message = REFUSED[name]
    said = refusal(lambda: make().setup("fit"))
    assert "\n" not in said
    assert re.search(message, said), said


def test_forms_of_the_same_images_are_the_same_numbers():
    expected = (255 * X[:8]).byte().float() / 255
    for name in ("lists of pairs", "columns of pictures"):
        x, y = next(iter(ExternalData(TAKEN[name]().data.source.parts["train"]).train_dataloader()))
        assert torch.equal(x, expected), name
        assert torch.equal(y, Y[:8]), name
    data = TAKEN["names of classes"]()
    x, y = next(iter(data.train_dataloader()))["train"]
    for image, label in zip(x, y, strict=True):
        place = int((image == X).flatten(1).all(1).nonzero()[0])
        assert int(Y[place]) == int(label)
    assert data.classes == NAMES


def test_colors_of_a_palette_are_colors_and_labels_stay_numbers():
    """A palette's numbers are places in a list of colors; masks keep their labels in them."""
    pixels = np.zeros((2, 2, 3), dtype=np.uint8)
    pixels[0, 0], pixels[1, 1] = (250, 10, 30), (1, 200, 3)
    image = Image.fromarray(pixels).quantize(3)
    assert image.mode == "P"
    assert torch.equal(as_tensor(image, "inputs"), torch.from_numpy(pixels).permute(2, 0, 1))
    assert torch.equal(as_tensor(image, "targets")[0], torch.from_numpy(np.array(image)))
