"""What people give as data, as loaders of its parts; here of a data module.

Nothing is asked of a data module but what Lightning promises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
from pytorch_lightning.utilities import CombinedLoader
from pytorch_lightning.utilities.exceptions import MisconfigurationException
from torch import Tensor

from nas_lightning.data.batches import Batch, Reader
from nas_lightning.errors import InputError

VALID = ("valid", "val", "validation")


class Feed(NamedTuple):
    """A loader and how its batches are read.

    Args:
        loader: what can be iterated over.
        read: a batch of it → (inputs, targets).
    """

    loader: Any
    read: Callable[[Any], Batch]


class DataSource(ABC):
    """The parts of somebody's data."""

    shortest = False
    """Whether the shorter of two sides ends an epoch."""
    batch_size: int | None = None
    """Of data sets; None where somebody else's loaders have theirs."""

    @abstractmethod
    def part(self, name: str) -> Feed | None:
        """`train`, `valid` or `test`; None where there is none."""

    @abstractmethod
    def owners(self) -> list[Any]:
        """The objects that may know their classes."""

    def split(self, fraction: float, seed: int) -> tuple[Feed, Feed]:
        """Two sides of the training part, where it can be divided."""
        raise InputError(
            "expected a validation part, which the architecture learns from: a val_dataloader, "
            "SearchData(train, valid), or train_fraction=1 to use the training part for both",
            got="none",
            where="the data",
        )

    def resize(self, batch_size: int) -> None:
        """Have batches of another size."""
        raise InputError(
            "expected data whose batch_size can be set: data sets, or a data module with that attribute",
            got=batch_size,
            where="batch_size",
        )

    def prepare(self) -> None:  # noqa: B027
        """Download or the like, once."""

    def setup(self, stage: str) -> None:  # noqa: B027
        """Make the parts of `fit` or `test` ready."""


class SourceModule(DataSource):
    """A `LightningDataModule`.

    Args:
        module: as its user wrote it.
        reader: how its batches are read.
        sides: what its two sides are called, where its training loader has both.
        owner: the data module that stands for it before Lightning, and is told of the trainer.
    """

    def __init__(
        self, module: pl.LightningDataModule, reader: Reader, sides: Sequence[str], owner: Any = None
    ) -> None:
        self.module, self.reader, self.sides, self.owner = module, reader, sides, owner
        self._ready: set[str] = set()
        self._parts: dict[str, Any] = {}

    def part(self, name: str) -> Feed | None:
        loader = self._sides().get(name) if name != "test" else self._ask("test")
        return None if loader is None else Feed(loader, self._read)

    def owners(self) -> list[Any]:
        return [self.module, getattr(self._sides()["train"], "dataset", None)]

    def resize(self, batch_size: int) -> None:
        owners: list[Any] = [self.module, self.module.hparams]
        owners = [owner for owner in owners if hasattr(owner, "batch_size")]
        for owner in owners:
            owner.batch_size = batch_size
        if not owners:
            super().resize(batch_size)
        self._parts = {}

    def prepare(self) -> None:
        if "prepared" not in self._ready:
            with self._with_trainer():
                self.module.prepare_data()
            self._ready.add("prepared")

    def setup(self, stage: str) -> None:
        if stage not in self._ready:
            with self._with_trainer():
                self.module.setup(stage)
            self._ready.add(stage)

    @contextmanager
    def _with_trainer(self) -> Iterator[None]:
        """The data module knows the trainer, as it would of Lightning; said where there is none yet."""
        if self.owner is not None and self.owner.trainer is not None:
            self.module.trainer = self.owner.trainer
        try:
            yield
        except AttributeError as error:
            if self.module.trainer is not None or "NoneType" not in str(error):
                raise
            expected = "expected a data module that needs no trainer, or image=… and num_classes=… before it"
            raise InputError(expected, got=str(error), where=type(self.module).__name__) from error

    def _sides(self) -> dict[str, Any]:
        if "train" not in self._parts:
            train = self._ask("train")
            if train is None:
                raise InputError("expected a train_dataloader", got="none", where=type(self.module).__name__)
            found, self.shortest = sides_of(train, self.sides)
            self._parts = found if "valid" in found else {**found, "valid": self._ask("val")}
        return self._parts

    def _ask(self, part: str) -> Any:
        """The loader of a part; of a list the only one."""
        self.prepare()
        self.setup("test" if part == "test" else "fit")
        try:
            with self._with_trainer():
                loader = getattr(self.module, f"{part}_dataloader")()
        except MisconfigurationException:  # Lightning's own hook, which nobody has written
            return None
        if part != "train" and isinstance(loader, (list, tuple)) and not loader:
            return None
        if not is_list_of_loaders(loader):
            return loader
        if len(loader) > 1:
            where = f"{type(self.module).__name__}.{part}_dataloader"
            both = ", or a dict of both sides of a search" if part == "train" else ""
            raise InputError(f"expected a single loader{both}", got=f"{len(loader)} of them", where=where)
        return loader[0]

    def _read(self, batch: Any) -> Batch:
        """A batch after the hooks with which a data module changes it on its way."""
        batch = self.module.on_before_batch_transfer(batch, 0)
        return self.reader(self.module.on_after_batch_transfer(batch, 0))


def is_list_of_loaders(loaders: Any) -> bool:
    """Whether these are several loaders, and not the batches of one.

    >>> is_list_of_loaders([range(3), range(4)]), is_list_of_loaders([("x", "y"), ("x", "y")])
    (True, False)
    """
    if not isinstance(loaders, (list, tuple)) or not loaders:
        return False
    of_batches = (tuple, list, Mapping, Tensor, np.ndarray)
    return all(hasattr(entry, "__iter__") and not isinstance(entry, of_batches) for entry in loaders)


def sides_of(loaders: Any, names: Sequence[str]) -> tuple[dict[str, Any], bool]:
    """`train`, and `valid` where there are both, of what may hold both; whether the shorter ends an epoch."""
    shortest = isinstance(loaders, CombinedLoader) and loaders._mode == "min_size"
    both = loaders.iterables if isinstance(loaders, CombinedLoader) else loaders
    if isinstance(loaders, CombinedLoader) and isinstance(both, (list, tuple)):
        both = dict(zip(names, both, strict=False))
    if not isinstance(both, Mapping):
        return {"train": both}, shortest
    first, second = names
    usual = VALID if second == "valid" else (second,)
    chosen = [name for name in usual if name in both]
    if first not in both or not chosen:
        expected = f"expected the sides {first!r} and {second!r}, or sides=(…, …)"
        raise InputError(expected, got=", ".join(map(str, both)) or "none", where="the data")
    return {"train": both[first], "valid": both[chosen[0]]}, shortest
