"""Labelled images that draws are read from; `files.py` has the ones that stay on disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from nas_lightning.data.order import BatchRows


class Samples(ABC):
    """Images as bytes, all of one shape, and their labels."""

    labels: Tensor  # (n,)
    image: tuple[int, int, int]

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, row: int) -> str:
        """What an image is called: its file's name, where it has one."""
        return f"image {row}"

    @abstractmethod
    def select(self, rows: Tensor) -> Samples:
        """The samples of these rows, in this order; images are shared, not copied."""

    @abstractmethod
    def read(self, draws: Iterable[BatchRows], *, random: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """(b, c, h, w) bytes and (b,) labels of each draw; `random` for images that are augmented as read."""

    def in_memory(self) -> Samples:
        """The same samples, ready to be drawn from without further reading where that is possible."""
        return self


class TensorSamples(Samples):
    """Images in memory: (n, c, h, w) bytes.

    Args:
        images: bytes: (n, c, h, w).
        labels: of the chosen rows: (rows,).
        rows: which of the images; None: all.
        names: of all images; None: their numbers.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        rows: Tensor | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """`labels` are those of the chosen `rows` of the images; by default of all."""
        self.images, self.names = images, names
        self.labels = labels.long()
        self.rows = torch.arange(len(images)) if rows is None else rows
        _, channels, height, width = images.shape
        self.image = (channels, height, width)

    def name(self, row: int) -> str:
        return super().name(row) if self.names is None else self.names[int(self.rows[row])]

    def select(self, rows: Tensor) -> TensorSamples:
        return TensorSamples(self.images, self.labels[rows], self.rows[rows], self.names)

    def read(self, draws: Iterable[BatchRows], *, random: bool) -> Iterator[tuple[Tensor, Tensor]]:
        for draw in draws:
            yield self.images.index_select(0, self.rows[draw.rows]), self.labels[draw.rows]
