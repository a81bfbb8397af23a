"""External data in various forms."""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import CombinedLoader
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

from nas_lightning.data import SearchData

CLASSES, CHANNELS, SIDE = 3, 2, 8
IMAGES = torch.randint(
    256, (48, CHANNELS, SIDE, SIDE), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
)
LABELS = torch.arange(48) % CLASSES
Named = namedtuple("Named", "label image")
TRAIN, VALID = TensorDataset(IMAGES[:32], LABELS[:32]), TensorDataset(IMAGES[32:], LABELS[32:])


@dataclass
class Scan:
    label: Tensor
    image: Tensor


class Samples(Dataset):
    """Samples of any form."""

    def __init__(self, form: Callable[[Tensor, Tensor], Any], count: int = 32) -> None:
        self.form, self.count = form, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.form(IMAGES[index], LABELS[index])


class Rows(IterableDataset):
    """A stream of samples that says no length."""

    def __iter__(self):
        for image, label in zip(IMAGES[:32], LABELS[:32].tolist(), strict=True):
            yield image.double() / 255, label


class ArrayBatches:
    """Batches of NumPy arrays, without a length."""

    def __iter__(self):
        for start in range(0, 32, 8):
            part = slice(start, start + 8)
            yield IMAGES[part].numpy(), LABELS[part].numpy().astype("int32")


class Endless:
    """The same batch again and again."""

    def __iter__(self):
        while True:
            yield IMAGES[:8], LABELS[:8]


class OnlyLightning(pl.LightningDataModule):
    """What Lightning promises and nothing else; its parts are there after `setup`."""

    def __init__(self, batch_size: int = 8, flip: bool = False) -> None:
        super().__init__()
        self.size, self.flip = batch_size, flip

    def setup(self, stage: str) -> None:
        self.parts = (TRAIN, VALID)

    def train_dataloader(self) -> DataLoader:
        return loader(self.parts[0], batch_size=self.size)

    def val_dataloader(self) -> list[DataLoader]:
        return [loader(self.parts[1], shuffle=False)]

    def test_dataloader(self) -> DataLoader:
        return loader(self.parts[1], shuffle=False)


class OnTheWay(OnlyLightning):
    """Batches become what they are on their way to the device."""

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return {"image": batch[0].float() - 100, "target": batch[1][:, None].to(torch.int16)}


def loader(samples: Any, **options: Any) -> DataLoader:
    return DataLoader(samples, **({"batch_size": 8, "shuffle": True} | options))


def both(form: Callable[[Tensor, Tensor], Any], **options: Any) -> SearchData:
    return SearchData(loader(Samples(form)), loader(Samples(form)), **options)


def weighted() -> DataLoader:
    own = torch.Generator().manual_seed(3)
    return loader(TRAIN, shuffle=False, sampler=WeightedRandomSampler(torch.ones(32), 32, generator=own))


FORMS: dict[str, Callable[[], SearchData]] = {
    "module": lambda: SearchData(OnlyLightning()),
    "module with hooks": lambda: SearchData(OnTheWay()),
    "loaders": lambda: SearchData(loader(TRAIN), loader(VALID)),
    "data sets": lambda: SearchData(TRAIN, VALID, batch_size=8),
    "one data set": lambda: SearchData(TRAIN, batch_size=8),
    "arrays": lambda: SearchData((IMAGES.numpy(), LABELS.numpy()), batch_size=8),
    "one loader for both": lambda: SearchData(loader(TRAIN), train_fraction=1.0),
    "dicts": lambda: both(lambda x, y: {"pixel_values": x, "labels": y, "id": 7}),
    "dicts by name": lambda: both(lambda x, y: {"scan": x, "grade": y}, inputs="scan", targets="grade"),
    "named tuples": lambda: both(lambda x, y: Named(y, x.double())),
    "three parts": lambda: both(lambda x, y: (x, y[None].int(), "patient")),
    "other places": lambda: both(lambda x, y: (7, y.half(), x), inputs=2, targets=1),
    "one-hot": lambda: both(lambda x, y: (x.short(), torch.eye(CLASSES)[y])),
    "a reader": lambda: both(lambda x, y: {"a": {"b": x}, "c": y}, reader=lambda b: (b["a"]["b"], b["c"])),
    "data classes": lambda: SearchData(
        [Scan(LABELS[:8], IMAGES[:8])] * 4, [Scan(LABELS[8:16], IMAGES[8:16])]
    ),
    "combined": lambda: SearchData(
        CombinedLoader({"train": loader(TRAIN), "val": loader(VALID)}, "max_size")
    ),
    "with gaps": lambda: SearchData(CombinedLoader([loader(TRAIN), loader(VALID)], "max_size")),
    "the shorter": lambda: SearchData(CombinedLoader([loader(TRAIN), loader(VALID)], "min_size")),
    "in turn": lambda: SearchData(
        CombinedLoader({"train": loader(TRAIN), "valid": loader(VALID)}, "sequential")
    ),
    "other sides": lambda: SearchData({"w": loader(TRAIN), "a": loader(VALID)}, sides=("w", "a")),
    "streams": lambda: SearchData(Rows(), Rows(), batch_size=8),
    "no length": lambda: SearchData(ArrayBatches(), ArrayBatches()),
    "no end": lambda: SearchData(Endless(), Endless(), epoch_batches=4, num_classes=CLASSES),
    "weighted": lambda: SearchData(weighted(), loader(VALID)),
    "balanced": lambda: SearchData(TRAIN, VALID, batch_size=8, balanced=True),
}
STEPS = {"one data set": 2, "the shorter": 2, "arrays": 3}
"""Batches of an epoch, where it is not 4."""
